{{/* Rights for injection into objects of others, apart from all other rights. */}}

{{/* The objects' name: those in namespaces of others must not meet another release's. */}}
{{- define "sallyport.injectionName" -}}
{{- printf "%s-injection" (include "sallyport.clusterName" .) -}}
{{- end -}}

{{/* Metadata, without a namespace. Takes the root context. */}}
{{- define "sallyport.injectionMetadata" -}}
name: {{ include "sallyport.injectionName" . }}
labels:
  {{- include "sallyport.labels" (dict "root" . "component" "cert-rotator") | nindent 2 }}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sallyport.injectionSubjects" -}}
- kind: ServiceAccount
  name: {{ include "sallyport.serviceName" (dict "root" . "component" "cert-rotator") }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{/* The Secrets' names by their namespaces, as YAML; empty if injection is off. */}}
{{- define "sallyport.injectionSecrets" -}}
{{- $injection := .Values.certRotator.injection -}}
{{- if $injection.enabled -}}
{{- if not (and $injection.targets $injection.secrets) -}}
{{- fail "certRotator.injection is enabled, but targets or secrets is empty: nothing could be injected" -}}
{{- end -}}
{{- $names := dict -}}
{{- range $injection.secrets -}}
{{- $_ := set $names .namespace (append (get $names .namespace | default list) .name | uniq) -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}
{{- end -}}
