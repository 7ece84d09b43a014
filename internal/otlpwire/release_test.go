package otlpwire

import (
	"bytes"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
)

// TestRelease: the memory of edits serves the next request, which does not see them. A
// reader after the release, against the rules, sees neither edits of others nor its own
// removed data.
func TestRelease(t *testing.T) {
	req := batchOf(t, 3)
	edit := func(r *Request) {
		for s := range r.Spans() {
			s.SetAttribute(attribute.String("team", "search"))
			s.DeleteAttribute("http.route")
			s.AddEvent("seen", 1)
			s.SetName("edited")
		}
	}
	late, err := Parse(req)
	if err != nil {
		t.Fatal(err)
	}
	edit(late)
	want := late.AppendTo(nil)
	kept := slices.Collect(late.Spans())
	late.Release()
	for range 3 {
		next, err := Parse(req)
		if err != nil {
			t.Fatal(err)
		}
		if next.Edited() || !bytes.Equal(next.AppendTo(nil), req) {
			t.Fatal("a new request begins with edits")
		}
		edit(next)
		if got := next.AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("got %x, want %x", got, want)
		}
		for _, s := range kept {
			for kv := range s.Attributes() {
				t.Errorf("a request that was released still has %s=%v", kv.Key, kv.Value)
			}
			if s.Name() != "" || s.SpanID() != [8]byte{} || s.Scope().Name() != "" {
				t.Errorf("a request that was released still has the span %q of %q", s.Name(), s.Scope().Name())
			}
			for kv := range s.Resource().Attributes() {
				t.Errorf("a request that was released still has a resource with %s", kv.Key)
			}
		}
		next.Release()
	}
	edit(late)
	if got := late.AppendTo(nil); len(got) != 0 || late.Len() != 0 {
		t.Errorf("edited after its release it has %d spans, in %x", late.Len(), got)
	}
}

// TestReleaseUnedited: a request that was only read is as it was.
func TestReleaseUnedited(t *testing.T) {
	req := batchOf(t, 3)
	r, err := Parse(req)
	if err != nil {
		t.Fatal(err)
	}
	for s := range r.Spans() {
		if _, found := s.Attribute("http.route"); !found {
			t.Fatal("no attribute to search for")
		}
	}
	r.Release()
	if got := r.AppendTo(nil); !bytes.Equal(got, req) || r.Len() != 3 {
		t.Errorf("%d spans, in %x", r.Len(), got)
	}
}
