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
- --lease={{ include "sallyport.serviceName" . }}
{{- with include "sallyport.brought" .root | fromYaml }}
{{- range list "webhook" "mutator" "validator" }}
- --brought-{{ . }}-secret={{ get $.values.brought (printf "%sSecret" .) }}
{{- end }}
{{- with .bundleConfigMap }}
- --brought-bundle={{ . }}
{{- end }}
{{- end }}
- --pods={{ range $key, $value := include "sallyport.releaseSelector" .root | fromYaml }}{{ $key }}={{ $value }},{{ end }}app.kubernetes.io/component
- --registration-configmap={{ $fullname }}-registration
{{- if .root.Values.registration.promote }}
- --promote
{{- end }}
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

{{/* What somebody else issues, as in the values; nothing where the cert-rotator issues. All three, or none. */}}
{{- define "sallyport.brought" -}}
{{- $brought := .Values.certRotator.brought | default dict -}}
{{- $secrets := compact (list $brought.webhookSecret $brought.mutatorSecret $brought.validatorSecret) -}}
{{- if $secrets -}}
{{- if ne (len (uniq $secrets)) 3 -}}
{{- fail "certRotator.brought: webhookSecret, mutatorSecret and validatorSecret have to name three Secrets, or none" -}}
{{- end -}}
{{- toYaml $brought -}}
{{- end -}}
{{- end -}}
