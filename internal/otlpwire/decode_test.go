package otlpwire

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkDecode compares the result of one walk with the views of a request without edits.
func checkDecode(t *testing.T, r *Request) {
	t.Helper()
	var d Decoded
	for s := range r.Spans() {
		s.Decode(&d)
		want := Decoded{
			TraceID: s.TraceID(), SpanID: s.SpanID(), ParentID: s.ParentID(), TraceState: s.TraceState(), Name: s.Name(),
			Flags: s.Flags(), Kind: s.Kind(), Start: s.Start(), End: s.End(),
			DroppedAttributes: s.DroppedAttributes(), DroppedEvents: s.DroppedEvents(), DroppedLinks: s.DroppedLinks(),
		}
		want.Code, want.Message = s.Status()
		for range s.Events() {
			want.Events++
		}
		for range s.Links() {
			want.Links++
		}
		var wants, gots []string
		for kv := range s.Attributes() {
			wants = append(wants, fmt.Sprintf("%s=%v:%v", kv.Key, kv.Value.Type(), kv.Value.String()))
		}
		for _, kv := range d.Attributes {
			gots = append(gots, fmt.Sprintf("%s=%v:%v", kv.Key, kv.Value.Type(), kv.Value.String()))
		}
		if diff := cmp.Diff(wants, gots); diff != "" {
			t.Errorf("attributes (-views +decoded):\n%s", diff)
		}
		got := d
		got.Attributes = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("span (-views +decoded):\n%s", diff)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	req := batchOf(b, batch)
	var d Decoded
	b.ReportAllocs()
	for b.Loop() {
		r, err := Parse(req)
		if err != nil {
			b.Fatal(err)
		}
		for s := range r.Spans() {
			s.Decode(&d)
		}
	}
	perSpan(b)
}
