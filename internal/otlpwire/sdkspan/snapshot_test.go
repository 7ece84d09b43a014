package sdkspan

import (
	"reflect"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/ended"
)

// fullSpan has something in each field, made by the SDK.
func fullSpan(t *testing.T) sdktrace.ReadOnlySpan {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(recorder),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "full"))),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{
			AttributeValueLengthLimit: -1, AttributeCountLimit: 2, EventCountLimit: 1, LinkCountLimit: 1,
			AttributePerEventCountLimit: 1, AttributePerLinkCountLimit: 1,
		}),
	).Tracer("scope", trace.WithInstrumentationVersion("1"), trace.WithInstrumentationAttributes(attribute.Bool("b", true)))
	ts, err := trace.ParseTraceState("a=1,b=2")
	if err != nil {
		t.Fatal(err)
	}
	remote := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: ts, Remote: true,
	})
	ctx, span := tracer.Start(trace.ContextWithRemoteSpanContext(t.Context(), remote), "full", trace.WithSpanKind(trace.SpanKindClient))
	for i := range 3 {
		span.SetAttributes(attribute.Int(string(rune('a'+i)), i), attribute.StringSlice("texts", []string{"x", "y"}))
		span.AddEvent("event", trace.WithAttributes(attribute.Int("i", i)))
		span.AddLink(trace.Link{SpanContext: remote, Attributes: []attribute.KeyValue{attribute.Int("i", i)}})
	}
	_, child := tracer.Start(ctx, "child")
	child.End()
	span.SetStatus(codes.Error, "why")
	span.End()
	return recorder.Ended()[1]
}

// TestSeeKnowsTheSDK fails where an update has given the SDK's snapshot another
// layout. Nothing is wrong then but that spans are read slowly: mend ended.Span.
func TestSeeKnowsTheSDK(t *testing.T) {
	s := fullSpan(t)
	got, _ := see(s)
	if got == nil {
		t.Fatalf("%T is not laid out as ended.Span any more", s)
	}
	want := copyOf(s)
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("fields read in place:\n%+v\nby the methods:\n%+v", *got, want)
	}
	for v, i := reflect.ValueOf(want), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the field %s is empty, so this test says nothing of it", v.Type().Field(i).Name)
		}
	}
}

// wrapped is what a processor in front of the host may pass on.
type wrapped struct{ sdktrace.ReadOnlySpan }

func TestSeeLeavesOthersAlone(t *testing.T) {
	sdk := fullSpan(t)
	for range 2 { // the second time from memory
		for _, s := range []sdktrace.ReadOnlySpan{wrapped{sdk}, &wrapped{sdk}, tracetest.SpanStub{Name: "stub"}.Snapshot()} {
			if f, _ := see(s); f != nil {
				t.Errorf("%T was taken for the SDK's snapshot", s)
			}
		}
		if f, _ := see(sdk); f == nil {
			t.Errorf("%T was not known any more", sdk)
		}
	}
	var a, b Encoder
	a.Append(sdk)
	b.Append(wrapped{sdk})
	if got, want := b.AppendRequest(nil), a.AppendRequest(nil); string(got) != string(want) {
		t.Errorf("a wrapped span is encoded as\n%q\nwant\n%q", got, want)
	}
}

func TestIsSDKs(t *testing.T) {
	type snapshot ended.Span
	if isSDKs(reflect.TypeFor[snapshot]()) {
		t.Error("a type of the same name in another package was taken for the SDK's")
	}
	if isSDKs(reflect.TypeFor[sdktrace.Event]()) {
		t.Error("another type of the SDK's package was taken for its snapshot")
	}
}

func TestSameLayout(t *testing.T) {
	type Base struct {
		A int
		B string
	}
	type named struct {
		A int
		C string
	}
	type typed struct {
		A uint
		B string
	}
	type longer struct {
		Base
		C byte
	}
	type same struct {
		A int
		B string
	}
	want := reflect.TypeFor[Base]()
	for _, tt := range []struct {
		t    reflect.Type
		same bool
	}{
		{want, true}, {reflect.TypeFor[same](), true}, {reflect.TypeFor[named](), false}, {reflect.TypeFor[typed](), false},
		{reflect.TypeFor[longer](), false}, {reflect.TypeFor[*Base](), false}, {reflect.TypeFor[int](), false},
	} {
		if got := sameLayout(tt.t, want); got != tt.same {
			t.Errorf("sameLayout(%v) = %v, want %v", tt.t, got, tt.same)
		}
	}
}
