package shapes

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/test/spancorpus"
)

// words are among the corpus's names, keys and values. All are valid UTF-8.
const words = "a b GET\u00a0/orders error nul\x00byte tab\tquote\"\\ \u202eright\u202c e\u0301 \ufffd \U0010ffff 9 -1 true"

// corpus makes spans one after the other. They depend only on its seed.
type corpus struct {
	*spancorpus.Generator
	sdk       *sdk
	resources []*resource.Resource
	scopes    []instrumentation.Scope
	// last is the span that was made last: half of all have it as their parent.
	last trace.SpanContext
	made uint32
}

// draw gives n spans, each a finished one as processors get it.
func draw(seed uint64, n int) []sdktrace.ReadOnlySpan {
	c := &corpus{Generator: spancorpus.New(seed, words)}
	service := []attribute.KeyValue{
		attribute.String("service.name", "orders"), attribute.String("service.version", "1.4"),
		attribute.String("deployment.environment.name", "prod"), attribute.String("host.name", "node-1"),
	}
	c.resources = []*resource.Resource{
		resource.NewWithAttributes("https://opentelemetry.io/schemas/1.40.0", service...),
		resource.NewSchemaless(append(c.everyType("resource."), attribute.String("service.name", "everything"))...),
		resource.Empty(),
		// As the first, but for the schema.
		resource.NewWithAttributes("https://opentelemetry.io/schemas/1.26.0", service...),
	}
	c.scopes = []instrumentation.Scope{
		{Name: "app"},
		{},
		{Name: "app", Version: "1.2.3", SchemaURL: "https://opentelemetry.io/schemas/1.37.0"},
		{Name: "app", Attributes: attribute.NewSet(c.everyType("scope.")...)},
		{Version: "a version alone"},
	}
	c.sdk = newSDK()
	drawn := make([]sdktrace.ReadOnlySpan, n)
	for i := range drawn {
		drawn[i] = c.next(i)
		c.last = drawn[i].SpanContext()
	}
	return drawn
}

// next makes the i-th span. The shapes that are dear are rare.
func (c *corpus) next(i int) sdktrace.ReadOnlySpan {
	stub := c.stub()
	switch {
	case i%2500 == 9:
		stub.Attributes = append(stub.Attributes, attribute.String("huge", c.long(900<<10)))
	case i%500 == 11:
		c.manyEvents(&stub)
	case i%500 == 15:
		c.manyLinks(&stub)
	case i%500 == 22:
		c.manyAttributes(&stub)
	case i%100 == 19:
		stub.Attributes = append(stub.Attributes, attribute.String("long", c.long(64<<10)),
			attribute.ByteSlice("long.bytes", []byte(c.long(10<<10))), attribute.String(c.long(1<<10), "long key"))
		stub.Name, stub.Status = c.long(8<<10), sdktrace.Status{Code: codes.Error, Description: c.long(9 << 10)}
	}
	switch i % 10 {
	case 0:
		c.zeroHalves(&stub, i/10)
	case 1:
		stub.Attributes = append(c.everyType(""), stub.Attributes...)
	case 2:
		stub.Attributes = append(c.conventional(), stub.Attributes...)
		stub.SpanKind = trace.SpanKind(1 + c.IntN(5))
	case 3:
		return c.sdk.play(stub, tightLimits)
	case 4:
		return c.sdk.play(stub, noLimits)
	case 5:
		stub.Attributes = append(stub.Attributes, attribute.String("serve.request_id", fmt.Sprintf("r-%d", i)),
			attribute.String("serve.task_id", fmt.Sprintf("%040x01000000", i)))
	case 6:
		stub.Events, stub.Links, stub.Attributes = nil, nil, nil
	case 7, 8:
		return c.odd(stub, i/10).Snapshot()
	}
	return c.sdk.play(stub, defaultLimits)
}

// stub draws a span that a tracer provider can make: sampled, of a valid kind,
// with valid ids of its own, from the year 2000 or later.
func (c *corpus) stub() tracetest.SpanStub {
	stub := c.Stub()
	c.made++
	cfg := trace.SpanContextConfig{TraceID: stub.SpanContext.TraceID(), SpanID: stub.SpanContext.SpanID(), TraceFlags: trace.FlagsSampled}
	binary.BigEndian.PutUint32(cfg.SpanID[4:], c.made) // so that each is there once
	switch c.IntN(4) {
	case 0: // a root
		stub.Parent = trace.SpanContext{}
	case 1: // of a remote parent
		stub.Parent = c.SpanContext().WithTraceID(cfg.TraceID).WithRemote(true)
	default: // of the one before
		stub.Parent = c.last.WithRemote(false)
		if c.last.IsValid() {
			cfg.TraceID = c.last.TraceID()
		}
	}
	cfg.TraceFlags |= stub.Parent.TraceFlags()
	cfg.TraceState = stub.Parent.TraceState()
	stub.SpanContext = trace.NewSpanContext(cfg)
	stub.SpanKind = trace.SpanKind(1 + c.IntN(5))
	stub.StartTime = time.Unix(1_000_000_000+c.Int64N(2_000_000_000), c.Int64N(1e9))
	stub.EndTime = stub.StartTime.Add(time.Duration(c.Int64N(1 << c.IntN(50))))
	stub.Resource = c.resources[c.IntN(len(c.resources))]
	stub.InstrumentationScope = c.scopes[c.IntN(len(c.scopes))]
	return stub
}

// zeroHalves gives the span ids one half of which is zero.
func (c *corpus) zeroHalves(stub *tracetest.SpanStub, i int) {
	traceID, spanID := stub.SpanContext.TraceID(), stub.SpanContext.SpanID()
	switch i % 3 {
	case 0:
		clear(traceID[:8])
		traceID[15] |= 1
	case 1:
		clear(traceID[8:])
		traceID[0] |= 1
	case 2:
		binary.BigEndian.PutUint32(spanID[:], c.made)
		clear(spanID[4:])
	}
	stub.SpanContext = stub.SpanContext.WithTraceID(traceID).WithSpanID(spanID)
	if stub.Parent.IsValid() {
		stub.Parent = stub.Parent.WithTraceID(traceID)
	}
}

// odd changes a span into one that no tracer provider makes, but the SDK's types allow.
func (c *corpus) odd(stub tracetest.SpanStub, i int) tracetest.SpanStub {
	drawn := c.Stub() // anything at all
	switch i % 10 {
	case 0:
		stub.StartTime, stub.EndTime = time.Time{}, time.Time{}
	case 1:
		stub.EndTime = time.Time{}
	case 2:
		stub.StartTime, stub.EndTime = stub.EndTime, stub.StartTime
	case 3:
		stub.StartTime, stub.EndTime = drawn.StartTime, drawn.EndTime
	case 4:
		stub.Resource = nil
	case 5:
		stub = tracetest.SpanStub{SpanContext: stub.SpanContext}
	case 6:
		stub.SpanKind, stub.DroppedAttributes = drawn.SpanKind, drawn.DroppedAttributes
		stub.DroppedEvents, stub.DroppedLinks = drawn.DroppedEvents, drawn.DroppedLinks
	case 7:
		stub.StartTime, stub.EndTime = time.Unix(0, 0), time.Unix(0, math.MaxInt64)
	case 8:
		stub.Parent = drawn.SpanContext // of another trace
	case 9:
		stub.Attributes = append(stub.Attributes, attribute.Bool("twice", true), attribute.Int("twice", 2), attribute.KeyValue{})
		stub.Attributes = append(stub.Attributes, attribute.KeyValue{Key: "deep", Value: nested(60)})
	}
	return stub
}

func nested(depth int) attribute.Value {
	v := attribute.StringValue("bottom")
	for i := range depth {
		if i%2 == 0 {
			v = attribute.SliceValue(v)
		} else {
			v = attribute.MapValue(attribute.KeyValue{Key: "k", Value: v})
		}
	}
	return v
}

// long draws text of n bytes or a little less.
func (c *corpus) long(n int) string {
	piece := fmt.Sprintf("%016x é", c.Uint64())
	return strings.Repeat(piece, n/len(piece))
}

func (c *corpus) manyEvents(stub *tracetest.SpanStub) {
	stub.Events = nil
	for i := range 128 {
		stub.Events = append(stub.Events, sdktrace.Event{
			Name: fmt.Sprintf("event %d", i), Time: stub.StartTime.Add(time.Duration(i)), Attributes: c.Attributes(6),
		})
	}
}

func (c *corpus) manyLinks(stub *tracetest.SpanStub) {
	stub.Links = nil
	for i := range 128 {
		stub.Links = append(stub.Links, sdktrace.Link{
			SpanContext: c.SpanContext(), Attributes: append(c.Attributes(6), attribute.Int("link", i)),
		})
	}
}

func (c *corpus) manyAttributes(stub *tracetest.SpanStub) {
	for i := range 128 {
		stub.Attributes = append(stub.Attributes, attribute.KeyValue{Key: attribute.Key(fmt.Sprintf("key.%d", i)), Value: c.Value(2)})
	}
}

// everyType gives attributes of all types, empty and extreme ones.
func (c *corpus) everyType(prefix string) []attribute.KeyValue {
	key := func(name string) attribute.Key { return attribute.Key(prefix + name) }
	return []attribute.KeyValue{
		key("bool").Bool(c.IntN(2) == 0), key("int").Int64(c.Int64()), key("int.zero").Int64(0),
		key("int.least").Int64(math.MinInt64), key("int.most").Int64(math.MaxInt64), key("int.exact").Int64(1 << 53),
		key("float").Float64(c.NormFloat64()), key("float.nan").Float64(math.NaN()), key("float.inf").Float64(math.Inf(-1)),
		key("float.zero").Float64(math.Copysign(0, -1)), key("float.least").Float64(math.SmallestNonzeroFloat64), key("float.whole").Float64(3),
		key("string").String(c.Text()), key("string.empty").String(""),
		key("bools").BoolSlice([]bool{true, false}), key("bools.none").BoolSlice(nil),
		key("ints").Int64Slice([]int64{1, -1, math.MaxInt64}), key("ints.none").Int64Slice([]int64{}),
		key("floats").Float64Slice([]float64{1, 0.1, math.NaN(), math.Inf(1)}), key("floats.none").Float64Slice(nil),
		key("strings").StringSlice([]string{"a", "", "é"}), key("strings.none").StringSlice(nil),
		key("bytes").ByteSlice([]byte{0, 0xff, 0xfe, 'x'}), key("bytes.none").ByteSlice(nil),
		key("slice").Slice(attribute.StringValue("a"), attribute.IntValue(1), attribute.Value{}), key("slice.none").Slice(),
		key("slice.same").Slice(attribute.IntValue(1), attribute.IntValue(2)),
		key("map").Map(attribute.String("b", "2"), attribute.Int("a", 1), attribute.Map("m", attribute.Bool("x", true))),
		key("map.none").Map(),
		{Key: key("empty")},
	}
}
