package datadog

import (
	"encoding/binary"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

// through sends a request to an agent of its own, and gives what that has, by
// the names of the spans.
func through(t *testing.T, request *coltracepb.ExportTraceServiceRequest, variables ...string) map[string]peer.AgentSpan {
	t.Helper()
	a := peer.StartDatadogAgent(t)
	p := plugintest.Run(t, spec, plugintest.WithEnv(append(variables,
		"DD_TRACE_AGENT_URL="+a.URL(), "OTEL_EXPORTER_OTLP_ENDPOINT="+a.OTLPHTTP())...))
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

func spansOf(request *coltracepb.ExportTraceServiceRequest) []*tracepb.Span {
	var all []*tracepb.Span
	for _, r := range request.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			all = append(all, s.GetSpans()...)
		}
	}
	return all
}

// TestModesAgree: what the plugin makes of a span natively is what the agent
// makes of it by OTLP, but for what docs/datadog.md marks.
func TestModesAgree(t *testing.T) {
	request := corpus()
	native, otlp := through(t, request), through(t, request, "SERVE_DATADOG_MODE=otlp")
	for _, span := range spansOf(request) {
		name := span.GetName()
		got, want := native[name], otlp[name]
		for _, key := range []string{"process_id", "_dd.top_level", "_sampling_priority_v1"} {
			delete(got.Metrics, key)
		}
		for _, key := range []string{
			"_dd.hostname", "_dd.p.tid", "language", "runtime-id", "otel.resource.schema_url", "otel.scope.schema_url",
		} {
			delete(got.Meta, key)
		}
		delete(want.Meta, "_dd.p.dm")
		delete(want.Metrics, "rpc.grpc.status_code")
		got.Chunk, got.Protocol, got.ChunkTags = want.Chunk, want.Protocol, want.ChunkTags
		if change := differences[name]; change != nil {
			change(&want)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-by OTLP +native):\n%s", name, diff)
		}
	}
}

// differences turn what the agent makes of a span by OTLP into what arrives
// natively: the rows that have a star.
var differences = map[string]func(*peer.AgentSpan){
	"altered types": func(s *peer.AgentSpan) {
		for _, key := range []string{"texts", "ints"} {
			delete(s.Meta, key)
		}
		for _, key := range []string{"large", "small"} {
			delete(s.Metrics, key)
		}
		maps.Copy(s.Meta, map[string]string{"large": "9007199254740993", "small": "-9223372036854775808", "texts.0": "a", "texts.1": "b"})
		maps.Copy(s.Metrics, map[string]float64{"ints.0": 1, "ints.1": 2})
	},
	"control": func(s *peer.AgentSpan) {
		for _, key := range []string{"error", "span.name"} {
			s.Meta["otel.attribute."+key] = s.Meta[key]
			delete(s.Meta, key)
		}
		s.Meta["otel.attribute._dd.p.dm"] = "-4"
	},
	"failed": func(s *peer.AgentSpan) { s.Meta["error.message"] = "500 Internal Server Error" },
	"failed with a description": func(s *peer.AgentSpan) {
		s.Meta["error.message"] = s.Meta["error.msg"]
		delete(s.Meta, "error.msg")
	},
	"without a resource": func(s *peer.AgentSpan) {
		s.Hostname = "" // Datadog then takes the agent's
	},
	"thrown": func(s *peer.AgentSpan) {
		handled(s)
		maps.Copy(s.Meta, map[string]string{"error.message": "bad", "error.type": "ValueError", "error.stack": "at x\nat y"})
	},
	"handled": handled,
	"events": func(s *peer.AgentSpan) {
		delete(s.Meta, "events")
		s.Events = []peer.AgentEvent{
			{Name: "retry", Time: start + 5, Attributes: map[string]any{"n": int64(3), "why": "busy", "otel.dropped_attributes_count": int64(2)}},
			{},
		}
	},
	"links": func(s *peer.AgentSpan) {
		link := peer.AgentLink{Attributes: map[string]string{"kind": "follows", "n": "1"}, Tracestate: "a=b", Flags: 1<<31 | 1}
		link.TraceID, link.SpanID = linked()
		s.Links = []peer.AgentLink{link}
		s.Meta["_dd.span_links"] = linkedJSON()
	},
	"dropped": func(s *peer.AgentSpan) {
		maps.Copy(s.Metrics, map[string]float64{"otel.dropped_attributes_count": 1, "otel.dropped_events_count": 2, "otel.dropped_links_count": 3})
	},
}

func handled(s *peer.AgentSpan) {
	delete(s.Meta, "events")
	s.Events = []peer.AgentEvent{
		{Name: "exception", Time: start + 3, Attributes: map[string]any{"exception.type": "First", "exception.message": "one"}},
		{Name: "exception", Time: start + 4, Attributes: map[string]any{
			"exception.type": "ValueError", "exception.message": "bad", "exception.stacktrace": "at x\nat y",
		}},
	}
}

// TestProtocolsAgree: protocol 1.0 carries what 0.4 does.
func TestProtocolsAgree(t *testing.T) {
	request := corpus()
	old, v1 := through(t, request), through(t, request, "DD_TRACE_AGENT_PROTOCOL_VERSION=1.0")
	for _, span := range spansOf(request) {
		want, got := old[span.GetName()], v1[span.GetName()]
		if got.Protocol != peer.ProtocolV1 || want.Protocol != peer.ProtocolV04 {
			t.Fatalf("protocols are %s and %s", want.Protocol, got.Protocol)
		}
		got.Chunk, got.Protocol, got.ChunkTags = want.Chunk, want.Protocol, want.ChunkTags
		delete(want.Meta, "_dd.span_links") // the links themselves are there
		if want.Meta["span.kind"] == "unspecified" {
			delete(want.Meta, "span.kind") // which 1.0 has no word for
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-0.4 +1.0):\n%s", span.GetName(), diff)
		}
	}
}

// TestIdentity: who made a span is in the places where dd-trace-go writes the
// plugin's own process.
func TestIdentity(t *testing.T) {
	s := through(t, corpus(), "DD_SERVICE=fallback", "DD_ENV=test", "DD_VERSION=0", "DD_TAGS=team:none,zone:a")
	own, nobodys := s["bare internal"], s["without a resource"]
	for key, want := range map[string]string{
		"env": "prod", "version": "1.2.3", "_dd.hostname": "host-1", "runtime-id": "instance-1", "language": "go",
		"team": "shop", "zone": "a", "_dd.tags.process": "", "_dd.base_service": "",
	} {
		if own.Meta[key] != want {
			t.Errorf("%s is %q, want %q", key, own.Meta[key], want)
		}
	}
	if own.Service != "orders" || own.Metrics["process_id"] != 4711 || own.Hostname != "host-1" || own.Env != "prod" {
		t.Errorf("span is %+v", own)
	}
	for key, want := range map[string]string{"env": "test", "version": "0", "runtime-id": "", "language": "", "process_id": "", "team": "none"} {
		if nobodys.Meta[key] != want {
			t.Errorf("of nobody: %s is %q, want %q", key, nobodys.Meta[key], want)
		}
	}
	if nobodys.Service != "fallback" || nobodys.Env != "test" || nobodys.Hostname == "host-1" {
		t.Errorf("of nobody: span is %+v", nobodys)
	}
}
