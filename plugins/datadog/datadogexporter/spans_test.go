package datadogexporter

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
)

// with gives a span attributes.
func with(attributes map[string]any) func(*tracepb.Span) {
	return func(s *tracepb.Span) { s.Attributes = append(s.Attributes, keyValues(attributes)...) }
}

func kind(k tracepb.Span_SpanKind) func(*tracepb.Span) {
	return func(s *tracepb.Span) { s.Kind = k }
}

// one sends a batch of a span and returns the span that the agent got.
func one(t *testing.T, a *fakeAgent, e pluginsdk.Exporter, b *pluginsdk.Batch) got {
	t.Helper()
	before := len(a.taken())
	if err := export(t, e, b); err != nil {
		t.Fatal(err)
	}
	all := a.taken()
	if len(all) != before+1 {
		t.Fatalf("the agent has %d spans more, want 1", len(all)-before)
	}
	return all[before]
}

// TestWhatAUserSees: the fields of a span that Datadog lists, counts and finds it
// by.
func TestWhatAUserSees(t *testing.T) {
	a := startAgent(t)
	e := open(t, a, "DD_TAGS=team:carts,answer:from-tags")
	s := one(t, a, e, batch(map[string]any{
		"service.name": "orders", "service.version": "1.2.3", "deployment.environment.name": "prod",
		"host.name": "host-1", "telemetry.sdk.language": "python", "process.pid": 4242, "service.instance.id": "i-1",
	}, span(1, 2, 0, kind(tracepb.Span_SPAN_KIND_SERVER), with(map[string]any{
		"http.request.method": "GET", "http.route": "/users/{id}", "http.response.status_code": 503,
		"answer": 42, "big": 1<<53 + 1, "share": 0.5, "yes": true, "list": []any{"a", "b"},
		"map": map[string]any{"k": []any{1, "x"}}, "bytes": []byte("hi"),
	}), func(s *tracepb.Span) {
		s.Name = "GET /users/{id}"
		s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "it broke"}
		s.Events = []*tracepb.Span_Event{{TimeUnixNano: 1_700_000_000_000_000_077, Name: "exception", Attributes: keyValues(map[string]any{
			"exception.type": "Boom", "exception.message": "boom", "exception.stacktrace": "at main", "n": 7,
		})}}
		s.Links = []*tracepb.Span_Link{{
			TraceId: []byte("0123456789abcdef"), SpanId: []byte("01234567"), Attributes: keyValues(map[string]any{"why": "because"}),
		}}
	})))

	want := got{
		trace: "aa00000000000001bb00000000000001", span: 0xcc00000000000002,
		name: "http.server.request", service: "orders", resource: "GET /users/{id}", typ: "web",
		start: 1_700_000_000_000_000_001, duration: 123, failed: true, priority: 1, chunk: s.chunk,
	}
	fields := s
	fields.meta, fields.metrics, fields.links, fields.events = nil, nil, nil, nil
	if diff := gocmp.Diff(want, fields, gocmp.AllowUnexported(got{})); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	for key, want := range map[string]string{
		"span.kind": "server", "env": "prod", "version": "1.2.3", "language": "python", "runtime-id": "i-1",
		"http.request.method": "GET", "http.route": "/users/{id}", "http.status_code": "503", "host.name": "host-1",
		"error.message": "it broke", "error.type": "Boom", "error.stack": "at main",
		"big": "9007199254740993", "yes": "true", "list.0": "a", "list.1": "b", "bytes": "aGk=", "team": "carts",
		"_dd.p.tid": "aa00000000000001", "_dd.p.dm": "-1",
	} {
		if s.meta[key] != want {
			t.Errorf("tag %s is %q, want %q", key, s.meta[key], want)
		}
	}
	if !strings.Contains(s.meta["map"], `"k"`) {
		t.Errorf("tag map is %q, want JSON", s.meta["map"])
	}
	for key, want := range map[string]float64{"answer": 42, "share": 0.5, "process_id": 4242, "_dd.top_level": 1} {
		if s.metrics[key] != want {
			t.Errorf("number %s is %v, want %v", key, s.metrics[key], want)
		}
	}
	for _, key := range []string{"error.handling_stack", "_dd.base_service"} {
		if s.meta[key] != "" {
			t.Errorf("the span has %s=%s, which is the plugin's", key, s.meta[key])
		}
	}
	if len(s.events) != 1 || s.events[0].Name != "exception" || s.events[0].TimeUnixNano != 1_700_000_000_000_000_077 ||
		s.events[0].Attributes["n"].GetIntValue() != 7 {
		t.Errorf("events are %+v", s.events)
	}
	if len(s.links) != 1 || s.links[0].TraceIDHigh != binary.BigEndian.Uint64([]byte("01234567")) ||
		s.links[0].TraceID != binary.BigEndian.Uint64([]byte("89abcdef")) || s.links[0].Attributes["why"] != "because" {
		t.Errorf("links are %+v", s.links)
	}
}

// TestNamesAndTypes: operation name and type by kind and attributes.
func TestNamesAndTypes(t *testing.T) {
	const server, client, consumer = tracepb.Span_SPAN_KIND_SERVER, tracepb.Span_SPAN_KIND_CLIENT, tracepb.Span_SPAN_KIND_CONSUMER
	a := startAgent(t)
	e := open(t, a)
	for i, c := range []struct {
		kind       tracepb.Span_SpanKind
		attributes map[string]any
		name, typ  string
	}{
		{server, nil, "server.request", "web"},
		{client, map[string]any{"http.request.method": "GET"}, "http.client.request", "http"},
		{client, map[string]any{"db.system": "postgresql"}, "postgresql.query", "db"},
		{consumer, map[string]any{"messaging.system": "kafka", "messaging.operation": "process"}, "kafka.process", "queue"},
		{tracepb.Span_SPAN_KIND_INTERNAL, nil, "internal", ""},
		{server, map[string]any{"operation.name": "mine", "span.type": "sql", "resource.name": "theirs"}, "mine", "sql"},
		{client, map[string]any{"rpc.system": "grpc"}, "grpc.client.request", "http"},
		// dd-trace-go reads these as text, and would panic on a number.
		{client, map[string]any{"db.system": 5, "messaging.system": 6, "network.protocol.name": true}, "5.query", "db"},
	} {
		s := one(t, a, e, batch(nil, span(byte(i+1), byte(i+1), 0, kind(c.kind), with(c.attributes))))
		if s.name != c.name || s.typ != c.typ {
			t.Errorf("%v %v: name %q, type %q, want %q, %q", c.kind, c.attributes, s.name, s.typ, c.name, c.typ)
		}
	}
}

// TestTracestateIsATag: the tag has the name that the agent gives it for OTLP.
func TestTracestateIsATag(t *testing.T) {
	a := startAgent(t)
	e := open(t, a)
	const state = "dd=s:1;t.dm:-0,vendor=x"
	s := one(t, a, e, batch(nil, span(1, 2, 3, func(s *tracepb.Span) { s.TraceState = state })))
	if got := s.meta["w3c.tracestate"]; got != state {
		t.Errorf("the tag is %q, want %q", got, state)
	}
}

// TestControlKeys: attributes by whose names a tracer talks to the agent change
// neither ids nor priorities.
func TestControlKeys(t *testing.T) {
	a := startAgent(t)
	s := one(t, a, open(t, a), batch(nil, span(1, 2, 0, with(map[string]any{
		"_dd.p.tid": "640cfd8d00000000", "_sampling_priority_v1": -1, "_sample_rate": 0.5, "_dd.p.dm": "-4",
	}))))
	if s.trace != "aa00000000000001bb00000000000001" || s.priority != 1 || s.metrics[sampleRate] != 0 || s.meta["_dd.p.dm"] != "-1" ||
		s.meta["otel.attribute._dd.p.tid"] != "640cfd8d00000000" {
		t.Errorf("the agent has %+v", s)
	}
}

// TestChunks: spans of a trace in one batch are one chunk, with parents as they
// are; a span whose parent is in no batch, or on a circle, arrives, too.
func TestChunks(t *testing.T) {
	a := startAgent(t)
	e := open(t, a)
	if err := export(t, e, batch(nil,
		span(1, 3, 2), span(1, 2, 1), span(1, 1, 0), // the parent comes last, as spans end
		span(2, 5, 9), span(2, 6, 9), // two of a parent that is elsewhere
		span(3, 7, 8), span(3, 8, 7), // a circle
	)); err != nil {
		t.Fatal(err)
	}
	chunks, topLevels := map[int]int{}, map[uint64]float64{}
	for _, s := range a.taken() {
		chunks[s.chunk]++
		topLevels[s.span&0xff] = s.metrics[topLevel]
		if want := map[uint64]uint64{1: 0, 2: 1, 3: 2, 5: 9, 6: 9, 7: 8, 8: 7}[s.span&0xff]; s.parent&0xff != want {
			t.Errorf("the parent of span %d is %d, want %d", s.span&0xff, s.parent&0xff, want)
		}
	}
	if diff := gocmp.Diff([]int{2, 2, 3}, slices.Sorted(maps.Values(chunks))); diff != "" {
		t.Errorf("spans by chunk (-want +got):\n%s", diff)
	}
	if topLevels[1] != 1 || topLevels[2] != 0 || topLevels[5] != 0 {
		t.Errorf("work enters the service at %v, want at span 1 alone", topLevels)
	}
}

// TestService: Datadog's variables supply values that the resource lacks.
func TestService(t *testing.T) {
	a := startAgent(t)
	e := open(t, a, "DD_SERVICE=fallback", "DD_ENV=staging", "DD_VERSION=9", "DD_SERVICE_MAPPING=old:new")
	for i, c := range []struct{ resource, want string }{
		{"", "fallback"}, {"unknown_service:main", "fallback"}, {"orders", "orders"}, {"old", "new"},
	} {
		s := one(t, a, e, batch(map[string]any{"service.name": c.resource}, span(byte(i+1), byte(i+1), 0)))
		if s.service != c.want || s.meta["env"] != "staging" {
			t.Errorf("service %q is shown as %q, env %q, want %q, staging", c.resource, s.service, s.meta["env"], c.want)
		}
	}
}

// now makes spans of now, for which statistics are computed in time.
func now(s *tracepb.Span) {
	s.StartTimeUnixNano = uint64(time.Now().UnixNano())
	s.EndTimeUnixNano = s.GetStartTimeUnixNano() + 1000
}

// requests is a batch of n traces of a server's span and a child.
func requests(from, n int, change ...func(*tracepb.Span)) *pluginsdk.Batch {
	spans := make([]*tracepb.Span, 0, 2*n)
	for i := range n {
		for child := range 2 {
			s := span(1, 1, 0, append([]func(*tracepb.Span){now}, change...)...)
			id := uint64(from+i+1) * 0x9e3779b97f4a7c15
			binary.BigEndian.PutUint64(s.GetTraceId()[8:], id)
			binary.BigEndian.PutUint64(s.GetSpanId(), id+uint64(child))
			s.Kind = tracepb.Span_SPAN_KIND_SERVER
			if child == 1 {
				s.ParentSpanId = binary.BigEndian.AppendUint64(nil, id)
				s.Kind, s.Name = tracepb.Span_SPAN_KIND_INTERNAL, fmt.Sprint("child ", i)
			}
			spans = append(spans, s)
		}
	}
	return batch(map[string]any{"service.name": "orders"}, spans...)
}
