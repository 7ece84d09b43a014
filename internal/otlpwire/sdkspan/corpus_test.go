package sdkspan

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
)

// captureClient is where the SDK's exporter hands over what it transformed.
type captureClient struct{ got []*tracepb.ResourceSpans }

func (c *captureClient) Start(context.Context) error { return nil }
func (c *captureClient) Stop(context.Context) error  { return nil }
func (c *captureClient) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	c.got = spans
	return nil
}

var _ otlptrace.Client = (*captureClient)(nil)

// bySDK is what the SDK's exporter would send.
func bySDK(tb testing.TB, spans []sdktrace.ReadOnlySpan) *coltracepb.ExportTraceServiceRequest {
	tb.Helper()
	client := &captureClient{}
	exporter, err := otlptrace.New(tb.Context(), client)
	if err != nil {
		tb.Fatal(err)
	}
	if err := exporter.ExportSpans(tb.Context(), spans); err != nil {
		tb.Fatal(err)
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: client.got}
}

// expected is what the SDK's exporter would send, with the differences that the
// package comment names.
func expected(tb testing.TB, spans []sdktrace.ReadOnlySpan) *coltracepb.ExportTraceServiceRequest {
	tb.Helper()
	want := bySDK(tb, spans)
	links := map[trace.SpanID][]sdktrace.Link{}
	for _, s := range spans {
		links[s.SpanContext().SpanID()] = s.Links()
	}
	for _, rs := range want.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				for i, l := range links[trace.SpanID(s.SpanId)] {
					s.Links[i].TraceState = l.SpanContext.TraceState().String()
				}
			}
		}
	}
	repairText(want.ProtoReflect())
	return want
}

// repairText puts U+FFFD in place of what is no UTF-8, everywhere in m.
func repairText(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				repairText(v.List().Get(i).Message())
			}
		case fd.Message() != nil:
			repairText(v.Message())
		case fd.Kind() == protoreflect.StringKind:
			m.Set(fd, protoreflect.ValueOfString(strings.ToValidUTF8(v.String(), "\uFFFD")))
		}
		return true
	})
}

func decode(tb testing.TB, req []byte) *coltracepb.ExportTraceServiceRequest {
	tb.Helper()
	got := &coltracepb.ExportTraceServiceRequest{}
	if err := proto.Unmarshal(req, got); err != nil {
		tb.Fatalf("decode: %v", err)
	}
	return got
}

// diff compares two requests whatever the order of their resources, which the
// SDK's exporter draws by lot.
func diff(want, got *coltracepb.ExportTraceServiceRequest) string {
	for _, r := range []*coltracepb.ExportTraceServiceRequest{want, got} {
		slices.SortFunc(r.ResourceSpans, func(a, b *tracepb.ResourceSpans) int {
			return strings.Compare(resourceKey(a), resourceKey(b))
		})
	}
	if proto.Equal(want, got) {
		return ""
	}
	const enough = 4 << 10
	d := cmp.Diff(want, got, protocmp.Transform(), cmpopts.EquateNaNs())
	return d[:min(len(d), enough)] + "\n"
}

func resourceKey(rs *tracepb.ResourceSpans) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(rs.GetResource())
	if err != nil {
		return err.Error()
	}
	return rs.SchemaUrl + string(b)
}

// generator draws spans that have everything. Text comes from the fuzzer, so
// that it is not always valid.
type generator struct {
	*rand.Rand
	texts []string
}

func newGenerator(seed uint64, text string) *generator {
	return &generator{
		Rand:  rand.New(rand.NewPCG(seed, 0)),
		texts: append(strings.Split(text, " "), "", "http.route", "é世界🎉", strings.Repeat("long ", 60)),
	}
}

func (g *generator) text() string { return g.texts[g.IntN(len(g.texts))] }

func (g *generator) spans(n int) []sdktrace.ReadOnlySpan {
	resources := []*resource.Resource{
		nil,
		resource.NewSchemaless(append(g.attributes(3), attribute.Bool("not the empty one", true))...),
		resource.NewWithAttributes("https://opentelemetry.io/schemas/1.40.0", attribute.String("service.name", "a")),
	}
	scopes := []instrumentation.Scope{
		{},
		{Name: "a"},
		{Name: "a", Version: g.text(), SchemaURL: "https://example.org/schema"},
		{Name: "b", Attributes: attribute.NewSet(attribute.String("k", g.text()), attribute.Int("i", 1))},
	}
	var spans []sdktrace.ReadOnlySpan
	for range n {
		stub := g.stub()
		stub.Resource = resources[g.IntN(len(resources))]
		stub.InstrumentationScope = scopes[g.IntN(len(scopes))]
		spans = append(spans, stub.Snapshot())
	}
	return spans
}

func (g *generator) stub() tracetest.SpanStub {
	stub := tracetest.SpanStub{
		Name:              g.text(),
		SpanContext:       g.spanContext(),
		SpanKind:          trace.SpanKind(g.IntN(8) - 1),
		StartTime:         g.time(),
		EndTime:           g.time(),
		Attributes:        g.attributes(12),
		Status:            sdktrace.Status{Code: codes.Code(g.IntN(3)), Description: g.text()},
		DroppedAttributes: g.IntN(300) - 5,
		DroppedEvents:     g.IntN(3) * math.MaxUint32,
		DroppedLinks:      g.IntN(2),
	}
	if g.IntN(3) > 0 {
		stub.Parent = g.spanContext()
	}
	for range g.IntN(4) {
		stub.Events = append(stub.Events, sdktrace.Event{
			Name: g.text(), Time: g.time(), Attributes: g.attributes(4), DroppedAttributeCount: g.IntN(3) - 1,
		})
	}
	for range g.IntN(4) {
		stub.Links = append(stub.Links, sdktrace.Link{
			SpanContext: g.spanContext(), Attributes: g.attributes(4), DroppedAttributeCount: g.IntN(200),
		})
	}
	return stub
}

func (g *generator) time() time.Time {
	switch g.IntN(6) {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(-1, 0)
	default:
		return time.Unix(0, g.Int64())
	}
}

func (g *generator) spanContext() trace.SpanContext {
	cfg := trace.SpanContextConfig{TraceFlags: trace.TraceFlags(g.IntN(256)), Remote: g.IntN(2) == 0}
	for i := range cfg.TraceID {
		cfg.TraceID[i] = byte(g.Uint32())
	}
	for i := range cfg.SpanID {
		cfg.SpanID[i] = byte(g.Uint32())
	}
	states := []string{"", "", "a=1", "a=1,b=2,tenant@sys=x/y z"}
	ts, err := trace.ParseTraceState(states[g.IntN(len(states))])
	if err == nil {
		cfg.TraceState = ts
	}
	return trace.NewSpanContext(cfg)
}

func (g *generator) attributes(most int) []attribute.KeyValue {
	var kvs []attribute.KeyValue
	for range g.IntN(most + 1) {
		kvs = append(kvs, attribute.KeyValue{Key: attribute.Key(g.text()), Value: g.value(3)})
	}
	return kvs
}

func (g *generator) value(depth int) attribute.Value {
	kinds := int(attribute.MAP) + 1
	if depth == 0 {
		kinds = int(attribute.SLICE)
	}
	switch attribute.Type(g.IntN(kinds)) {
	case attribute.BOOL:
		return attribute.BoolValue(g.IntN(2) == 0)
	case attribute.INT64:
		return attribute.Int64Value(g.int64())
	case attribute.FLOAT64:
		return attribute.Float64Value(g.float64())
	case attribute.STRING:
		return attribute.StringValue(g.text())
	case attribute.BOOLSLICE:
		return attribute.BoolSliceValue(several(g, func() bool { return g.IntN(2) == 0 }))
	case attribute.INT64SLICE:
		return attribute.Int64SliceValue(several(g, g.int64))
	case attribute.FLOAT64SLICE:
		return attribute.Float64SliceValue(several(g, g.float64))
	case attribute.STRINGSLICE:
		return attribute.StringSliceValue(several(g, g.text))
	case attribute.BYTESLICE:
		return attribute.ByteSliceValue([]byte(g.text()))
	case attribute.SLICE:
		return attribute.SliceValue(several(g, func() attribute.Value { return g.value(depth - 1) })...)
	case attribute.MAP:
		return attribute.MapValue(several(g, func() attribute.KeyValue {
			return attribute.KeyValue{Key: attribute.Key(g.text()), Value: g.value(depth - 1)}
		})...)
	default:
		return attribute.Value{}
	}
}

func several[T any](g *generator, one func() T) []T {
	members := make([]T, g.IntN(8))
	for i := range members {
		members[i] = one()
	}
	return members
}

func (g *generator) int64() int64 { return int64(g.Uint64()) >> g.IntN(64) }

func (g *generator) float64() float64 {
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.NaN(), g.NormFloat64()}
	return special[g.IntN(len(special))]
}
