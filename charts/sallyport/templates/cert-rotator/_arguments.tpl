{{/* The flags of the cert-rotator, of which the install's test is another run. Takes a service, see _names.tpl. */}}
{{- define "sallyport.rotatorArguments" -}}
{{- $fullname := include "sallyport.fullname" .root -}}
- --admin-address=[::]:{{ .values.adminPort }}
- --namespace={{ .root.Release.Namespace }}
- --cluster-domain={{ .root.Values.clusterDomain }}
{{- range list "webhook" "mutator" "validator" }}
- --{{ . }}-service={{ $fullname }}-{{ . }}
- --{{ . }}-secret={{ $fullname }}-{{ . }}-tls
{{- end }}
- --ca-secret={{ $fullname }}-ca
- --ca-life={{ .values.caLife }}
- --leaf-life={{ .values.leafLife }}
- --key-algorithm={{ .values.keyAlgorithm }}
- --pods={{ range $key, $value := include "sallyport.releaseSelector" .root | fromYaml }}{{ $key }}={{ $value }},{{ end }}app.kubernetes.io/component
- --registration-configmap={{ $fullname }}-registration
- --owner-cluster-role={{ include "sallyport.clusterName" .root }}
- --owner-service-account={{ include "sallyport.serviceName" . }}
{{- with .values.injection }}
{{- if .enabled }}
{{- range .targets }}
- --inject-into={{ .kind }}/{{ .name }}
{{- end }}
{{- range .secrets }}
- --inject-from={{ .namespace }}/{{ .name }}
{{- end }}
- --inject-overlap={{ .overlap }}
{{- end }}
{{- end }}
{{ include "sallyport.arguments" . }}
{{- end -}}
