package shapes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// arrived are the spans of a back end by their ids.
type arrived map[trace.SpanID]*oneSpan

// oneSpan is a span with everything that it lies under.
type oneSpan struct {
	*tracepb.Span
	// under is a ResourceSpans with one ScopeSpans without spans. Spans of one
	// scope of one batch share it: it is replaced, not changed.
	under *tracepb.ResourceSpans
	// place is under in bytes.
	place string
}

// byID splits the spans of a back end by id. A span that is there twice is an error.
func byID(tb testing.TB, all []*tracepb.ResourceSpans) arrived {
	tb.Helper()
	spans, twice := arrived{}, 0
	for _, rs := range all {
		for _, ss := range rs.GetScopeSpans() {
			scope := &tracepb.ScopeSpans{Scope: ss.GetScope(), SchemaUrl: ss.GetSchemaUrl()}
			scope.ProtoReflect().SetUnknown(ss.ProtoReflect().GetUnknown())
			under := &tracepb.ResourceSpans{Resource: rs.GetResource(), SchemaUrl: rs.GetSchemaUrl(), ScopeSpans: []*tracepb.ScopeSpans{scope}}
			under.ProtoReflect().SetUnknown(rs.ProtoReflect().GetUnknown())
			place := encode(tb, under)
			for _, s := range ss.GetSpans() {
				id := trace.SpanID(s.GetSpanId())
				if spans[id] != nil {
					twice++
				}
				spans[id] = &oneSpan{s, under, place}
			}
		}
	}
	if twice > 0 {
		tb.Errorf("%d spans have arrived twice", twice)
	}
	return spans
}

func encode(tb testing.TB, m proto.Message) string {
	tb.Helper()
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return string(encoded)
}

// whole is the span where it belongs.
func (s *oneSpan) whole() *tracepb.ResourceSpans {
	whole := proto.CloneOf(s.under)
	whole.ScopeSpans[0].Spans = []*tracepb.Span{s.Span}
	return whole
}

// sameAs compares bytes first, which nearly always decides, in a tenth of the
// time that proto.Equal takes.
func (s *oneSpan) sameAs(tb testing.TB, other *oneSpan) bool {
	tb.Helper()
	if s.place == other.place && encode(tb, s.Span) == encode(tb, other.Span) {
		return true
	}
	return proto.Equal(s.whole(), other.whole())
}

// clone returns a copy that may be changed.
func (a arrived) clone() arrived {
	copied := arrived{}
	for id, s := range a {
		copied[id] = &oneSpan{proto.CloneOf(s.Span), s.under, s.place}
	}
	return copied
}

// beyondTheSDK restores the values that the SDK's exporter loses and the host keeps: the
// trace state of links, and the schema of a resource with the same attributes as another
// resource in its batch.
func (a arrived) beyondTheSDK(tb testing.TB, spans []sdktrace.ReadOnlySpan) {
	tb.Helper()
	for _, s := range spans {
		one := a[s.SpanContext().SpanID()]
		if one == nil {
			continue
		}
		if r := s.Resource(); r != nil && r.SchemaURL() != one.under.GetSchemaUrl() {
			one.under = proto.CloneOf(one.under)
			one.under.SchemaUrl = r.SchemaURL()
			one.place = encode(tb, one.under)
		}
		for i, l := range s.Links() {
			one.Links[i].TraceState = l.SpanContext.TraceState().String()
		}
	}
}

// compare reports the spans whose got differs from want: their number, and the first few
// in full.
func compare(tb testing.TB, want, got arrived) {
	tb.Helper()
	report := differences{tb: tb}
	for _, id := range slices.SortedFunc(maps.Keys(want), compareIDs) {
		switch {
		case got[id] == nil:
			report.add(id, func() string { return "has not arrived:\n" + fmt.Sprint(want[id].whole()) })
		case !want[id].sameAs(tb, got[id]):
			report.add(id, func() string {
				return "(-want +got):\n" + cmp.Diff(want[id].whole(), got[id].whole(), protocmp.Transform(), cmpopts.EquateNaNs())
			})
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(got), compareIDs) {
		if want[id] == nil {
			report.add(id, func() string { return "should not have arrived:\n" + fmt.Sprint(got[id].whole()) })
		}
	}
	report.end(len(want))
}

func compareIDs(a, b trace.SpanID) int { return strings.Compare(string(a[:]), string(b[:])) }

// differences shows the first few and counts the rest.
type differences struct {
	tb    testing.TB
	count int
}

const shown = 5

func (d *differences) add(id trace.SpanID, text func() string) {
	d.tb.Helper()
	if d.count++; d.count <= shown {
		d.tb.Errorf("span %v %s", id, brief(text()))
	}
}

func (d *differences) end(of int) {
	d.tb.Helper()
	if d.count > 0 {
		d.tb.Errorf("%d of %d spans differ", d.count, of)
	}
}

// brief shortens a text.
func brief(text string) string {
	const enough = 8 << 10
	if len(text) <= enough {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:enough], len(text))
}

// TestCompareSees changes one thing at a time and demands that it is noticed.
func TestCompareSees(t *testing.T) {
	fresh := func() arrived {
		return byID(t, []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{
			{SpanId: []byte("12345678"), Links: []*tracepb.Span_Link{{Flags: 1}}}, {SpanId: []byte("abcdefgh")},
		}}}}})
	}
	id, other := trace.SpanID([]byte("12345678")), trace.SpanID([]byte("abcdefgh"))
	for name, change := range map[string]func(arrived){
		"nothing": func(arrived) {},
		"flags":   func(a arrived) { a[id].Links[0].Flags = 2 },
		"schema": func(a arrived) {
			*a[id] = *byID(t, []*tracepb.ResourceSpans{{SchemaUrl: "x", ScopeSpans: a[id].whole().ScopeSpans}})[id]
		},
		"missing":    func(a arrived) { delete(a, other) },
		"additional": func(a arrived) { a[trace.SpanID{1}] = a[other] },
	} {
		changed := fresh()
		change(changed)
		var quiet errorCount
		compare(&quiet, fresh(), changed)
		want := errorCount{n: 2} // the span, and the count
		if name == "nothing" {
			want.n = 0
		}
		if quiet.n != want.n {
			t.Errorf("%s: %d errors, want %d", name, quiet.n, want.n)
		}
	}
}

// errorCount counts errors instead of telling them.
type errorCount struct {
	testing.TB
	n int
}

func (*errorCount) Helper()                 {}
func (e *errorCount) Errorf(string, ...any) { e.n++ }
