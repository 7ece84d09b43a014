package spancorpus

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// Generator draws spans that have everything. What it draws depends on its seed,
// its text and the calls before, on nothing else. Not safe for concurrent use.
type Generator struct {
	// Rand is the source of every choice.
	*rand.Rand
	texts []string
}

// New makes a generator. The words of text, as single spaces part them, are
// among the names, keys and values that it draws; they need not be valid UTF-8.
func New(seed uint64, text string) *Generator {
	return &Generator{
		Rand:  rand.New(rand.NewPCG(seed, 0)),
		texts: append(strings.Split(text, " "), "", "http.route", "é世界🎉", strings.Repeat("long ", 60)),
	}
}

// Text draws a word: one of New's, an empty one, one beyond ASCII, or one of 300
// bytes.
func (g *Generator) Text() string { return g.texts[g.IntN(len(g.texts))] }

// Spans draws n spans of a few resources, one of which is nil, and a few scopes.
func (g *Generator) Spans(n int) []sdktrace.ReadOnlySpan {
	resources := []*resource.Resource{
		nil,
		resource.NewSchemaless(append(g.Attributes(3), attribute.Bool("not the empty one", true))...),
		resource.NewWithAttributes("https://opentelemetry.io/schemas/1.40.0", attribute.String("service.name", "a")),
	}
	scopes := []instrumentation.Scope{
		{},
		{Name: "a"},
		{Name: "a", Version: g.Text(), SchemaURL: "https://example.org/schema"},
		{Name: "b", Attributes: attribute.NewSet(attribute.String("k", g.Text()), attribute.Int("i", 1))},
	}
	var spans []sdktrace.ReadOnlySpan
	for range n {
		stub := g.Stub()
		stub.Resource = resources[g.IntN(len(resources))]
		stub.InstrumentationScope = scopes[g.IntN(len(scopes))]
		spans = append(spans, stub.Snapshot())
	}
	return spans
}

// Stub draws a span with up to 12 attributes, 3 events and 3 links, without
// resource and scope. Kinds and dropped counts may be out of range, times before
// 1970, keys there twice.
func (g *Generator) Stub() tracetest.SpanStub {
	stub := tracetest.SpanStub{
		Name:              g.Text(),
		SpanContext:       g.SpanContext(),
		SpanKind:          trace.SpanKind(g.IntN(8) - 1),
		StartTime:         g.Time(),
		EndTime:           g.Time(),
		Attributes:        g.Attributes(12),
		Status:            sdktrace.Status{Code: codes.Code(g.IntN(3)), Description: g.Text()},
		DroppedAttributes: g.IntN(300) - 5,
		DroppedEvents:     g.IntN(3) * math.MaxUint32,
		DroppedLinks:      g.IntN(2),
	}
	if g.IntN(3) > 0 {
		stub.Parent = g.SpanContext()
	}
	for range g.IntN(4) {
		stub.Events = append(stub.Events, sdktrace.Event{
			Name: g.Text(), Time: g.Time(), Attributes: g.Attributes(4), DroppedAttributeCount: g.IntN(3) - 1,
		})
	}
	for range g.IntN(4) {
		stub.Links = append(stub.Links, sdktrace.Link{
			SpanContext: g.SpanContext(), Attributes: g.Attributes(4), DroppedAttributeCount: g.IntN(200),
		})
	}
	return stub
}

// Time draws one from 1970 to 2262, the zero time, or one before 1970.
func (g *Generator) Time() time.Time {
	switch g.IntN(6) {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(-1, 0)
	default:
		return time.Unix(0, g.Int64())
	}
}

// SpanContext draws one with random ids and flags, with a trace state in half of
// all cases.
func (g *Generator) SpanContext() trace.SpanContext {
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

// Attributes draws up to most of them. A key may be there twice.
func (g *Generator) Attributes(most int) []attribute.KeyValue {
	var kvs []attribute.KeyValue
	for range g.IntN(most + 1) {
		kvs = append(kvs, attribute.KeyValue{Key: attribute.Key(g.Text()), Value: g.Value(3)})
	}
	return kvs
}

// Value draws one of any type, slices and maps nested up to depth levels.
func (g *Generator) Value(depth int) attribute.Value {
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
		return attribute.StringValue(g.Text())
	case attribute.BOOLSLICE:
		return attribute.BoolSliceValue(several(g, func() bool { return g.IntN(2) == 0 }))
	case attribute.INT64SLICE:
		return attribute.Int64SliceValue(several(g, g.int64))
	case attribute.FLOAT64SLICE:
		return attribute.Float64SliceValue(several(g, g.float64))
	case attribute.STRINGSLICE:
		return attribute.StringSliceValue(several(g, g.Text))
	case attribute.BYTESLICE:
		return attribute.ByteSliceValue([]byte(g.Text()))
	case attribute.SLICE:
		return attribute.SliceValue(several(g, func() attribute.Value { return g.Value(depth - 1) })...)
	case attribute.MAP:
		return attribute.MapValue(several(g, func() attribute.KeyValue {
			return attribute.KeyValue{Key: attribute.Key(g.Text()), Value: g.Value(depth - 1)}
		})...)
	default:
		return attribute.Value{}
	}
}

func several[T any](g *Generator, one func() T) []T {
	members := make([]T, g.IntN(8))
	for i := range members {
		members[i] = one()
	}
	return members
}

// int64 draws numbers of all lengths, and those at which a float64 or an int64
// ends.
func (g *Generator) int64() int64 {
	ends := []int64{math.MinInt64, math.MaxInt64, 1 << 53, -1 << 53, 1<<53 + 1, 1<<53 - 1}
	if i := g.IntN(4 * len(ends)); i < len(ends) {
		return ends[i]
	}
	return int64(g.Uint64()) >> g.IntN(64)
}

func (g *Generator) float64() float64 {
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.NaN(), g.NormFloat64()}
	return special[g.IntN(len(special))]
}
