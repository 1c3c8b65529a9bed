{{- define "protoquad.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "protoquad.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "protoquad.labels" -}}
{{ include "protoquad.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "protoquad.secret" -}}
{{- .Values.secret.existing | default (include "protoquad.name" .) -}}
{{- end -}}

{{- define "protoquad.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "protoquad.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* A pod starts again when its settings or the chart's own Secret change. */}}
{{- define "protoquad.annotations" -}}
checksum/settings: {{ include (print $.Template.BasePath "/configmap.yaml") . | sha256sum }}
checksum/secret: {{ include (print $.Template.BasePath "/secret.yaml") . | sha256sum }}
{{- end -}}

{{/* What the API, the workers and the migration have in common. */}}
{{- define "protoquad.pod" -}}
serviceAccountName: {{ include "protoquad.account" . }}
automountServiceAccountToken: false
# Kubernetes would set PROTOQUAD_PORT to the address of a Service named protoquad, which is not a port.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: {{ .Values.scratch.tmp }}}
  - name: home
    emptyDir: {sizeLimit: {{ .Values.scratch.home }}}
  - name: cache
    {{- if .Values.cache.persistent }}
    persistentVolumeClaim: {claimName: {{ .Values.cache.existingClaim | default (printf "%s-cache" (include "protoquad.name" .)) }}}
    {{- else }}
    emptyDir: {sizeLimit: {{ .Values.cache.size }}}
    {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The environment is last, so that a container can add to it. */}}
{{- define "protoquad.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: home, mountPath: /var/lib/protoquad}
  - {name: cache, mountPath: /var/cache/protoquad}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
envFrom:
  - configMapRef: {name: {{ include "protoquad.name" . }}}
env:
  - name: PROTOQUAD_DATABASE_URL
    valueFrom: {secretKeyRef: {name: {{ include "protoquad.secret" . }}, key: database-url}}
  - name: PROTOQUAD_BROKER_URL
    valueFrom: {secretKeyRef: {name: {{ include "protoquad.secret" . }}, key: broker-url, optional: true}}
{{- end -}}

{{/* Whoever starts first brings the tables to this release; the others wait for it and find it done. */}}
{{- define "protoquad.migrate" -}}
- name: migrate
  {{- include "protoquad.container" . | nindent 2 }}
  args: [migrate]
  resources:
    requests: {cpu: 100m, memory: 256Mi}
    limits: {memory: 1Gi}
{{- end -}}
