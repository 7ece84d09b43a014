package datadog

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/plugins/datadog/datadogexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
	"github.com/servetrace/servetrace/test/peers/peer"
)

var spec = pluginsdk.Spec{
	Name: "datadog", Env: datadogexporter.EnvPatterns(), Exporter: datadogexporter.New,
}

// through sends a request to an agent of its own, and returns the agent's spans by name.
func through(t *testing.T, request *coltracepb.ExportTraceServiceRequest, variables ...string) map[string]peer.AgentSpan {
	t.Helper()
	a := peer.StartDatadogAgent(t)
	variables = append(variables, "DD_TRACE_AGENT_URL="+a.URL(), "OTEL_EXPORTER_OTLP_ENDPOINT="+a.OTLPGRPC(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
	set(t, variables)
	p := plugintest.Run(t, spec, plugintest.WithEnv(variables...))
	answer, err := p.Export(t.Context(), request)
	if err != nil || !answer.Delivered() || answer.Rejected != 0 {
		t.Fatalf("answer is %v, %v", answer, err)
	}
	names := map[uint64]string{}
	for _, s := range spansOf(request) {
		names[binary.BigEndian.Uint64(s.GetSpanId())] = s.GetName()
	}
	spans := map[string]peer.AgentSpan{}
	for _, s := range a.WaitSpans(len(names)) {
		spans[names[s.SpanID]] = s
	}
	if len(spans) != len(names) {
		t.Errorf("the agent has %d spans, want %d", len(spans), len(names))
	}
	return spans
}

// set puts variables where a plugin finds them at its start.
func set(t *testing.T, variables []string) {
	t.Helper()
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

func spansOf(request *coltracepb.ExportTraceServiceRequest) []*tracepb.Span {
	var all []*tracepb.Span
	for _, r := range request.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			all = append(all, s.GetSpans()...)
		}
	}
	return all
}

// TestModesAgree: all parts of a span arrive in both modes, with either naming.
func TestModesAgree(t *testing.T) {
	request := corpus()
	native, otlp := through(t, request), through(t, request, "SERVE_DATADOG_MODE=otlp")
	for _, span := range spansOf(request) {
		name := span.GetName()
		got, want := native[name], otlp[name]
		if name == "control" { // an attribute "error" is data to the agent alone
			got.Error = want.Error
		}
		if diff := cmp.Diff(essence(want), essence(got)); diff != "" {
			t.Errorf("%s (-by OTLP +through dd-trace-go):\n%s", name, diff)
		}
		if got.Name == "" || got.Resource == "" {
			t.Errorf("%s: name %q, resource %q", name, got.Name, got.Resource)
		}
	}
}

// essence returns the parts of a span that do not depend on a table of names.
func essence(s peer.AgentSpan) peer.AgentSpan {
	return peer.AgentSpan{
		TraceID: s.TraceID, SpanID: s.SpanID, ParentID: s.ParentID, Start: s.Start, Duration: s.Duration,
		Service: s.Service, Error: s.Error,
	}
}

// TestIdentity: the resource names the origin of a span, and Datadog's variables supply
// missing values.
func TestIdentity(t *testing.T) {
	s := through(t, corpus(), "DD_SERVICE=fallback", "DD_ENV=test", "DD_VERSION=0", "DD_TAGS=team:none,zone:a")
	own, nobodys := s["bare internal"], s["without a resource"]
	for key, want := range map[string]string{
		"env": "prod", "version": "1.2.3", "runtime-id": "instance-1", "language": "go", "team": "shop", "zone": "a",
	} {
		if own.Meta[key] != want {
			t.Errorf("%s is %q, want %q", key, own.Meta[key], want)
		}
	}
	if own.Service != "orders" || own.Metrics["process_id"] != 4711 {
		t.Errorf("span is %+v", own)
	}
	if nobodys.Meta["team"] != "none" || nobodys.Service != "fallback" {
		t.Errorf("of nobody: span is %+v", nobodys)
	}
}
