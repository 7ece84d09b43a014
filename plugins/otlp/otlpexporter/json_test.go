package otlpexporter

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/servetrace/servetrace/pluginsdk"
)

// jsonRequest is a request as a back end for OTLP/JSON reads it.
type jsonRequest struct {
	ResourceSpans []struct {
		ScopeSpans []struct {
			Spans []struct {
				TraceID string `json:"traceId"`
				Name    string `json:"name"`
			} `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

// spansOf reads a body as JSON does.
func spansOf(t *testing.T, body []byte) (ids, names []string) {
	t.Helper()
	var request jsonRequest
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&request); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				ids, names = append(ids, span.TraceID), append(names, span.Name)
			}
		}
	}
	return ids, names
}

// TestJSON: every span arrives in OTLP/JSON, with ids in hexadecimal. An
// undecoded batch would arrive empty.
func TestJSON(t *testing.T) {
	for _, compression := range []string{compressionNone, compressionGzip} {
		back := receive(t, nil)
		e := open(t, env(EnvProtocol+"=http/json", EnvEndpoint+"="+back.URL, EnvCompression+"="+compression, EnvHeaders+"=x-key=a"))
		const sent = 100
		b := pluginsdk.NewBatch(some(t, sent))
		for span := range b.Spans() {
			if span.SpanID()[0] == 2 {
				span.Drop()
				continue
			}
			span.SetName("edited")
		}
		if err := e.Export(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		got := back.last(t)
		if got.Header.Get("Content-Type") != kindJSON || got.URL.Path != "/v1/traces" || got.Header.Get("X-Key") != "a" {
			t.Errorf("%s: request is %s, %v", compression, got.URL, got.Header)
		}
		ids, names := spansOf(t, got.body)
		if len(ids) != sent-1 || ids[0] != "01010101010101010101010101010101" || names[0] != "edited" {
			t.Errorf("%s: %d spans arrived, want %d: %q %q", compression, len(ids), sent-1, ids, names)
		}
	}
}

// TestJSONOfNonsense: a batch that cannot be decoded is final.
func TestJSONOfNonsense(t *testing.T) {
	back := receive(t, nil)
	err := open(t, env(EnvProtocol+"=http/json", EnvEndpoint+"="+back.URL)).Export(t.Context(), pluginsdk.NewBatch(field(1, []byte{0xff})))
	if err == nil || !pluginsdk.Final(err) || len(back.all()) != 0 {
		t.Errorf("got %v, and %d requests; want a final error", err, len(back.all()))
	}
}
