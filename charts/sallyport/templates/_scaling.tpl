{{/* How many pods of a service there are, and how many may be away. Both take a service, see _names.tpl. */}}

{{- define "sallyport.horizontalPodAutoscaler" -}}
{{- with .values.autoscaling -}}
{{- if .enabled -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "%s: autoscaling.minReplicas (%d) is above autoscaling.maxReplicas (%d)" $.component (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if not (dig "requests" "cpu" "" (default dict $.values.resources)) -}}
{{- fail (printf "%s: autoscaling on CPU needs resources.requests.cpu, which it is a percentage of" $.component) -}}
{{- end -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "sallyport.metadata" $ | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "sallyport.serviceName" $ }}
  minReplicas: {{ .minReplicas }}
  maxReplicas: {{ .maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .targetCPUUtilizationPercentage }}
  {{- with .behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sallyport.podDisruptionBudget" -}}
{{- if .values.podDisruptionBudget.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "sallyport.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .values.podDisruptionBudget.maxUnavailable }}
  # A pod that is not ready protects nobody, and a node must not be held up by it.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "sallyport.selector" . | nindent 6 }}
{{- end -}}
{{- end -}}
