{{/* Who a service is, and who may call it. Both take a service, see _names.tpl. */}}

{{- define "sallyport.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "sallyport.metadata" . | nindent 2 }}
# Pods that talk to the API server ask for the token themselves.
automountServiceAccountToken: false
{{- end -}}

{{/* Not empty for a service that calls the API server. */}}
{{- define "sallyport.callsApiServer" -}}
{{- if or (eq .component "cert-rotator") (include "sallyport.asksAuthorizer" .) -}}true{{- end -}}
{{- end -}}

{{/* Not empty for a backend that asks the API server what users may do. */}}
{{- define "sallyport.asksAuthorizer" -}}
{{- if (.values.authorizer | default dict).enabled -}}true{{- end -}}
{{- end -}}

{{/* The right to ask, and nothing else, of a backend that does. Asking tells what others may do, and changes nothing. */}}
{{- define "sallyport.authorizerAccess" -}}
{{- if include "sallyport.asksAuthorizer" . -}}
{{- $name := printf "%s-%s" (include "sallyport.clusterName" .root) .component -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "sallyport.authorizerMetadata" (dict "service" . "name" $name) | nindent 2 }}
rules:
  - apiGroups: [authorization.k8s.io]
    resources: [subjectaccessreviews]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "sallyport.authorizerMetadata" (dict "service" . "name" $name) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "sallyport.serviceName" . }}
    namespace: {{ .root.Release.Namespace | quote }}
{{- end -}}
{{- end -}}

{{/* Metadata, without a namespace. */}}
{{- define "sallyport.authorizerMetadata" -}}
name: {{ .name }}
labels:
  {{- include "sallyport.labels" .service | nindent 2 }}
{{- with .service.root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Ingress only: what a service may call is bounded by its certificate and its Role, and the API server's address is
     not known to a chart. */}}
{{- define "sallyport.networkPolicy" -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- if $policy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "sallyport.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "sallyport.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    {{- if eq .component "webhook" }}
    # API servers lie outside the pod network in most clusters, so by default any source may connect.
    - ports:
        - {protocol: TCP, port: https}
      {{- with $policy.webhookFrom }}
      from:
        {{- toYaml . | nindent 8 }}
        {{- include "sallyport.peer" (dict "root" $.root "component" "cert-rotator") | nindent 8 }}
      {{- end }}
    {{- else if ne .component "cert-rotator" }}
    - ports:
        - {protocol: TCP, port: grpc}
      # With hostNetwork the webhook calls from its node's address, which no selector knows; mutual TLS holds all the same.
      {{- if not .root.Values.webhook.hostNetwork }}
      from:
        {{- range list "webhook" "cert-rotator" }}
        {{- include "sallyport.peer" (dict "root" $.root "component" .) | nindent 8 }}
        {{- end }}
      {{- end }}
    {{- end }}
    # Metrics, health, and to the cert-rotator the state of certificates.
    - ports:
        - {protocol: TCP, port: admin}
      {{- with $policy.adminFrom }}
      from:
        {{- toYaml . | nindent 8 }}
        {{- include "sallyport.peer" (dict "root" $.root "component" "cert-rotator") | nindent 8 }}
      {{- end }}
{{- end -}}
{{- end -}}

{{/* The pods of a service, as a NetworkPolicy speaks of them. */}}
{{- define "sallyport.peer" -}}
- podSelector:
    matchLabels:
      {{- include "sallyport.selector" . | nindent 6 }}
{{- end -}}
