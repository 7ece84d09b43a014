package otlpwire

import (
	"bytes"
	"testing"

	"go.opentelemetry.io/otel/attribute"
)

// TestRelease: the memory of edits serves the next request, which sees nothing
// of them; who reads on sees what arrived.
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
		for s := range late.Spans() {
			if _, found := s.Attribute("team"); found || s.Name() == "edited" {
				t.Error("a request that was released reads another's edits")
			}
		}
		next.Release()
	}
	edit(late)
	if got := late.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("edited after its release: got %x, want %x", got, want)
	}
}
