{{- define "autotuner.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "autotuner.account" -}}
{{- default (include "autotuner.name" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "autotuner.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end }}

{{- define "autotuner.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "autotuner.labels" -}}
{{ include "autotuner.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "autotuner.namespaces" -}}
{{- $wanted := .Values.targets.namespaces }}
{{- if not $wanted }}{{- $wanted = list .Release.Namespace }}{{- end }}
{{- join "," $wanted }}
{{- end }}

{{- define "autotuner.environment" -}}
- name: AUTOTUNER_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.database.secret | quote }}, key: {{ .Values.database.key | quote }}}}
- name: AUTOTUNER_HOLDER
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: AUTOTUNER_ACTOR
  value: {{ include "autotuner.account" . | quote }}
{{- range $name, $value := .Values.settings }}
- name: AUTOTUNER_{{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- range $name, $from := .Values.secretSettings }}
- name: AUTOTUNER_{{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $from.secret | quote }}, key: {{ $from.key | quote }}}}
{{- end }}
{{- end }}

{{/* A pod's spec but for what it runs: part, words (the command's arguments), resources, account. */}}
{{- define "autotuner.pod" -}}
{{- $root := .root -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: {{ .token }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: {{ .part }}
    image: {{ include "autotuner.image" $root | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: {{- toYaml .words | nindent 6 }}
    env: {{- include "autotuner.environment" $root | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    {{- with .resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .probes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 256Mi}
{{- with $root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
