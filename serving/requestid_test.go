package serving

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestRequestID(t *testing.T) {
	for _, tt := range []struct {
		name string
		sent []string
		kept bool
	}{
		{"none", nil, false},
		{"empty", []string{""}, false},
		{"uuid", []string{"0b9f1c0e-7f3a-4c6b-9d52-2f1f0b6a7c11"}, true},
		{"load balancer's", []string{"Root=1-67891233-abcdef012345678912345678"}, true},
		{"base64", []string{"q83vEjRWeJA+/w=="}, true},
		{"longest", []string{strings.Repeat("a", 128)}, true},
		{"too long", []string{strings.Repeat("a", 129)}, false},
		{"space", []string{"a b"}, false},
		{"quote", []string{`a"b`}, false},
		{"backslash", []string{`a\b`}, false},
		{"comma", []string{"a,b"}, false},
		{"percent", []string{"a%0d%0ab"}, false},
		{"control", []string{"a\x01"}, false},
		{"not ASCII", []string{"ü"}, false},
		{"markup", []string{"<a>"}, false},
		{"the first of two", []string{"first", "second"}, true},
		{"a bad first of two", []string{"bad one", "second"}, false},
	} {
		got := requestID(http.Header{headerRequestID: tt.sent})
		if tt.kept {
			if got != tt.sent[0] {
				t.Errorf("%s: %q became %q", tt.name, tt.sent, got)
			}
			continue
		}
		if id, err := uuid.Parse(got); err != nil || id.Version() != 4 || id.Variant() != uuid.RFC4122 {
			t.Errorf("%s: %q became %q, want a UUIDv4", tt.name, tt.sent, got)
		}
	}
}

// TestRequestIDEverywhere: the same id in response, spans, log and handler.
func TestRequestIDEverywhere(t *testing.T) {
	r := start(t, Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-ID", "the handler's own")
	}))
	got := r.get("/", "x-request-id", "client-7")
	if ids := got.header.Values("X-Request-ID"); len(ids) != 1 || ids[0] != "client-7" {
		t.Errorf("response has X-Request-ID %q", ids)
	}
	for _, s := range r.spans.take(t, 3) {
		for _, key := range []string{"request_id", "serve.request_id"} {
			if v, _ := attr(s, key); v.AsString() != "client-7" {
				t.Errorf("span %q has %s %q", s.Name(), key, v.AsString())
			}
		}
	}
	if id := r.access.take(t, "request", 1)[0]["request_id"]; id != "client-7" {
		t.Errorf("log has request_id %v", id)
	}
}

func FuzzRequestID(f *testing.F) {
	f.Add("abc")
	f.Add("a\r\nSet-Cookie: x")
	f.Fuzz(func(t *testing.T, sent string) {
		got := requestID(http.Header{headerRequestID: {sent}})
		if !validRequestID(got) {
			t.Errorf("%q became %q", sent, got)
		}
	})
}
