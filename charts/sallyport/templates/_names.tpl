{{/*
Names and labels. Templates that speak of one service take a dict, the "service":
  root       the chart's root context
  component  webhook, mutator, validator or cert-rotator
  values     that service's values
*/}}

{{/* The release's name in object names. Services add at most "-cert-rotator" to it and may not pass 63 characters. */}}
{{- define "sallyport.fullname" -}}
{{- $chart := default .Chart.Name .Values.nameOverride -}}
{{- $name := printf "%s-%s" .Release.Name $chart -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if contains $chart .Release.Name -}}
{{- $name = .Release.Name -}}
{{- end -}}
{{- $name = $name | trunc 50 | trimSuffix "-" -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*[a-z0-9]$" $name) -}}
{{- fail (printf "%q cannot be the beginning of a Service's name: use lower case letters, digits and '-', a letter first, or set fullnameOverride" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Cluster-scoped objects: two releases of one name in two namespaces must not meet. */}}
{{- define "sallyport.clusterName" -}}
{{- printf "%s.%s" (include "sallyport.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* The objects of a service; "suffix" tells a second one of a kind from the first. */}}
{{- define "sallyport.serviceName" -}}
{{- printf "%s-%s%s" (include "sallyport.fullname" .root) .component (default "" .suffix) -}}
{{- end -}}

{{/* What the webhook's certificate is for, and what backends let in. */}}
{{- define "sallyport.clientName" -}}
{{- printf "%s-webhook.%s.svc" (include "sallyport.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* Where the webhook finds a backend. The name is absolute, trailing dot included: with the search list of a pod's
     resolver each look-up would be five. */}}
{{- define "sallyport.backendAddress" -}}
{{- printf "%s.%s.svc.%s.:9443" (include "sallyport.serviceName" .) .root.Release.Namespace .root.Values.clusterDomain -}}
{{- end -}}

{{- define "sallyport.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* By these, Deployments and Services know a service's pods. They never change in a release's life. */}}
{{- define "sallyport.selector" -}}
{{ include "sallyport.releaseSelector" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "sallyport.releaseSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels of objects that belong to the whole release. */}}
{{- define "sallyport.releaseLabels" -}}
{{ include "sallyport.releaseSelector" . }}
app.kubernetes.io/part-of: sallyport
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ include "sallyport.chart" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of one service's objects. */}}
{{- define "sallyport.labels" -}}
{{ include "sallyport.releaseLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of pods: without the chart's version, so that a new chart alone restarts nothing. */}}
{{- define "sallyport.podLabels" -}}
{{- $own := include "sallyport.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "sallyport" -}}
{{ toYaml (mergeOverwrite (dict) (default dict .root.Values.commonLabels) (default dict .values.podLabels) $own) }}
{{- end -}}

{{/* Metadata of a service's object. Extra labels may be given as "labels". */}}
{{- define "sallyport.metadata" -}}
name: {{ include "sallyport.serviceName" . }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "sallyport.labels" . | nindent 2 }}
{{- with .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
