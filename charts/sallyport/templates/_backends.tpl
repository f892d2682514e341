{{/* What the mutator and the validator share: both load policies and serve gRPC. All take a service, see _names.tpl. */}}

{{- define "sallyport.backendDeployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "sallyport.metadata" . | nindent 2 }}
spec:
  {{- with include "sallyport.replicas" . }}
  {{- . | nindent 2 }}
  {{- end }}
  revisionHistoryLimit: 3
  strategy:
    {{- include "sallyport.strategy" . | nindent 4 }}
  selector:
    matchLabels:
      {{- include "sallyport.selector" . | nindent 6 }}
  template:
    metadata:
      {{- include "sallyport.podMetadata" . | nindent 6 }}
    spec:
      {{- include "sallyport.pod" . | nindent 6 }}
      # It goes on serving for 35 s, until every webhook has looked its name up again.
      terminationGracePeriodSeconds: 60
      containers:
        - name: {{ .component }}
          {{- include "sallyport.container" . | nindent 10 }}
          args:
            - --listen=[::]:9443
            - --admin-address=[::]:{{ .values.adminPort }}
            - --tls-dir=/etc/sallyport/tls
            - --policy-dir=/etc/sallyport/policies
            - --client-name={{ include "sallyport.clientName" .root }}
            {{- if include "sallyport.asksAuthorizer" . }}
            - --authorizer=api-server
            {{- end }}
            {{- include "sallyport.arguments" . | nindent 12 }}
          ports:
            - {name: grpc, containerPort: 9443}
            - {name: admin, containerPort: {{ .values.adminPort }}}
          volumeMounts:
            - {name: tls, mountPath: /etc/sallyport/tls, readOnly: true}
            - {name: policies, mountPath: /etc/sallyport/policies, readOnly: true}
      volumes:
        {{- include "sallyport.certificateVolume" . | nindent 8 }}
        # Every recipe's ConfigMap is there, empty while the recipe is off: switching one changes no pod, so none is restarted.
        - name: policies
          projected:
            defaultMode: 0444
            sources:
              {{- range (include "sallyport.recipeNames" .root | fromJsonArray) }}
              - configMap: {name: {{ include "sallyport.fullname" $.root }}-recipe-{{ . }}}
              {{- end }}
              - configMap: {name: {{ include "sallyport.fullname" .root }}-policies}
{{- end -}}

{{/* Two Services. Headless: the webhook sees every pod and chooses by itself. Pods that are not ready stay out of DNS: one
     that starts has no policies yet, one that ends serves on but should get nothing new. And one with an address, the
     webhook's fallback: cluster DNS may remember for 30 s that the headless one had no pods, or had others. */}}
{{- define "sallyport.backendServices" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "sallyport.metadata" . | nindent 2 }}
spec:
  clusterIP: None
  {{- include "sallyport.backendEndpoints" . | nindent 2 }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "sallyport.metadata" (dict "root" .root "component" .component "values" .values "suffix" "-ip") | nindent 2 }}
spec:
  type: ClusterIP
  {{- include "sallyport.backendEndpoints" . | nindent 2 }}
{{- end -}}

{{- define "sallyport.backendEndpoints" -}}
selector:
  {{- include "sallyport.selector" . | nindent 2 }}
ports:
  - name: grpc
    port: 9443
    targetPort: grpc
    protocol: TCP
    appProtocol: grpc
{{- end -}}
