{{/*
What all four services' pods have in common. Each Deployment adds its flags, ports and volumes.
All of these take a service, see _names.tpl.
*/}}

{{/* Absent with an autoscaler, and when null: then nobody but the autoscaler, or kubectl scale, sets them. */}}
{{- define "sallyport.replicas" -}}
{{- $scaled := and (hasKey .values "autoscaling") .values.autoscaling.enabled -}}
{{- if not (or $scaled (kindIs "invalid" .values.replicas)) -}}
replicas: {{ .values.replicas }}
{{- end -}}
{{- end -}}

{{- define "sallyport.image" -}}
{{- printf "%s/sallyport-%s:%s" .root.Values.image.registry .component (default .root.Chart.AppVersion .root.Values.image.tag) -}}
{{- end -}}

{{/* The pod, but for containers, volumes and the grace period. It meets the Pod Security Standard "restricted". */}}
{{- define "sallyport.pod" -}}
serviceAccountName: {{ include "sallyport.serviceName" . }}
automountServiceAccountToken: {{ include "sallyport.callsApiServer" . | eq "true" }}
# A Service called sallyport-… would otherwise put variables called SALLYPORT_… into the environment, where flags are read.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  # Keys are mounted readable for this group and nobody else.
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with include "sallyport.priorityClassName" . }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $own := dict "labelSelector" (dict "matchLabels" (include "sallyport.selector" $ | fromYaml)) "matchLabelKeys" (list "pod-template-hash") }}
  - {{- toYaml (ternary . (merge (deepCopy .) $own) (hasKey . "labelSelector")) | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "sallyport.priorityClassName" -}}
{{- if .values.priorityClassName -}}
{{- .values.priorityClassName | quote -}}
{{- else if .root.Values.priorityClass.create -}}
{{- include "sallyport.clusterName" .root -}}
{{- end -}}
{{- end -}}

{{/* The container, but for args, ports and volumeMounts. */}}
{{- define "sallyport.container" -}}
image: {{ include "sallyport.image" . | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
env:
  {{- include "sallyport.environment" . | nindent 2 }}
startupProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 2
  timeoutSeconds: 2
{{- with .values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sallyport.environment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- with .root.Values.tracing }}
{{- if .enabled }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ required "tracing.endpoint is needed when tracing.enabled is true" .endpoint | quote }}
- name: OTEL_TRACES_SAMPLER
  value: {{ .sampler }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ .samplerArg | quote }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME)
{{- end }}
{{- end }}
{{- with .values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Flags that every service has, and the user's own behind them. */}}
{{- define "sallyport.arguments" -}}
- --log-level={{ .root.Values.logging.level }}
- --log-format={{ .root.Values.logging.format }}
{{- range .values.args }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Surge first: an upgrade never has fewer pods than before. */}}
{{- define "sallyport.strategy" -}}
type: RollingUpdate
rollingUpdate:
  maxUnavailable: 0
  maxSurge: 1
{{- end -}}

{{/* The service's certificate. Not optional: an optional Secret that came late would stay away for a minute, and so
     would the pod's readiness. */}}
{{- define "sallyport.certificateVolume" -}}
- name: tls
  secret:
    secretName: {{ include "sallyport.serviceName" . }}-tls
    defaultMode: 0440
{{- end -}}

{{- define "sallyport.podMetadata" -}}
labels:
  {{- include "sallyport.podLabels" . | nindent 2 }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
