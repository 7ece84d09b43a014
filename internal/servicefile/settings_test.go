package servicefile

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each setting with its value and origin.
func TestSettings(t *testing.T) {
	env := map[string]string{
		"SERVE_HTTP_PORT": "80", "OTEL_TRACES_SAMPLER": "always_on", "SERVE_TRACING_PLUGIN_CONFIG": "b=b.yaml",
		"SERVE_TRACING_PLUGIN_GOMEMLIMIT": "b=1MiB",
	}
	f := Parse("f", []byte(`tracing_config:
  enabled: true
  sampling_ratio: 0.5
  queue_bytes: 8MiB
  plugins:
    a: {config: {secret: xyz}, limits: {memory: 5MiB}}
    b: {config: {secret: xyz}, limits: {memory: 6MiB}}
http_options: {port: 1, request_timeout_s: 1.5}
`), func(name string) string { return env[name] })
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	got := map[string]Setting{}
	for _, s := range f.Settings() {
		got[s.Key] = s
	}
	for _, want := range []Setting{
		{"name", "OTEL_SERVICE_NAME", "", "default"},
		{"tracing_config.enabled", "", "true", "f:2"},
		{"tracing_config.exporter_plugin", EnvPlugins, "console", "f:2"},
		{"tracing_config.sampling_ratio", "OTEL_TRACES_SAMPLER", "always_on", "environment OTEL_TRACES_SAMPLER"},
		{"tracing_config.queue_bytes", "SERVE_TRACING_QUEUE_BYTES", "8MiB", "f:4"},
		{"tracing_config.batch_age", "SERVE_TRACING_BATCH_AGE", "200ms", "default"},
		{"tracing_config.max_span_bytes", "SERVE_TRACING_MAX_SPAN_BYTES", "1MiB, at most a quarter of queue_bytes", "default"},
		{"tracing_config.plugins.a.config", "SERVE_TRACING_PLUGIN_CONFIG", "<17 bytes>", "f:6"},
		{"tracing_config.plugins.b.config", "SERVE_TRACING_PLUGIN_CONFIG", "b=b.yaml", "environment SERVE_TRACING_PLUGIN_CONFIG"},
		{"tracing_config.plugins.a.limits.memory", "SERVE_TRACING_PLUGIN_GOMEMLIMIT", "5MiB", "f:6"},
		{"tracing_config.plugins.b.limits.memory", "SERVE_TRACING_PLUGIN_GOMEMLIMIT", "b=1MiB", "environment SERVE_TRACING_PLUGIN_GOMEMLIMIT"},
		{"http_options.port", "SERVE_HTTP_PORT", "80", "environment SERVE_HTTP_PORT"},
		{"http_options.request_timeout_s", "SERVE_REQUEST_TIMEOUT", "1.5s", "f:8"},
	} {
		if diff := cmp.Diff(want, got[want.Key]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	env = map[string]string{"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
	for _, s := range f.Settings() {
		got[s.Key] = s
	}
	for _, want := range []Setting{
		{"tracing_config.enabled", "OTEL_SDK_DISABLED", "false", "environment OTEL_SDK_DISABLED"},
		{"tracing_config.sampling_ratio", "OTEL_TRACES_SAMPLER", "traceidratio, OTEL_TRACES_SAMPLER_ARG=0.25", "environment OTEL_TRACES_SAMPLER"},
	} {
		if diff := cmp.Diff(want, got[want.Key]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	env = nil
	for text, want := range map[string][2]Setting{
		"{exporter_plugin: console}": {
			{pathExporter, EnvPlugins, "console", "f:1"}, {pathFunction, EnvPlugins, "", "default"},
		},
		"{exporter_import_path: exporter:spans}": {
			{pathExporter, EnvPlugins, "", "default"}, {pathFunction, EnvPlugins, "python:exporter:spans", "f:1"},
		},
		"{exporter_plugin: console, exporter_import_path: exporter:spans}": {
			{pathExporter, EnvPlugins, "console", "f:1"}, {pathFunction, EnvPlugins, "python:exporter:spans", "f:1"},
		},
		"{enabled: true}": {{pathExporter, EnvPlugins, "console", "f:1"}, {pathFunction, EnvPlugins, "", "default"}},
		"{enabled: false, exporter_import_path: exporter:spans}": {
			{pathExporter, EnvPlugins, "", "default"}, {pathFunction, EnvPlugins, "", "default"},
		},
	} {
		for _, s := range Parse("f", []byte("tracing_config: "+text), func(string) string { return "" }).Settings() {
			got[s.Key] = s
		}
		if diff := cmp.Diff(want, [2]Setting{got[pathExporter], got[pathFunction]}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if slices.ContainsFunc(f.Settings(), func(s Setting) bool { return s.Key == "tracing_config.plugins.a.env" }) {
		t.Error("a plugin's key that nobody has set is there")
	}
}
