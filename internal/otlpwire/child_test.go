package otlpwire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// randomSpan returns a span with all kinds of fields in random numbers, repeated keys,
// and unknown fields.
func randomSpan(tb testing.TB, random *rand.Rand) *tracepb.Span {
	tb.Helper()
	attributes := func() []*commonpb.KeyValue {
		var kvs []*commonpb.KeyValue
		for range random.IntN(4) {
			kvs = append(kvs, text(opKeys[random.IntN(len(opKeys))], string(make([]byte, random.IntN(200)))))
		}
		return kvs
	}
	s := &tracepb.Span{Name: opKeys[random.IntN(len(opKeys))], Attributes: attributes()}
	for range random.IntN(5) {
		s.Events = append(s.Events, &tracepb.Span_Event{
			Name: opKeys[random.IntN(len(opKeys))], TimeUnixNano: random.Uint64N(3), Attributes: attributes(),
		})
	}
	for range random.IntN(3) {
		s.Links = append(s.Links, &tracepb.Span_Link{TraceState: "a=1", Flags: uint32(random.IntN(3)), Attributes: attributes()})
	}
	if random.IntN(2) == 0 {
		s.Status = &tracepb.Status{Code: tracepb.Status_StatusCode(random.IntN(3)), Message: "m"}
	}
	if random.IntN(4) == 0 {
		withUnknown(s.ProtoReflect())
	}
	return s
}

// shuffled writes the fields of a span in another order, as a sender may: events
// among links, the name last.
func shuffled(tb testing.TB, random *rand.Rand, span *tracepb.Span) []byte {
	tb.Helper()
	raw := marshal(tb, span)
	var fields [][]byte
	for len(raw) > 0 {
		_, _, n := protowire.ConsumeField(raw)
		if n < 0 {
			tb.Fatal(protowire.ParseError(n))
		}
		fields = append(fields, raw[:n])
		raw = raw[n:]
	}
	random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return slices.Concat(fields...)
}

// TestEditRandom does some edits to 3,500 spans, of every kind and in every
// order, and compares with messages decoded, edited and encoded.
func TestEditRandom(t *testing.T) {
	const requests, spans = 700, 5
	random := rand.New(rand.NewPCG(1, 2))
	for range requests {
		var raw []byte
		for range spans {
			raw = append(raw, wrap(shuffled(t, random, randomSpan(t, random)))...)
		}
		r, n := parse(t, raw), newNaive(unmarshal(t, raw))
		for range random.IntN(20) {
			apply(r, n, byte(random.UintN(256)), byte(random.UintN(256)), opKeys[random.IntN(len(opKeys))])
		}
		checkEdited(t, r, n)
		if t.Failed() {
			t.Fatalf("request %x", raw)
		}
	}
}

// TestEditManyEvents: the cost of an event does not depend on the number of events. A
// search from the first event for each would take minutes.
func TestEditManyEvents(t *testing.T) {
	const events = 30_000
	span := &tracepb.Span{}
	for range events {
		span.Events = append(span.Events, &tracepb.Span_Event{Name: "e", Attributes: []*commonpb.KeyValue{text("k", "v")}})
	}
	r := parse(t, wrap(marshal(t, span)))
	n := 0
	for s := range r.Spans() {
		for e := range s.Events() {
			e.SetAttribute(attribute.String("k", "w"))
			if v, ok := e.Attribute("k"); !ok || v.AsString() != "w" {
				t.Fatalf("event %d has k = %q, %v", n, v.AsString(), ok)
			}
			s.AddEvent("added", 1)
			n++
		}
	}
	got := unmarshal(t, r.AppendTo(nil)).ResourceSpans[0].ScopeSpans[0].Spans[0].Events
	if n != events || len(got) != 2*events || got[events-1].Attributes[0].Value.GetStringValue() != "w" || got[events].Name != "added" {
		t.Errorf("%d events were edited, %d are written, want %d and %d", n, len(got), events, 2*events)
	}
}

// TestEditManyAttributes: likewise for attributes that are edited where a loop
// meets them.
func TestEditManyAttributes(t *testing.T) {
	const attributes = 20_000
	span := &tracepb.Span{}
	for i := range attributes {
		span.Attributes = append(span.Attributes, integer(fmt.Sprint("k", i), 1))
	}
	r, n := parse(t, wrap(marshal(t, span))), 0
	for s := range r.Spans() {
		for kv := range s.Attributes() {
			k := string(kv.Key)
			if n++; n%3 == 0 {
				s.DeleteAttribute(k)
			} else {
				s.SetAttribute(attribute.Int(k, 2))
			}
		}
	}
	got := unmarshal(t, r.AppendTo(nil)).ResourceSpans[0].ScopeSpans[0].Spans[0].Attributes
	if n != attributes || len(got) != attributes-attributes/3 || got[0].Value.GetIntValue() != 2 {
		t.Errorf("%d attributes were edited, %d are written, want %d and %d", n, len(got), attributes, attributes-attributes/3)
	}
}

// TestSearchMany: likewise for keys that are searched in another order than
// theirs, in a resource that came in pieces, and for spans that ask for their
// scope and resource.
func TestSearchMany(t *testing.T) {
	const n = 20_000
	message := func(num protowire.Number, content []byte) []byte {
		return appendField(nil, uint32(num), content)
	}
	var resource []byte
	for i := range n {
		piece := message(field.ResourceAttributes, marshal(t, integer(fmt.Sprint("k", i), int64(i))))
		resource = append(resource, message(field.ResourceSpansResource, piece)...)
	}
	scope := message(field.ScopeSpansScope, message(field.ScopeName, []byte("s")))
	scope = append(scope, bytes.Repeat(message(field.ScopeSpansSpans, nil), n)...)
	r := parse(t, message(field.RequestResourceSpans, append(resource, message(field.ResourceSpansScopeSpans, scope)...)))
	i := n
	for s := range r.Spans() {
		i--
		key := fmt.Sprint("k", i)
		if v, ok := s.Resource().Attribute(key); !ok || v.AsInt64() != int64(i) || s.Scope().Name() != "s" {
			t.Fatalf("%s is %d, %v, in scope %q", key, v.AsInt64(), ok, s.Scope().Name())
		}
		if i%2 == 0 {
			s.Resource().DeleteAttribute(key)
		} else {
			s.Resource().SetAttribute(attribute.Int(key, -i))
		}
	}
	got := unmarshal(t, r.AppendTo(nil)).ResourceSpans[0].Resource.Attributes
	if len(got) != n/2 || got[0].Key != "k1" || got[0].Value.GetIntValue() != -1 {
		t.Errorf("%d attributes are left, the first %v, want %d and k1 = -1", len(got), got[0], n/2)
	}
}

// TestAddWhileReading: an element that is added in a loop does not prolong the loop, and
// is in the next one.
func TestAddWhileReading(t *testing.T) {
	r := parse(t, marshal(t, sample(1)))
	for s := range r.Spans() {
		for loop := range 3 {
			events, links := 0, 0
			for e := range s.Events() {
				s.AddEvent("again "+e.Name(), e.Time())
				events++
			}
			for l := range s.Links() {
				s.AddLink(l.TraceID(), l.SpanID(), l.TraceState(), l.Flags())
				links++
			}
			if wantEvents, wantLinks := 2<<loop, 1<<loop; events != wantEvents || links != wantLinks {
				t.Errorf("loop %d sees %d events, %d links, want %d, %d", loop, events, links, wantEvents, wantLinks)
			}
		}
	}
}

// TestAddedLink has all that it was given.
func TestAddedLink(t *testing.T) {
	r := parse(t, marshal(t, sample(1)))
	trace, id := [16]byte{1, 2}, [8]byte{3}
	for s := range r.Spans() {
		s.AddLink(trace, id, "a=1", 0x301, attribute.StringSlice("k\xff", []string{"a", "b"}))
		var last Link
		for l := range s.Links() {
			last = l
		}
		v, ok := last.Attribute("k\uFFFD")
		if last.TraceID() != trace || last.SpanID() != id || last.TraceState() != "a=1" || last.Flags() != 0x301 || !ok || v.Type() != attribute.STRINGSLICE {
			t.Errorf("link reads as %x %x %q %#x, attribute %v %v", last.TraceID(), last.SpanID(), last.TraceState(), last.Flags(), v, ok)
		}
	}
	links := unmarshal(t, r.AppendTo(nil)).ResourceSpans[0].ScopeSpans[0].Spans[0].Links
	want := &tracepb.Span_Link{TraceId: trace[:], SpanId: id[:], TraceState: "a=1", Flags: 0x301, Attributes: []*commonpb.KeyValue{
		{Key: "k\uFFFD", Value: array(textValue("a"), textValue("b"))},
	}}
	if got := links[len(links)-1]; !proto.Equal(got, want) {
		t.Errorf("link is %v, want %v", got, want)
	}
}

// TestEditMalformedChild: a fault in an event is reported, and the bytes are passed on.
func TestEditMalformedChild(t *testing.T) {
	event := append(marshal(t, &tracepb.Span_Event{Name: "e"}), 0x1a, 0x7f, 0x01)
	span := appendField(nil, field.SpanEvents, event)
	r := parse(t, wrap(span))
	for s := range r.Spans() {
		for e := range s.Events() {
			e.SetName("renamed")
			e.SetAttribute(attribute.Bool("b", true))
		}
		s.AddEvent("added", 1)
	}
	written := r.AppendTo(nil)
	if r.Err() == nil {
		t.Error("nobody is told")
	}
	if !slices.Equal(written[len(written)-3-len("\x5a\x10\x09\x01\x00\x00\x00\x00\x00\x00\x00\x12\x05added"):][:3], event[len(event)-3:]) {
		t.Errorf("the fault is not passed on in its place: %x", written)
	}
}

// TestChildAllocates: reading and editing an event or a link allocates nothing, except
// for growing slices.
func TestChildAllocates(t *testing.T) {
	kv := attribute.String("exception.message", "hidden")
	allocs := func(n int) float64 {
		req := marshal(t, sample(n))
		dst := make([]byte, 0, 4*len(req))
		return testing.AllocsPerRun(5, func() {
			r, err := Parse(req)
			if err != nil {
				t.Fatal(err)
			}
			for s := range r.Spans() {
				for e := range s.Events() {
					e.SetAttribute(kv)
					e.DeleteAttribute("exception.type")
					e.SetName("e")
				}
				for l := range s.Links() {
					l.SetAttribute(kv)
				}
				s.AddEvent("added", 1, kv)
				s.Scope().SetAttribute(kv)
			}
			dst = r.AppendTo(dst[:0])
		})
	}
	const few, many = 100, 700
	if perSpan := (allocs(many) - allocs(few)) / (3 * (many - few)); perSpan > 0.05 {
		t.Errorf("%.2f allocations a span, want none", perSpan)
	}
}

// TestScopeIsMerged: a scope that a sender wrote in pieces becomes one.
func TestScopeIsMerged(t *testing.T) {
	ss := slices.Concat(
		marshal(t, &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: "first", Attributes: []*commonpb.KeyValue{text("k", "v")}}}),
		marshal(t, &tracepb.ScopeSpans{Spans: []*tracepb.Span{{Name: "s"}}, Scope: &commonpb.InstrumentationScope{Name: "second"}}))
	rs := appendField(nil, field.ResourceSpansScopeSpans, ss)
	raw := appendField(nil, field.RequestResourceSpans, rs)
	r := parse(t, raw)
	for s := range r.Spans() {
		s.Scope().SetAttribute(attribute.String("k", "w"))
	}
	got := unmarshal(t, r.AppendTo(nil)).ResourceSpans[0].ScopeSpans[0].Scope
	want := &commonpb.InstrumentationScope{Name: "second", Attributes: []*commonpb.KeyValue{text("k", "w")}}
	if !proto.Equal(got, want) {
		t.Errorf("scope is %v, want %v", got, want)
	}
	if d := gocmp.Diff("second", slices.Collect(r.Spans())[0].Scope().Name()); d != "" {
		t.Errorf("name (-want +got):\n%s", d)
	}
}
