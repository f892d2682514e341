{{/* What is registered with the API server: text for the cert-rotator, which adds caBundle and owners. */}}

{{/* Labels of what the cert-rotator makes. None of Helm's, nor the instance label that Argo CD tracks by: both would take
     these objects for their own. */}}
{{- define "sallyport.registeredLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/part-of: sallyport
app.kubernetes.io/component: webhook
app.kubernetes.io/managed-by: sallyport-cert-rotator
sallyport.dev/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "sallyport.registration" -}}
{{- $doors := list -}}
{{- if .Values.registration.enabled -}}
{{- $doors = include "sallyport.doors" . | fromJsonArray -}}
{{- end -}}
# Helm deletes Services before ClusterRoles; this one has to outlive the configurations below, so it is made with them.
apiVersion: v1
kind: Service
metadata:
  name: {{ include "sallyport.fullname" . }}-webhook
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "sallyport.registeredLabels" . | nindent 4 }}
spec:
  type: ClusterIP
  selector:
    {{- include "sallyport.selector" (dict "root" . "component" "webhook") | nindent 4 }}
  ports:
    - name: https
      port: {{ .Values.webhook.servicePort }}
      targetPort: https
      protocol: TCP
      appProtocol: https
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: {{ include "sallyport.clusterName" . }}
  labels:
    {{- include "sallyport.registeredLabels" . | nindent 4 }}
{{- include "sallyport.entries" (dict "root" . "doors" $doors "door" "mutate") }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: {{ include "sallyport.clusterName" . }}
  labels:
    {{- include "sallyport.registeredLabels" . | nindent 4 }}
{{- include "sallyport.entries" (dict "root" . "doors" $doors "door" "validate") }}
{{- end -}}

{{/* The entries of one configuration: one a failurePolicy, as policies that may be skipped and policies that may not go
     through different doors. Without any, the cert-rotator removes the configuration. */}}
{{- define "sallyport.entries" -}}
{{- $settings := get .root.Values.registration .door -}}
{{- $isProbed := has .door (include "sallyport.probed" . | fromJsonArray) -}}
{{- $entries := list -}}
{{- range list "Fail" "Ignore" -}}
{{- if has (printf "%s/%s" $.door .) $.doors -}}
{{- $entries = append $entries . -}}
{{- end -}}
{{- end }}
webhooks:
{{- range $failurePolicy := $entries }}
  - name: {{ lower $failurePolicy }}.{{ $.door }}.sallyport.dev
    clientConfig:
      service:
        name: {{ include "sallyport.fullname" $.root }}-webhook
        namespace: {{ $.root.Release.Namespace | quote }}
        path: /{{ $.door }}/{{ lower $failurePolicy }}
        port: {{ $.root.Values.webhook.servicePort }}
    failurePolicy: {{ $failurePolicy }}
    rules:
      {{- toYaml $settings.rules | nindent 6 }}
    namespaceSelector:
      {{- include "sallyport.namespaceSelector" (dict "root" $.root "settings" $settings) | nindent 6 }}
    {{- with $settings.objectSelector }}
    objectSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    matchConditions:
      {{- include "sallyport.matchConditions" (dict "root" $.root "settings" $settings) | nindent 6 }}
    matchPolicy: Equivalent
    {{- if eq $.door "mutate" }}
    reinvocationPolicy: IfNeeded
    {{- end }}
    sideEffects: None
    timeoutSeconds: {{ $settings.timeoutSeconds }}
    admissionReviewVersions: [v1]
{{- end }}
{{- if $isProbed }}
  # The way of the cert-rotator's dry run, which proves the door before entries of this configuration become Fail.
  - name: probe.{{ .door }}.sallyport.dev
    clientConfig:
      service:
        name: {{ include "sallyport.fullname" .root }}-webhook
        namespace: {{ .root.Release.Namespace | quote }}
        path: /{{ .door }}/fail
        port: {{ .root.Values.webhook.servicePort }}
    failurePolicy: Ignore
    rules:
      - apiGroups: [""]
        apiVersions: [v1]
        resources: [configmaps]
        operations: [CREATE]
        scope: Namespaced
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: In
          values: [{{ .root.Release.Namespace | quote }}]
    objectSelector:
      matchExpressions:
        - key: sallyport.dev/probe
          operator: Exists
    matchConditions:
      - name: a-dry-run
        expression: request.dryRun
    matchPolicy: Equivalent
    {{- if eq .door "mutate" }}
    reinvocationPolicy: Never
    {{- end }}
    sideEffects: None
    timeoutSeconds: 3
    admissionReviewVersions: [v1]
{{- else if not $entries }} []
{{- end }}
{{- end -}}

{{/* The doors that are probed, as a JSON list: those that a promotion needs. The validator refuses the probe for both, if
     there is a validator. */}}
{{- define "sallyport.probed" -}}
{{- $probed := list -}}
{{- if .root.Values.registration.promote -}}
{{- if has "mutate/Fail" .doors -}}
{{- $probed = append $probed "mutate" -}}
{{- end -}}
{{- if and .root.Values.validator.enabled (or (has "mutate/Fail" .doors) (has "validate/Fail" .doors)) -}}
{{- $probed = append $probed "validate" -}}
{{- end -}}
{{- end -}}
{{- $probed | toJson -}}
{{- end -}}

{{/* A suite that is down must not keep itself or the cluster down (C-100, C-101). */}}
{{- define "sallyport.namespaceSelector" -}}
{{- $excluded := concat (list .root.Release.Namespace "kube-system" "kube-node-lease") (default list .root.Values.registration.excludeNamespaces) | uniq | sortAlpha -}}
{{- $own := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" $excluded -}}
{{- $selector := deepCopy (default dict .settings.namespaceSelector) -}}
{{- $_ := set $selector "matchExpressions" (concat (list $own) (default list $selector.matchExpressions)) -}}
{{- toYaml $selector -}}
{{- end -}}

{{/* What no selector can say, as conditions that hold for all that is to be reviewed. Each is there only if the rules can
     match what it keeps out: the API server evaluates all of them for every request. */}}
{{- define "sallyport.matchConditions" -}}
{{- $rules := .settings.rules -}}
{{- $candidates := list
  (dict
    "name" "not-a-mirror-pod"
    "resources" (list "/pods")
    "expression" `request.kind.group != "" || request.kind.kind != "Pod" || [oldObject == null ? object : oldObject].all(it, it == null || !has(it.metadata.annotations) || !("kubernetes.io/config.mirror" in it.metadata.annotations))`
  )
  (dict
    "name" "not-a-node"
    "resources" (list "/nodes")
    "expression" `request.resource.group != "" || request.resource.resource != "nodes"`
  )
  (dict
    "name" "not-a-certificate-signing-request"
    "resources" (list "certificates.k8s.io/certificatesigningrequests")
    "expression" `request.resource.group != "certificates.k8s.io" || request.resource.resource != "certificatesigningrequests"`
  )
  (dict
    "name" "not-a-lease"
    "resources" (list "coordination.k8s.io/leases")
    "expression" `request.resource.group != "coordination.k8s.io" || request.resource.resource != "leases"`
  )
  (dict
    "name" "not-an-access-review"
    "resources" (list
      "authentication.k8s.io/tokenreviews"
      "authentication.k8s.io/selfsubjectreviews"
      "authorization.k8s.io/subjectaccessreviews"
      "authorization.k8s.io/localsubjectaccessreviews"
      "authorization.k8s.io/selfsubjectaccessreviews"
      "authorization.k8s.io/selfsubjectrulesreviews"
    )
    "expression" `!(request.resource.group in ["authentication.k8s.io", "authorization.k8s.io"])`
  )
  (dict
    "name" "not-its-own"
    "resources" (list
      "rbac.authorization.k8s.io/clusterroles"
      "rbac.authorization.k8s.io/clusterrolebindings"
      "scheduling.k8s.io/priorityclasses"
    )
    "expression" (printf `!(request.resource.group in ["rbac.authorization.k8s.io", "scheduling.k8s.io"]) || request.name != %q` (include "sallyport.clusterName" .root))
  )
-}}
{{- /* The mirror annotation counts on pods alone, or anything could be exempted with it, and of a pod that is there in what
       it was: a subresource takes a pod with the annotation and drops it. Objects are null on CREATE and DELETE.
       Its own cluster-scoped objects are kept out so that a suite that is down can be uninstalled. */ -}}
{{- $conditions := list -}}
{{- range $candidate := $candidates -}}
{{- $isNeeded := false -}}
{{- range $candidate.resources -}}
{{- if include "sallyport.rulesMatch" (dict "rules" $rules "group" (splitList "/" . | first) "resource" (splitList "/" . | last)) -}}
{{- $isNeeded = true -}}
{{- end -}}
{{- end -}}
{{- if $isNeeded -}}
{{- $conditions = append $conditions (pick $candidate "name" "expression") -}}
{{- end -}}
{{- end -}}
{{- concat $conditions (default list .settings.matchConditions) | toYaml -}}
{{- end -}}

{{/* "true" if one of the rules can match a resource or one of its subresources, else nothing. */}}
{{- define "sallyport.rulesMatch" -}}
{{- $found := false -}}
{{- range .rules -}}
{{- if or (has "*" .apiGroups) (has $.group .apiGroups) -}}
{{- range .resources -}}
{{- if has (splitList "/" . | first) (list "*" $.resource) -}}
{{- $found = true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- ternary "true" "" $found -}}
{{- end -}}
