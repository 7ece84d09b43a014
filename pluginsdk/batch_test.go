package pluginsdk_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/servetrace/servetrace/pluginsdk"
)

// richRequest has a span with every field, and a plain one of another resource.
func richRequest() *coltracepb.ExportTraceServiceRequest {
	number := &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: 7}}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{
		{
			SchemaUrl: "https://resource",
			Resource:  &resourcepb.Resource{Attributes: []*commonpb.KeyValue{text("service.name", "shop")}, DroppedAttributesCount: 6},
			ScopeSpans: []*tracepb.ScopeSpans{{
				SchemaUrl: "https://scope",
				Scope:     &commonpb.InstrumentationScope{Name: "lib", Version: "v1", Attributes: []*commonpb.KeyValue{text("in", "scope")}, DroppedAttributesCount: 7},
				Spans: []*tracepb.Span{{
					TraceId: []byte("0123456789abcdef"), SpanId: []byte("01234567"), ParentSpanId: []byte("89abcdef"),
					TraceState: "a=1,b=2", Flags: 0x301, Name: "GET /", Kind: tracepb.Span_SPAN_KIND_SERVER,
					StartTimeUnixNano: 1_000_000_001, EndTimeUnixNano: 2_000_000_002,
					Attributes:             []*commonpb.KeyValue{text("user", "ann"), {Key: "n", Value: number}},
					DroppedAttributesCount: 1, DroppedEventsCount: 2, DroppedLinksCount: 3,
					Events: []*tracepb.Span_Event{{
						TimeUnixNano: 1_500_000_000, Name: "exception",
						Attributes: []*commonpb.KeyValue{text("exception.type", "E")}, DroppedAttributesCount: 4,
					}},
					Links: []*tracepb.Span_Link{{
						TraceId: []byte("fedcba9876543210"), SpanId: []byte("76543210"), TraceState: "c=3", Flags: 1,
						Attributes: []*commonpb.KeyValue{text("why", "batch")}, DroppedAttributesCount: 5,
					}},
					Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "broken"},
				}},
			}},
		},
		{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "plain"}}}}},
	}}
}

func TestSpanReadsEveryField(t *testing.T) {
	batch := pluginsdk.NewBatch(encode(t, richRequest()))
	var got []map[string]any
	for span := range batch.Spans() {
		got = append(got, fieldsOf(span))
	}
	want := []map[string]any{
		{
			"trace": "30313233343536373839616263646566", "span": "3031323334353637", "parent": "3839616263646566",
			"remote": "true true", "flags": "01", "state": "a=1,b=2", "name": "GET /", "kind": "server",
			"start": "1970-01-01T00:00:01.000000001Z", "end": "1970-01-01T00:00:02.000000002Z", "status": "Error broken",
			"attributes": []string{"user=ann", "n=7"}, "dropped": "1 2 3",
			"events":   []string{"exception 1970-01-01T00:00:01.5Z [exception.type=E] 4"},
			"links":    []string{"66656463626139383736353433323130 3736353433323130 c=3 01 [why=batch] 5"},
			"resource": "https://resource [service.name=shop] 6", "scope": "lib v1 https://scope [in=scope] 7",
		},
		{
			"trace": "00000000000000000000000000000000", "span": "0000000000000000", "parent": "0000000000000000",
			"remote": "false false", "flags": "00", "state": "", "name": "plain", "kind": "unspecified",
			"start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:00:00Z", "status": "Unset ",
			"attributes": []string(nil), "dropped": "0 0 0", "events": []string(nil), "links": []string(nil),
			"resource": " [] 0", "scope": "   [] 0",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

// fieldsOf reads a span by every method there is.
func fieldsOf(s pluginsdk.Span) map[string]any {
	remote, known := s.ParentIsRemote()
	code, message := s.Status()
	fields := map[string]any{
		"trace": s.TraceID().String(), "span": s.SpanID().String(), "parent": s.ParentID().String(),
		"remote": fmt.Sprint(remote, known), "flags": s.TraceFlags().String(), "state": s.TraceState().String(),
		"name": s.Name(), "kind": s.Kind().String(),
		"start": s.StartTime().Format(time.RFC3339Nano), "end": s.EndTime().Format(time.RFC3339Nano),
		"status":   code.String() + " " + message,
		"dropped":  fmt.Sprint(s.DroppedAttributes(), s.DroppedEvents(), s.DroppedLinks()),
		"resource": fmt.Sprint(s.Resource().SchemaURL(), " ", texts(s.Resource().Attributes()), " ", s.Resource().DroppedAttributes()),
		"scope":    fmt.Sprint(s.Scope().Name(), " ", s.Scope().Version(), " ", s.Scope().SchemaURL(), " ", texts(s.Scope().Attributes()), " ", s.Scope().DroppedAttributes()),
	}
	fields["attributes"] = texts(s.Attributes())
	var events, links []string
	for e := range s.Events() {
		events = append(events, fmt.Sprint(e.Name(), " ", e.Time().Format(time.RFC3339Nano), " ", texts(e.Attributes()), " ", e.DroppedAttributes()))
	}
	for l := range s.Links() {
		links = append(links, fmt.Sprint(l.TraceID(), " ", l.SpanID(), " ", l.TraceState(), " ", l.TraceFlags(), " ", texts(l.Attributes()), " ", l.DroppedAttributes()))
	}
	fields["events"], fields["links"] = events, links
	return fields
}

func texts(all func(func(attribute.KeyValue) bool)) []string {
	var list []string
	for kv := range all {
		list = append(list, string(kv.Key)+"="+kv.Value.String())
	}
	return list
}

func TestAttributeLookup(t *testing.T) {
	batch := pluginsdk.NewBatch(encode(t, richRequest()))
	for span := range batch.Spans() {
		if span.Name() != "GET /" {
			continue
		}
		for _, c := range []struct {
			where string
			find  func(attribute.Key) (attribute.Value, bool)
			key   attribute.Key
			want  string
		}{
			{"span", span.Attribute, "user", "ann"},
			{"resource", span.Resource().Attribute, "service.name", "shop"},
		} {
			if value, ok := c.find(c.key); !ok || value.AsString() != c.want {
				t.Errorf("%s: %q is %v, %v; want %q", c.where, c.key, value, ok, c.want)
			}
			if value, ok := c.find("absent"); ok || value != (attribute.Value{}) {
				t.Errorf("%s: an absent key is %v, %v", c.where, value, ok)
			}
		}
		for event := range span.Events() {
			if value, ok := event.Attribute("exception.type"); !ok || value.AsString() != "E" {
				t.Errorf("event: %v, %v", value, ok)
			}
		}
		for link := range span.Links() {
			if value, ok := link.Attribute("why"); !ok || value.AsString() != "batch" {
				t.Errorf("link: %v, %v", value, ok)
			}
		}
	}
}

func TestEditsAreSeenAndEncoded(t *testing.T) {
	batch := pluginsdk.NewBatch(encode(t, richRequest()))
	for span := range batch.Spans() {
		if span.Name() == "plain" {
			span.Drop()
			continue
		}
		span.SetName("renamed")
		span.SetStatus(codes.Ok, "")
		span.SetAttributes(attribute.String("user", "redacted"), attribute.Bool("seen", true))
		span.DeleteAttributes("n", "absent")
		span.Resource().SetAttributes(attribute.String("region", "eu"))
		span.Resource().DeleteAttributes("service.name")
		if got := fmt.Sprint(span.Name(), " ", texts(span.Attributes()), texts(span.Resource().Attributes())); got != "renamed [user=redacted seen=true] [region=eu]" {
			t.Errorf("edited span reads as %s", got)
		}
	}
	want := richRequest().GetResourceSpans()[:1]
	span := want[0].GetScopeSpans()[0].GetSpans()[0]
	span.Name = "renamed"
	span.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_OK}
	span.Attributes = []*commonpb.KeyValue{
		text("user", "redacted"),
		{Key: "seen", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}},
	}
	want[0].Resource.Attributes = []*commonpb.KeyValue{text("region", "eu")}

	got, err := batch.Decode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
	var encoded tracepb.TracesData
	if err := proto.Unmarshal(batch.Bytes(), &encoded); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, encoded.GetResourceSpans(), protocmp.Transform()); diff != "" {
		t.Errorf("Bytes (-want +got):\n%s", diff)
	}
	if batch.Len() != 1 {
		t.Errorf("Len is %d after a drop, want 1", batch.Len())
	}
}

func TestStatusCodesBothWays(t *testing.T) {
	for _, code := range []codes.Code{codes.Unset, codes.Error, codes.Ok} {
		batch := pluginsdk.NewBatch(encode(t, named("a")))
		for span := range batch.Spans() {
			span.SetStatus(code, "why")
		}
		for span := range pluginsdk.NewBatch(batch.Bytes()).Spans() {
			if got, _ := span.Status(); got != code {
				t.Errorf("%v reads back as %v", code, got)
			}
		}
	}
}

func TestKindsAreTheAPIs(t *testing.T) {
	for number, want := range map[tracepb.Span_SpanKind]trace.SpanKind{
		tracepb.Span_SPAN_KIND_UNSPECIFIED: trace.SpanKindUnspecified,
		tracepb.Span_SPAN_KIND_INTERNAL:    trace.SpanKindInternal,
		tracepb.Span_SPAN_KIND_SERVER:      trace.SpanKindServer,
		tracepb.Span_SPAN_KIND_CLIENT:      trace.SpanKindClient,
		tracepb.Span_SPAN_KIND_PRODUCER:    trace.SpanKindProducer,
		tracepb.Span_SPAN_KIND_CONSUMER:    trace.SpanKindConsumer,
	} {
		request := named("a")
		request.ResourceSpans[0].ScopeSpans[0].Spans[0].Kind = number
		for span := range pluginsdk.NewBatch(encode(t, request)).Spans() {
			if span.Kind() != want {
				t.Errorf("%v reads as %v, want %v", number, span.Kind(), want)
			}
		}
	}
}

func TestUntouchedBatchGivesItsOwnBytes(t *testing.T) {
	encoded := encode(t, named("a", "b"))
	batch := pluginsdk.NewBatch(encoded)
	if got := batch.Len(); got != 2 {
		t.Errorf("Len is %d, want 2", got)
	}
	for span := range batch.Spans() {
		_ = span.Name()
	}
	if got := batch.Bytes(); &got[0] != &encoded[0] || len(got) != len(encoded) {
		t.Error("a batch that was only read was copied")
	}
}

func TestEveryIterationCanStopEarly(t *testing.T) {
	batch := pluginsdk.NewBatch(encode(t, richRequest()))
	steps := 0
	for range batch.Resources() {
		steps++
		break
	}
	for span := range batch.Spans() {
		for range span.Attributes() {
			steps++
			break
		}
		for range span.Events() {
			steps++
			break
		}
		for range span.Links() {
			steps++
			break
		}
		break
	}
	if steps != 4 {
		t.Errorf("%d steps, want 4", steps)
	}
}

func TestResourcesCanBeEditedAlone(t *testing.T) {
	batch := pluginsdk.NewBatch(encode(t, richRequest()))
	for resource := range batch.Resources() {
		resource.SetAttributes(attribute.String("node", "n1"))
	}
	count := 0
	for span := range pluginsdk.NewBatch(batch.Bytes()).Spans() {
		if value, _ := span.Resource().Attribute("node"); value.AsString() == "n1" {
			count++
		}
	}
	if count != 2 {
		t.Errorf("%d spans have the attribute, want 2", count)
	}
}

func TestMalformedBatchReadsAsEmpty(t *testing.T) {
	batch := pluginsdk.NewBatch([]byte("\x0a\x7fno"))
	for range batch.Spans() {
		t.Error("a span")
	}
	for range batch.Resources() {
		t.Error("a resource")
	}
	if batch.Len() != 0 {
		t.Errorf("Len is %d", batch.Len())
	}
	if _, err := batch.Decode(); err == nil {
		t.Error("Decode gives no error")
	}
	if got := string(batch.Bytes()); got != "\x0a\x7fno" {
		t.Errorf("Bytes are %q, not what arrived", got)
	}
}

func BenchmarkReadTwoAttributes(b *testing.B) {
	names := make([]string, 512)
	for i := range names {
		names[i] = "span"
	}
	request := named(names...)
	for _, span := range request.ResourceSpans[0].ScopeSpans[0].Spans {
		for _, key := range []string{"request_id", "deployment", "app", "route", "serve.request_id", "serve.replica_id"} {
			span.Attributes = append(span.Attributes, text(key, "a value of some length"))
		}
	}
	encoded := encode(b, request)
	b.Run("view", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for span := range pluginsdk.NewBatch(encoded).Spans() {
				span.Attribute("serve.request_id")
				span.Attribute("app")
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := pluginsdk.NewBatch(encoded).Decode(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("forward", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = pluginsdk.NewBatch(encoded).Bytes()
		}
	})
}

// TestBatchAppendsItself: AppendTo is Bytes in the caller's memory, for any state of the
// batch.
func TestBatchAppendsItself(t *testing.T) {
	encoded := encode(t, named("a", "b"))
	for _, c := range []struct {
		name   string
		raw    []byte
		do     func(*pluginsdk.Batch)
		edited bool
	}{
		{"untouched", encoded, func(*pluginsdk.Batch) {}, false},
		{"read", encoded, func(b *pluginsdk.Batch) { b.Len() }, false},
		{"edited", encoded, func(b *pluginsdk.Batch) {
			for span := range b.Spans() {
				span.SetName("c")
			}
		}, true},
		{"dropped", encoded, func(b *pluginsdk.Batch) {
			for span := range b.Spans() {
				span.Drop()
			}
		}, true},
		{"malformed", []byte("\x0a\x7fno"), func(b *pluginsdk.Batch) { b.Len() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			batch := pluginsdk.NewBatch(c.raw)
			c.do(batch)
			if got := batch.Edited(); got != c.edited {
				t.Errorf("edited: %t, want %t", got, c.edited)
			}
			memory := append(make([]byte, 0, 1<<12), "before"...)
			got := batch.AppendTo(memory)
			if want := "before" + string(batch.Bytes()); string(got) != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if &got[0] != &memory[0] {
				t.Error("memory that has room is not used")
			}
		})
	}
}
