package pluginsdk_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/servetrace/servetrace/pluginsdk"
)

// eventful is a batch of one span with an event, a link and a scope's attribute.
func eventful(t *testing.T) *pluginsdk.Batch {
	t.Helper()
	return pluginsdk.NewBatch(encode(t, &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: "scope", Attributes: []*commonpb.KeyValue{text("s", "1"), text("t", "2")}},
			Spans: []*tracepb.Span{{
				Name: "span",
				Events: []*tracepb.Span_Event{{
					Name: "exception", TimeUnixNano: 5,
					Attributes: []*commonpb.KeyValue{text("exception.message", "secret"), text("k", "v")},
				}},
				Links: []*tracepb.Span_Link{{Attributes: []*commonpb.KeyValue{text("l", "1"), text("m", "2")}}},
			}},
		}},
	}}}))
}

func TestEventsLinksAndScopesAreEdited(t *testing.T) {
	batch := eventful(t)
	state, err := trace.ParseTraceState("a=1,b=2")
	if err != nil {
		t.Fatal(err)
	}
	target := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true,
	})
	for span := range batch.Spans() {
		for event := range span.Events() {
			event.SetName("failure")
			event.SetAttributes(attribute.String("exception.message", "[redacted]"), attribute.Int("n", 1))
			event.DeleteAttributes("k", "absent")
			if v, ok := event.Attribute("exception.message"); event.Name() != "failure" || !ok || v.AsString() != "[redacted]" {
				t.Errorf("event reads as %q, %v", event.Name(), v)
			}
		}
		for link := range span.Links() {
			link.SetAttributes(attribute.String("l", "x"))
			link.DeleteAttributes("m")
			if v, ok := link.Attribute("l"); !ok || v.AsString() != "x" || len(slices.Collect(link.Attributes())) != 1 {
				t.Errorf("link reads as %v", slices.Collect(link.Attributes()))
			}
		}
		span.Scope().SetAttributes(attribute.Bool("s", true))
		span.Scope().DeleteAttributes("t")
		if v, ok := span.Scope().Attribute("s"); !ok || !v.AsBool() {
			t.Errorf("scope reads as %v", slices.Collect(span.Scope().Attributes()))
		}
		span.AddEvent("redacted", time.Unix(0, 7), attribute.Int("count", 1))
		span.AddLink(trace.Link{SpanContext: target, Attributes: []attribute.KeyValue{attribute.String("why", "x")}})
		last := slices.Collect(span.Links())[1]
		if last.TraceID() != target.TraceID() || last.SpanID() != target.SpanID() || !last.TraceFlags().IsSampled() || last.TraceState().String() != "a=1,b=2" {
			t.Errorf("the link that was added reads as %v %v %v %v", last.TraceID(), last.SpanID(), last.TraceFlags(), last.TraceState())
		}
	}
	got, err := batch.Decode()
	if err != nil {
		t.Fatal(err)
	}
	number := func(key string, n int64) *commonpb.KeyValue {
		return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}}
	}
	traceID, spanID := target.TraceID(), target.SpanID()
	want := []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{
		Scope: &commonpb.InstrumentationScope{Name: "scope", Attributes: []*commonpb.KeyValue{
			{Key: "s", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}},
		}},
		Spans: []*tracepb.Span{{
			Name: "span",
			Events: []*tracepb.Span_Event{
				{Name: "failure", TimeUnixNano: 5, Attributes: []*commonpb.KeyValue{text("exception.message", "[redacted]"), number("n", 1)}},
				{Name: "redacted", TimeUnixNano: 7, Attributes: []*commonpb.KeyValue{number("count", 1)}},
			},
			Links: []*tracepb.Span_Link{
				{Attributes: []*commonpb.KeyValue{text("l", "x")}},
				{
					TraceId: traceID[:], SpanId: spanID[:], TraceState: "a=1,b=2", Flags: 0x301,
					Attributes: []*commonpb.KeyValue{text("why", "x")},
				},
			},
		}},
	}}}}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("batch (-want +got):\n%s", d)
	}
}

// TestAddEventOutOfRange: OTLP's time begins in 1970, and ends here in 2262.
func TestAddEventOutOfRange(t *testing.T) {
	for _, c := range []struct{ at, want time.Time }{
		{time.Time{}, time.Unix(0, 0)},
		{time.Unix(-1, 5), time.Unix(0, 0)},
		{time.Unix(1, 5), time.Unix(1, 5)},
		{time.Date(2262, 4, 11, 23, 47, 16, 999_999_999, time.UTC), time.Unix(0, 1<<63-1)},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 1<<63-1)},
	} {
		for span := range eventful(t).Spans() {
			span.AddEvent("e", c.at)
			if got := slices.Collect(span.Events())[1].Time(); !got.Equal(c.want) {
				t.Errorf("event of %v is at %v, want %v", c.at, got, c.want)
			}
		}
	}
}
