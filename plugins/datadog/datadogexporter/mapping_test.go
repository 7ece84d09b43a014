package datadogexporter

import (
	"math"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// The whole table is held against the agent itself in test/peers/datadog; here
// is what it rests on, without a peer.

// kind changes the kind.
func kind(k tracepb.Span_SpanKind) func(*tracepb.Span) { return func(s *tracepb.Span) { s.Kind = k } }

// with gives a span attributes, in the order of their keys.
func with(attributes map[string]any) func(*tracepb.Span) {
	return func(s *tracepb.Span) { s.Attributes = keyValues(attributes) }
}

// send exports spans of a resource, and gives what the agent has, by span id.
func send(t *testing.T, info string, resource map[string]any, variables []string, spans ...*tracepb.Span) map[uint64]got {
	t.Helper()
	a := startAgent(t)
	a.info = info
	if err := export(t, open(t, a, variables...), batch(resource, spans...)); err != nil {
		t.Fatal(err)
	}
	all := map[uint64]got{}
	for _, s := range a.taken() {
		all[s.span] = s
	}
	return all
}

const idBase = 0xcc00000000000000 // of span

func TestIDsAndTimesAreExact(t *testing.T) {
	for _, info := range []string{infoV04, infoV1, infoOld, ""} {
		all := send(t, info, nil, []string{"DD_TRACE_AGENT_PROTOCOL_VERSION=1.0"},
			span(1, 3, 2), span(1, 2, 1, kind(tracepb.Span_SPAN_KIND_CLIENT)), span(1, 1, 0), span(2, 9, 8),
			span(3, 5, 6), span(3, 6, 5)) // each other's parents
		for id, want := range map[uint64]struct {
			trace  string
			parent uint64
		}{
			1: {"aa00000000000001bb00000000000001", 0}, 2: {"aa00000000000001bb00000000000001", idBase + 1},
			3: {"aa00000000000001bb00000000000001", idBase + 2}, 9: {"aa00000000000002bb00000000000002", idBase + 8},
			5: {"aa00000000000003bb00000000000003", idBase + 6}, 6: {"aa00000000000003bb00000000000003", idBase + 5},
		} {
			s := all[idBase+id]
			if s.trace != want.trace && s.meta["otel.trace_id"] != want.trace || s.parent != want.parent ||
				s.start != 1_700_000_000_000_000_001 || s.duration != 123 || s.priority != 1 {
				t.Errorf("%s: span %d is %+v", info, id, s)
			}
		}
		if all[idBase+1].chunk != all[idBase+3].chunk || all[idBase+1].chunk == all[idBase+9].chunk {
			t.Errorf("%s: a trace is not a chunk: %+v", info, all)
		}
	}
}

// TestAttributesAreData: none of them keeps, drops or fails a trace, or speaks
// to the agent.
func TestAttributesAreData(t *testing.T) {
	s := send(t, infoV04, nil, nil, span(1, 1, 0, with(map[string]any{
		"manual.drop": true, "manual.keep": true, "error": true, "span.name": "x", "_sampling_priority_v1": -1,
		"_dd.top_level": 0, "_dd.svc_src": "x", "sampling.priority": -1, "language": "cobol",
	})))[idBase+1]
	if s.failed || s.priority != 1 || s.name != "Internal" || s.metrics["_dd.top_level"] != 1 {
		t.Errorf("span is %+v", s)
	}
	for key, want := range map[string]string{
		"manual.drop": "true", "manual.keep": "true", "otel.attribute.error": "true", "otel.attribute.span.name": "x",
		"otel.attribute._dd.svc_src": "x",
	} {
		if s.meta[key] != want {
			t.Errorf("%s is %q, want %q", key, s.meta[key], want)
		}
	}
	if s.metrics["otel.attribute._sampling_priority_v1"] != -1 || s.metrics["sampling.priority"] != -1 {
		t.Errorf("numbers are %v", s.metrics)
	}
}

func TestValues(t *testing.T) {
	s := send(t, infoOld, nil, nil, span(1, 1, 0, with(map[string]any{
		"large": 1<<53 + 1, "least": math.MinInt64, "fits": 1<<53 - 1, "float": 0.5, "texts": []any{"a", "b"}, "flags": []any{true},
		"none": []any{}, "mixed": []any{"a", 1, []byte{1}}, "map": map[string]any{"k": 0.5},
	}), func(s *tracepb.Span) {
		s.Events = []*tracepb.Span_Event{{TimeUnixNano: 7, Name: "e", Attributes: keyValues(map[string]any{"n": 1})}}
		// JSON has no form for it, and dd-trace-go would leave out all events.
		s.Events[0].Attributes = append(s.Events[0].Attributes, keyValues(map[string]any{"f": 0.0})...)
		s.Events[0].Attributes[1].Value = anyValue(math.NaN())
	}))[idBase+1]
	for key, want := range map[string]string{
		"large": "9007199254740993", "least": "-9223372036854775808", "texts.0": "a", "texts.1": "b", "flags.0": "true",
		"none": "[]", "mixed": `["a",1,"AQ=="]`, "map": `{"k":0.5}`,
		"events": `[{"name":"e","time_unix_nano":7,"attributes":{"f":"NaN","n":1}}]`,
	} {
		if s.meta[key] != want {
			t.Errorf("%s is %q, want %q", key, s.meta[key], want)
		}
	}
	if s.metrics["fits"] != 1<<53-1 || s.metrics["float"] != 0.5 {
		t.Errorf("numbers are %v", s.metrics)
	}
}

// TestPayloadsHaveOneMaker: the agent takes environment, version and host of a
// payload from one of its spans.
func TestPayloadsHaveOneMaker(t *testing.T) {
	a := startAgent(t)
	request := &coltracepb.ExportTraceServiceRequest{}
	for i, env := range []string{"prod", "test", "test"} {
		request.ResourceSpans = append(request.ResourceSpans, &tracepb.ResourceSpans{
			Resource:   &resourcepb.Resource{Attributes: keyValues(map[string]any{"deployment.environment.name": env})},
			ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{span(byte(i+1), byte(i+1), 0)}}},
		})
	}
	if err := export(t, open(t, a), encoded(request)); err != nil {
		t.Fatal(err)
	}
	var counts []string
	for _, head := range a.heads {
		counts = append(counts, head.Get(headerTraceCount))
	}
	if diff := gocmp.Diff([]string{"1", "2"}, counts); diff != "" {
		t.Errorf("chunks of the payloads (-want +got):\n%s", diff)
	}
}

// TestPeers: other names for services, and for those that are called.
func TestPeers(t *testing.T) {
	variables := []string{
		"DD_SERVICE_MAPPING=legacy:modern", "DD_TRACE_PEER_SERVICE_DEFAULTS_ENABLED=true", "DD_TRACE_PEER_SERVICE_MAPPING=shop:orders-db",
	}
	client := kind(tracepb.Span_SPAN_KIND_CLIENT)
	for _, c := range []struct {
		said                   map[string]any
		peer, source, remapped string
	}{
		{map[string]any{"db.system": "mysql", "db.namespace": "shop", "out.host": "h"}, "orders-db", "db.name", "shop"},
		{map[string]any{"db.system": "cassandra", "db.name": "shop", "out.host": "h"}, "", "", ""},
		{map[string]any{"aws_service": "s3", "bucketname": "b"}, "b", "bucketname", ""},
		{map[string]any{"messaging.system": "kafka", "messaging.kafka.bootstrap.servers": "k"}, "k", "messaging.kafka.bootstrap.servers", ""},
		{map[string]any{"rpc.system": "grpc", "peer.hostname": "h"}, "h", "peer.hostname", ""},
		{map[string]any{"out.host": "h", "network.destination.name": "n"}, "n", "network.destination.name", ""},
		{map[string]any{"peer.service": "said", "out.host": "h"}, "said", "peer.service", ""},
		{map[string]any{"out.host": 1}, "", "", ""},
	} {
		all := send(t, infoV04, map[string]any{"service.name": "legacy"}, variables, span(1, 1, 0, client, with(c.said)), span(2, 2, 0, with(c.said)))
		s, internal := all[idBase+1], all[idBase+2]
		if s.service != "modern" || s.meta["peer.service"] != c.peer || s.meta["_dd.peer.service.source"] != c.source ||
			s.meta["_dd.peer.service.remapped_from"] != c.remapped {
			t.Errorf("%v: %s calls %v", c.said, s.service, s.meta)
		}
		if _, said := c.said["peer.service"]; internal.meta["peer.service"] != "" && !said {
			t.Errorf("%v: a span that calls nobody calls %s", c.said, internal.meta["peer.service"])
		}
	}
}

// TestOneTag: where several ways lead to one tag, one of them counts, and no
// payload has a key twice.
func TestOneTag(t *testing.T) {
	request := &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: keyValues(map[string]any{"k": "resource", "http.method": "resource", "process_id": 7})},
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Attributes: keyValues(map[string]any{"env": "scope", "otel.status_code": "scope"})},
			Spans: []*tracepb.Span{span(1, 1, 0, with(map[string]any{
				"http.method": "OLD", "http.request.method": "NEW", "list": []any{"a"}, "list.0": "own", "env": 5, "process_id": 8, "k": 9,
			}))},
		}},
	}}}
	request.ResourceSpans[0].ScopeSpans[0].Spans[0].Attributes = append(
		request.ResourceSpans[0].ScopeSpans[0].Spans[0].Attributes, keyValues(map[string]any{"k": 10})...)
	a := startAgent(t)
	if err := export(t, open(t, a, "DD_TAGS=k:all,general:all", "DD_ENV=all"), encoded(request)); err != nil {
		t.Fatal(err)
	}
	s := a.taken()[0]
	for key, want := range map[string]string{
		"env": "scope", "otel.status_code": "scope", "http.method": "NEW", "list.0": "a", "general": "all", "k": "", "process_id": "",
	} {
		if got := s.meta[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if number, there := s.metrics["process_id"]; s.metrics["k"] != 10 || there {
		t.Errorf("k is %v, process_id %v", s.metrics["k"], number)
	}
}

func TestSampledAt(t *testing.T) {
	for member, want := range map[string]float64{"th:8": 0.5, "th:0": 1, "rv:1;th:c": 0.25, "p:2;r:5": 0.25, "p:0": 1} {
		if rate, ok := sampledAt(member); !ok || rate != want {
			t.Errorf("%q: %v, %v, want %v", member, rate, ok, want)
		}
	}
	for _, member := range []string{"", "th:", "th:xyz", "th:123456789012345", "p:63", "p:-1"} {
		if rate, ok := sampledAt(member); ok {
			t.Errorf("%q: %v, want none", member, rate)
		}
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", maxResource+1)
	s := send(t, infoV04, map[string]any{"service.name": "unknown_service:go", "k8s.node.name": "n", "k8s.cluster.name": "c"},
		[]string{"DD_SERVICE=orders", "DD_TAGS=a:1 b:2", "DD_SERVICE_MAPPING=legacy:modern"},
		span(1, 1, 0, with(map[string]any{"resource.name": long, "operation.name": "My Op"})),
		span(2, 2, 0, kind(tracepb.Span_SPAN_KIND_CLIENT), with(map[string]any{"db.system.name": "mysql", "service.name": "legacy"})))
	one, two := s[idBase+1], s[idBase+2]
	if one.service != "orders" || one.resource != long[:maxResource] || one.name != "my_op" || one.typ != "custom" ||
		one.meta["_dd.hostname"] != "n-c" || one.meta["a"] != "1" || one.meta["b"] != "2" {
		t.Errorf("span is %+v", one)
	}
	if two.service != "modern" || two.name != "mysql.query" || two.typ != "sql" || two.resource != "span 2" {
		t.Errorf("span is %+v", two)
	}
}
