{{- define "taskgraph.name" -}}
{{- if contains "taskgraph" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-taskgraph{{ end }}
{{- end }}

{{- define "taskgraph.labels" -}}
app.kubernetes.io/name: taskgraph
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "taskgraph.secret" -}}
{{ .Values.store.existingSecret | default (printf "%s-store" (include "taskgraph.name" .)) }}
{{- end }}

{{- /* Labels of a pod. root; component: what it is. */ -}}
{{- define "taskgraph.podLabels" -}}
{{ include "taskgraph.labels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- if .root.Values.workloadIdentity.clientId }}
azure.workload.identity/use: "true"
{{- end }}
{{- end }}

{{- /* The specification of a pod. root; args: of taskgraph; and image, resources, pod, port, account, restart where given. */ -}}
{{- define "taskgraph.pod" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ include "taskgraph.name" .root }}-{{ .account }}
{{- if not .token }}
automountServiceAccountToken: false
{{- end }}
terminationGracePeriodSeconds: 30
{{- with .restart }}
restartPolicy: {{ . }}
{{- end }}
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: taskgraph
    image: {{ .image | default (printf "%s:%s" $values.image.repository ($values.image.tag | default .root.Chart.AppVersion)) | quote }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: {{- toYaml .args | nindent 6 }}
    env:
      - name: TASKGRAPH_STORE
        {{- if $values.store.url }}
        value: {{ $values.store.url | quote }}
        {{- else }}
        valueFrom: {secretKeyRef: {name: {{ include "taskgraph.secret" .root }}, key: TASKGRAPH_STORE}}
        {{- end }}
      - {name: TASKGRAPH_PREFIX, value: {{ $values.prefix | quote }}}
      - {name: TASKGRAPH_LOG_FORMAT, value: json}
      {{- with $values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with .port }}
    ports:
      - {name: http, containerPort: {{ . }}, protocol: TCP}
    readinessProbe:
      tcpSocket: {port: http}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
    {{- with .resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- with .pod }}
{{ toYaml . }}
{{- end }}
{{- end }}
