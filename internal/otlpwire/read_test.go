package otlpwire

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// render reads all that a request's views give, one line for each.
func render(r *Request) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	attrs := func(seq iter.Seq[attribute.KeyValue]) string {
		var all []string
		for kv := range seq {
			all = append(all, fmt.Sprintf("%s=%v:%v", kv.Key, kv.Value.Type(), kv.Value.String()))
		}
		return strings.Join(all, " ")
	}
	for res := range r.Resources() {
		add("resource %q [%s] dropped %d", res.SchemaURL(), attrs(res.Attributes()), res.DroppedAttributes())
	}
	for s := range r.Spans() {
		sc := s.Scope()
		add("scope %q %q %q [%s] dropped %d of [%s]", sc.Name(), sc.Version(), sc.SchemaURL(),
			attrs(sc.Attributes()), sc.DroppedAttributes(), attrs(s.Resource().Attributes()))
		code, message := s.Status()
		add("span %q kind %d ids %x %x %x state %q flags %#x time %d-%d status %d %q [%s] dropped %d %d %d",
			s.Name(), s.Kind(), s.TraceID(), s.SpanID(), s.ParentID(), s.TraceState(), s.Flags(), s.Start(), s.End(),
			code, message, attrs(s.Attributes()), s.DroppedAttributes(), s.DroppedEvents(), s.DroppedLinks())
		for e := range s.Events() {
			add("event %q at %d [%s] dropped %d", e.Name(), e.Time(), attrs(e.Attributes()), e.DroppedAttributes())
		}
		for l := range s.Links() {
			add("link %x %x state %q flags %#x [%s] dropped %d", l.TraceID(), l.SpanID(), l.TraceState(), l.Flags(),
				attrs(l.Attributes()), l.DroppedAttributes())
		}
	}
	return lines
}

func TestRead(t *testing.T) {
	r := parse(t, marshal(t, sample(1)))
	resource := `resource "https://example.org/resource" [service.name=STRING:hello host.name=STRING:h] dropped 8`
	span := func(name, of string) []string {
		return []string{
			`scope "` + name + `" "v1" "https://example.org/scope" [scoped=STRING:` + name + `] dropped 6 of [` + of + `]`,
			`span "` + name + ` 0" kind 2 ids 30313233343536373839616263646566 3031323334353637 6162636465666768` +
				` state "a=1" flags 0x301 time 1-1152921504606846976 status 2 "boom"` +
				` [http.route=STRING:/a twice=INT64:1 =STRING:no key twice=INT64:2 last=INT64:-1] dropped 3 4 5`,
			`event "exception" at 7 [exception.type=STRING:E] dropped 1`,
			`event "second" at 0 [] dropped 0`,
			`link 66656463626139383736353433323130 6867666564636261 state "b=2" flags 0x100 [l=INT64:1] dropped 2`,
		}
	}
	of := "service.name=STRING:hello host.name=STRING:h"
	want := slices.Concat([]string{resource, `resource "" [] dropped 0`}, span("a", of), span("b", of), span("c", ""))
	checkDecode(t, r)
	if d := cmp.Diff(want, render(r)); d != "" {
		t.Errorf("views (-want +got):\n%s", d)
	}
	if r.Len() != 3 || r.Err() != nil || r.Edited() {
		t.Errorf("Len() = %d, Err() = %v, Edited() = %v, want 3, nil, false", r.Len(), r.Err(), r.Edited())
	}
}

func TestFindAttribute(t *testing.T) {
	r := parse(t, marshal(t, sample(1)))
	for s := range r.Spans() {
		for key, want := range map[string]string{"twice": "2", "": "no key", "http.route": "/a"} {
			if got, ok := s.Attribute(key); !ok || got.String() != want {
				t.Errorf("attribute %q = %q, %v, want %q", key, got.String(), ok, want)
			}
		}
		if got, ok := s.Attribute("absent"); ok || got.Type() != attribute.EMPTY {
			t.Errorf("attribute that is absent = %v, %v", got, ok)
		}
		for e := range s.Events() {
			_, ok := e.Attribute("exception.type")
			if want := e.Name() == "exception"; ok != want {
				t.Errorf("event %q has exception.type: %v, want %v", e.Name(), ok, want)
			}
		}
		for l := range s.Links() {
			if got, ok := l.Attribute("l"); !ok || got.AsInt64() != 1 {
				t.Errorf("link's attribute = %v, %v, want 1", got, ok)
			}
		}
		if got, ok := s.Scope().Attribute("scoped"); !ok || got.AsString() != s.Scope().Name() {
			t.Errorf("scope's attribute = %q, %v, want %q", got.AsString(), ok, s.Scope().Name())
		}
	}
}

// TestViewsCompare: views of shared parts are equal.
func TestViewsCompare(t *testing.T) {
	r := parse(t, marshal(t, sample(2)))
	resources, scopes, spans := map[Resource]int{}, map[Scope]int{}, map[Span]int{}
	for s := range r.Spans() {
		resources[s.Resource()]++
		scopes[s.Scope()]++
		spans[s]++
	}
	if len(resources) != 2 || len(scopes) != 3 || len(spans) != 6 {
		t.Errorf("%d resources, %d scopes, %d spans, want 2, 3, 6", len(resources), len(scopes), len(spans))
	}
}

// values are of every kind, as the encoder writes them.
var values = []attribute.Value{
	{},
	attribute.BoolValue(false),
	attribute.BoolValue(true),
	attribute.Int64Value(0),
	attribute.Int64Value(math.MinInt64),
	attribute.Float64Value(0),
	attribute.Float64Value(-1.5),
	attribute.StringValue(""),
	attribute.StringValue("text"),
	attribute.ByteSliceValue(nil),
	attribute.ByteSliceValue([]byte("\x00\xff")),
	attribute.BoolSliceValue([]bool{true, false}),
	attribute.BoolSliceValue([]bool{true, false, true, true, false}),
	attribute.Int64SliceValue([]int64{1, -2}),
	attribute.Int64SliceValue([]int64{1, -2, 3, 4, 5, 6, 7}),
	attribute.Float64SliceValue([]float64{1.5}),
	attribute.Float64SliceValue([]float64{1, 2, 3, 4}),
	attribute.StringSliceValue([]string{"a", "", "c"}),
	attribute.StringSliceValue([]string{"a", "b", "c", "d"}),
	attribute.SliceValue(),
	attribute.SliceValue(attribute.IntValue(1), attribute.StringValue("x"), attribute.Value{}),
	attribute.SliceValue(slices.Repeat([]attribute.Value{attribute.IntValue(1), attribute.BoolValue(true)}, 4)...),
	attribute.SliceValue(attribute.SliceValue(attribute.MapValue(attribute.Int("deep", 1))), attribute.Value{}),
	attribute.MapValue(),
	attribute.MapValue(attribute.Int("a", 1), attribute.StringSlice("b", []string{"x", "y"})),
	attribute.MapValue(attribute.Int("a", 1), attribute.Int("b", 2), attribute.Int("c", 3), attribute.Int("d", 4),
		attribute.Int("e", 5), attribute.KeyValue{Key: "f", Value: attribute.ByteSliceValue([]byte("x"))}),
}

// TestValueRoundTrip writes each kind and reads it back.
func TestValueRoundTrip(t *testing.T) {
	for _, want := range values {
		var w Writer
		w.value(&want)
		got := (&Request{}).value(part{raw: w.Bytes()}, maxDepth)
		if got.Type() != want.Type() || got != want {
			t.Errorf("%v %v: read back as %v %v", want.Type(), want, got.Type(), got)
		}
		if heap := ValueHeap(&want); heap < len(want.AsString()) {
			t.Errorf("%v %v: ValueHeap() = %d", want.Type(), want, heap)
		}
	}
}

// TestValueDepth: a value that is nested too deep is cut, and marked as cut.
func TestValueDepth(t *testing.T) {
	v := textValue("bottom")
	for range 10 * maxDepth {
		v = array(v)
	}
	r := parse(t, marshal(t, &request{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{
		Spans: []*tracepb.Span{{Attributes: []*commonpb.KeyValue{{Key: "deep", Value: v}}}},
	}}}}}))
	for s := range r.Spans() {
		deep, _ := s.Attribute("deep")
		depth := 0
		for got := deep; got.Type() == attribute.SLICE; got = got.AsSlice()[0] {
			depth++
		}
		if depth != maxDepth {
			t.Errorf("%d levels are left, want %d", depth, maxDepth)
		}
	}
	checkDecode(t, r)
	if r.Err() == nil || r.Err().Error() != "value nested deeper than 100 levels" {
		t.Errorf("Err() = %v", r.Err())
	}
}

// TestReadMerged: a message in pieces is read as protobuf reads it.
func TestReadMerged(t *testing.T) {
	span := slices.Concat(
		marshal(t, &tracepb.Span{Name: "first", Status: &tracepb.Status{Message: "kept", Code: 1}}),
		marshal(t, &tracepb.Span{Name: "second", Status: &tracepb.Status{Code: 2}}))
	keyValue := slices.Concat(
		marshal(t, &commonpb.KeyValue{Key: "first", Value: array(textValue("a"))}),
		marshal(t, &commonpb.KeyValue{Key: "k", Value: array(textValue("b"))}))
	span = appendField(span, field.SpanAttributes, keyValue)
	req := wrap(span)
	want := unmarshal(t, req).ResourceSpans[0].ScopeSpans[0].Spans[0]
	if want.Name != "second" || want.Status.Message != "kept" || len(want.Attributes[0].Value.GetArrayValue().Values) != 2 {
		t.Fatalf("protobuf reads something else than this test is about: %v", want)
	}
	r := parse(t, req)
	checkDecode(t, r)
	for s := range r.Spans() {
		code, message := s.Status()
		got := fmt.Sprint(s.Name(), code, message)
		for kv := range s.Attributes() {
			got += fmt.Sprint(kv.Key, kv.Value.AsStringSlice())
		}
		if want := "second2keptk[a b]"; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	}
}

// wrap makes a request of one span's bytes.
func wrap(span []byte) []byte {
	scope := appendField(nil, field.ScopeSpansSpans, span)
	resource := appendField(nil, field.ResourceSpansScopeSpans, scope)
	return appendField(nil, field.RequestResourceSpans, resource)
}

// TestMalformedOutside: a request that is cut short has whole messages, or is an error
// with an offset.
func TestMalformedOutside(t *testing.T) {
	whole := marshal(t, sample(1))
	for n := range whole {
		_, err := Parse(whole[:n])
		_, countErr := CountSpans(whole[:n])
		_, _, cutErr := Cut(whole[:n], 0, 1, 0)
		fits := proto.Unmarshal(whole[:n], &request{}) == nil
		for _, err := range []error{err, countErr, cutErr} {
			if fits != (err == nil) {
				t.Errorf("cut at %d: error %v, protobuf takes it: %v", n, err, fits)
			}
		}
		offset := -1
		if err != nil {
			if _, scanErr := fmt.Sscanf(err.Error(), "malformed OTLP at byte %d:", &offset); scanErr != nil || offset < 0 || offset > n {
				t.Errorf("cut at %d: error %q has no offset in the request", n, err)
			}
		}
	}
}

// TestMalformedInside: a fault in a span is reported, and affects nothing else.
func TestMalformedInside(t *testing.T) {
	good := marshal(t, &tracepb.Span{Name: "good"})
	req := slices.Concat(wrap(append(good, 0x4a, 0x7f, 0x01)), wrap(good))
	r := parse(t, req)
	var names []string
	for s := range r.Spans() {
		names = append(names, s.Name())
	}
	if d := cmp.Diff([]string{"good", "good"}, names); d != "" {
		t.Errorf("names (-want +got):\n%s", d)
	}
	if want := "malformed OTLP at byte 12: length past the end"; r.Err() == nil || r.Err().Error() != want {
		t.Errorf("Err() = %v, want %s", r.Err(), want)
	}
}

// FuzzParse reads, edits and splits any bytes.
func FuzzParse(f *testing.F) {
	whole := marshal(f, sample(2))
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{0x0b, 0x0a, 0x00, 0x0c})
	f.Fuzz(func(t *testing.T, req []byte) {
		n, countErr := CountSpans(req)
		r, err := Parse(req)
		if (err == nil) != (countErr == nil) {
			t.Fatalf("Parse: %v, CountSpans: %v", err, countErr)
		}
		if err != nil {
			return
		}
		if r.Len() != n {
			t.Errorf("Len() = %d, CountSpans() = %d", r.Len(), n)
		}
		render(r)
		checkDecode(t, r)
		pieces, err := cutAll(req[:min(len(req), 4096)], 1, 1)
		if len(req) <= 4096 && (err != nil || len(pieces) != n) {
			t.Errorf("%d spans cut into %d pieces, error %v", n, len(pieces), err)
		}
		for s := range r.Spans() {
			s.SetAttribute(attribute.String("http.route", "x"))
			s.SetStatus(1, "")
			s.SetName("x")
			s.Resource().SetAttribute(attribute.Bool("r", true))
			s.Scope().SetAttribute(attribute.Bool("s", true))
			for e := range s.Events() {
				e.SetAttribute(attribute.String("exception.type", "x"))
				e.SetName("x")
				s.AddEvent("again", e.Time())
			}
			for l := range s.Links() {
				l.DeleteAttribute("l")
				s.AddLink(l.TraceID(), l.SpanID(), l.TraceState(), l.Flags())
			}
		}
		if again, err := CountSpans(r.AppendTo(nil)); err != nil || again != n {
			t.Errorf("edited request has %d spans, error %v, want %d", again, err, n)
		}
		r.Release()
	})
}
