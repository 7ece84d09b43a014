package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk/plugintest"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

// envPlugin makes the test binary the plugin.
const envPlugin = "PROCESSORS_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(envPlugin) != "" {
		main() // exits
	}
	os.Exit(m.Run())
}

// config has a processor of each kind of result: spans are dropped, edited and redacted.
var config = []byte(`
processors:
  - filter: {drop: [{name: "GET /health*"}]}
  - attributes: {actions: [{key: team, action: upsert, value: search}]}
  - redact: {}
`)

func TestConfiguredProcessorsRun(t *testing.T) {
	text := func(key, value string) *commonpb.KeyValue {
		return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
	}
	plugin := plugintest.Run(t, processors.Spec, plugintest.WithConfig(config))
	answer, err := plugin.Export(t.Context(), &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{
			{SpanId: []byte("01234567"), Name: "GET /healthz"},
			{SpanId: []byte("12345678"), Name: "POST /pay", Attributes: []*commonpb.KeyValue{text("password", "hunter2")}},
		}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"filter": 1}, answer.Filtered); diff != "" {
		t.Errorf("filtered (-want +got):\n%s", diff)
	}
	got := map[string]string{}
	for _, span := range plugin.Spans()[0].GetScopeSpans()[0].GetSpans() {
		got["name"] += span.GetName()
		for _, kv := range span.GetAttributes() {
			got[kv.GetKey()] = kv.GetValue().GetStringValue()
		}
	}
	if diff := cmp.Diff(map[string]string{"name": "POST /pay", "team": "search", "password": "[REDACTED]"}, got); diff != "" {
		t.Errorf("the span that is left (-want +got):\n%s", diff)
	}
}

func TestWithoutProcessorsItWarns(t *testing.T) {
	want := []plugintest.Diagnostic{{Path: "processors", Text: "the list is empty, so spans pass unchanged: list processors in the plugin's configuration"}}
	if diff := cmp.Diff(want, plugintest.Diagnose(t, processors.Spec)); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
	if got := plugintest.Diagnose(t, processors.Spec, plugintest.WithEnv("SERVE_RAY_CONTEXT=on")); len(got) > 0 {
		t.Errorf("with raycontext: %v", got)
	}
}

func TestConformance(t *testing.T) {
	plugintest.Conformance(t, plugintest.Binary(os.Args[0], envPlugin+"=yes", "GOCOVERDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0"),
		plugintest.WithConfig(config), plugintest.WithBadConfig([]byte("processors: [{paint: {}}]")), plugintest.WithEnv("SERVE_RAY_CONTEXT=on"))
}
