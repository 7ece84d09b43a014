package otelplugin_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// everyValue has each kind of attribute, and the values that are likely to be lost.
func everyValue() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.Bool("bool", true), attribute.Bool("bool.false", false),
		attribute.Int64("int", math.MinInt64), attribute.Int("int.zero", 0),
		attribute.Float64("float", -0.5), attribute.Float64("float.inf", math.Inf(1)),
		attribute.String("string", "é世界"), attribute.String("string.empty", ""),
		attribute.BoolSlice("bools", []bool{true, false}),
		attribute.Int64Slice("ints", []int64{1, -1}),
		attribute.Float64Slice("floats", []float64{0, 1e300}),
		attribute.StringSlice("strings", []string{"", "a"}),
		attribute.ByteSlice("bytes", []byte{0, 255}), attribute.ByteSlice("bytes.empty", nil),
		attribute.Slice("slice", attribute.IntValue(1), attribute.StringValue("one"), attribute.Value{}),
		attribute.Slice("slice.empty"),
		attribute.Map("map", attribute.Int("b", 1), attribute.Map("a", attribute.StringSlice("nested", []string{"x"}))),
		attribute.Map("map.empty"),
		{Key: "empty"},
	}
}

func parseState(t *testing.T, header string) trace.TraceState {
	t.Helper()
	state, err := trace.ParseTraceState(header)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// fullStub has a value in every field that OTLP carries.
func fullStub(t *testing.T) tracetest.SpanStub {
	own := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 15: 2}, SpanID: trace.SpanID{3, 7: 4},
		TraceFlags: trace.FlagsSampled | 2, TraceState: parseState(t, "tenant@sys=x/y z,b=2"),
	})
	scope := instrumentation.Scope{
		Name: "lib", Version: "1.2.3", SchemaURL: "https://opentelemetry.io/schemas/1.30.0",
		Attributes: attribute.NewSet(attribute.String("k", "v"), attribute.Int("i", 1)),
	}
	return tracetest.SpanStub{
		Name: "full", SpanContext: own, Parent: own.WithSpanID(trace.SpanID{5}).WithRemote(true),
		SpanKind:  trace.SpanKindConsumer,
		StartTime: time.Unix(1716919504, 864137999).UTC(), EndTime: time.Unix(1716919505, 1).UTC(),
		Attributes: everyValue(),
		Events: []sdktrace.Event{
			{Name: "exception", Time: time.Unix(1716919504, 900000001).UTC(), Attributes: everyValue(), DroppedAttributeCount: 3},
			{Name: "bare", Time: time.Unix(0, 0).UTC()},
		},
		Links: []sdktrace.Link{
			{
				SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
					TraceID: trace.TraceID{9}, SpanID: trace.SpanID{8}, TraceFlags: 1, TraceState: parseState(t, "c=3"), Remote: true,
				}),
				Attributes: everyValue(), DroppedAttributeCount: 4,
			},
			{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{6}})},
		},
		Status:            sdktrace.Status{Code: codes.Error, Description: "no"},
		DroppedAttributes: 1, DroppedEvents: 2, DroppedLinks: 3,
		Resource: resource.NewWithAttributes("https://opentelemetry.io/schemas/1.40.0",
			attribute.String("service.name", "a"), attribute.StringSlice("process.command_args", []string{"x", "y"})),
		InstrumentationScope:   scope,
		InstrumentationLibrary: scope, //nolint:staticcheck // deprecated for writers, read by stubs of spans
	}
}

// TestRoundTrip takes spans through the host's encoder and back: every field is
// as it was.
func TestRoundTrip(t *testing.T) {
	full := fullStub(t)
	for i, v := 0, reflect.ValueOf(full); i < v.NumField(); i++ {
		// A field that a later SDK adds must be thought of.
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "ChildSpanCount" {
			t.Errorf("SpanStub.%s is zero, so this test says nothing of it", name)
		}
	}
	root := full
	root.Name, root.Parent, root.Status = "root", trace.SpanContext{}, sdktrace.Status{Code: codes.Ok}
	local := full
	local.Name, local.Parent = "local parent", full.Parent.WithRemote(false)
	unsampled := full
	unsampled.Name, unsampled.SpanContext = "unsampled", full.SpanContext.WithTraceFlags(0)
	unsampled.Parent = full.Parent.WithTraceFlags(0)
	onlyScopeAttributes := full
	onlyScopeAttributes.InstrumentationScope = instrumentation.Scope{Attributes: attribute.NewSet(attribute.Bool("on", true))}
	onlyScopeAttributes.InstrumentationLibrary = onlyScopeAttributes.InstrumentationScope //nolint:staticcheck // as above
	bare := tracetest.SpanStub{
		Name: "bare", SpanContext: stubs(1)[0].SpanContext, SpanKind: trace.SpanKindInternal,
		StartTime: time.Unix(1, 0).UTC(), EndTime: time.Unix(1, 0).UTC(), Resource: resource.Empty(),
	}

	// One batch, so that spans change resource and scope in the middle of it.
	for _, order := range []tracetest.SpanStubs{
		{full, bare, root, local, unsampled, onlyScopeAttributes},
		{bare, onlyScopeAttributes, full},
	} {
		want := map[string]tracetest.SpanStub{}
		for _, stub := range order {
			want[stub.Name] = stub
		}
		got := map[string]tracetest.SpanStub{}
		for _, stub := range decoded(t, batchOf(order.Snapshots()...)) {
			got[stub.Name] = stub
		}
		if diff := cmp.Diff(want, got, sameSpan); diff != "" {
			t.Errorf("span after the round trip (-want +got):\n%s", diff)
		}
	}
}

// TestRoundTripOfSDK does the same with spans that the SDK has made.
func TestRoundTripOfSDK(t *testing.T) {
	var live tracetest.InMemoryExporter
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSyncer(&live),
		sdktrace.WithResource(resource.NewWithAttributes("https://example.org/schema", attribute.String("service.name", "a"))),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{
			AttributeValueLengthLimit: -1, AttributeCountLimit: 20, EventCountLimit: 1, LinkCountLimit: 1,
			AttributePerEventCountLimit: 1, AttributePerLinkCountLimit: 1, AttributeValueDepthLimit: -1,
		}),
	)
	tracer := provider.Tracer("lib", trace.WithInstrumentationVersion("1"), trace.WithSchemaURL("https://example.org/lib"),
		trace.WithInstrumentationAttributes(attribute.String("a", "b")))
	remote := fullStub(t).Parent
	ctx, outer := tracer.Start(trace.ContextWithRemoteSpanContext(t.Context(), remote), "outer",
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(everyValue()...), trace.WithAttributes(attribute.Int("one too many", 1), attribute.Int("two", 2)))
	_, inner := tracer.Start(ctx, "inner")
	for range 2 {
		outer.AddEvent("event", trace.WithAttributes(attribute.Int("a", 1), attribute.Int("b", 1)))
		outer.AddLink(trace.Link{SpanContext: remote, Attributes: []attribute.KeyValue{attribute.Int("a", 1), attribute.Int("b", 1)}})
	}
	inner.SetStatus(codes.Error, "no")
	inner.End()
	outer.End()

	want := live.GetSpans()
	for i := range want {
		want[i].ChildSpanCount = 0 // OTLP has none
		// Monotonic readings and places do not leave a process.
		want[i].StartTime, want[i].EndTime = want[i].StartTime.Round(0).UTC(), want[i].EndTime.Round(0).UTC()
		for j := range want[i].Events {
			want[i].Events[j].Time = want[i].Events[j].Time.Round(0).UTC()
		}
	}
	if got := decoded(t, batchOf(want.Snapshots()...)); cmp.Diff(want, got, sameSpan) != "" {
		t.Errorf("spans of the SDK after the round trip (-want +got):\n%s", cmp.Diff(want, got, sameSpan))
	}
	if want[1].DroppedAttributes == 0 || want[1].DroppedEvents == 0 || want[1].DroppedLinks == 0 || want[1].Events[0].DroppedAttributeCount == 0 {
		t.Errorf("the SDK dropped nothing, so this test says nothing of the counts: %+v", want[1])
	}
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestForeignSenders: spans that the SDK for Go would not have sent.
func TestForeignSenders(t *testing.T) {
	str := func(key, value string) *commonpb.KeyValue {
		return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
	}
	id, spanID := []byte(strings.Repeat("t", 16)), []byte("spanspan")
	encoded, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{
		{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{
			{Name: "no flags", TraceId: id, SpanId: spanID, Kind: 77, TraceState: "not a state"},
			{Name: "known to be unsampled", TraceId: id, SpanId: spanID, Flags: 0x100},
			{Name: "unsampled, with a random id", TraceId: id, SpanId: spanID, Flags: 2},
			{Name: "wrong ids", TraceId: id[:3], SpanId: id, ParentSpanId: id},
			{Name: "twice", TraceId: id, SpanId: spanID, Attributes: []*commonpb.KeyValue{str("k", "1"), str("k", "2")}},
			{Name: "times", TraceId: id, SpanId: spanID, StartTimeUnixNano: math.MaxUint64},
		}}}},
		{ScopeSpans: []*tracepb.ScopeSpans{{}}},
		{},
	}})
	if err != nil {
		t.Fatal(err)
	}
	sampled := map[string]bool{}
	for _, stub := range decoded(t, pluginsdk.NewBatch(encoded)) {
		sampled[stub.Name] = stub.SpanContext.IsSampled()
		if stub.Resource == nil || stub.SpanKind != trace.SpanKindInternal || stub.SpanContext.TraceState().Len() != 0 || stub.Parent.IsValid() {
			t.Errorf("%s: resource %v, kind %v, state %v, parent %v", stub.Name, stub.Resource, stub.SpanKind, stub.SpanContext.TraceState(), stub.Parent)
		}
	}
	want := map[string]bool{
		"no flags": true, "known to be unsampled": false, "unsampled, with a random id": false,
		"wrong ids": true, "twice": true, "times": true,
	}
	if diff := cmp.Diff(want, sampled); diff != "" {
		t.Errorf("sampled (-want +got):\n%s", diff)
	}
}

// TestMalformed: bytes that are no OTLP never panic and never reach an exporter
// as a batch of something else.
func TestMalformed(t *testing.T) {
	whole := numbered(3).Bytes()
	var r recorder
	e := exporter(t, &r)
	for cut := range whole {
		b := pluginsdk.NewBatch(whole[:cut])
		if err := e.Export(t.Context(), b); err != nil {
			t.Errorf("cut at %d: %v", cut, err) // the SDK answers for such a batch
		}
	}
	for _, spans := range r.sizes() {
		if spans > 3 {
			t.Errorf("a batch cut short had %d spans", spans)
		}
	}
}
