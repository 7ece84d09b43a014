package sink

import (
	"bytes"
	"io"
	"net/http"

	"github.com/tinylib/msgp/msgp"
)

// agent returns a handler with the API of a Datadog agent. It counts the spans of
// traces of version 0.4, which are arrays of arrays of spans. It has the endpoints
// of a real agent, so that the tracer computes statistics.
func (t *receiver) agent() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"version":"7.80.0","endpoints":["/v0.4/traces","/v0.6/stats","/telemetry/proxy/"],"client_drop_p0s":true,"span_events":true}`)
	})
	traces := func(w http.ResponseWriter, r *http.Request) {
		body := t.buffers.Get().(*bytes.Buffer)
		defer t.buffers.Put(body)
		body.Reset()
		size, err := t.read(body, r)
		spans := 0
		if err == nil {
			spans, err = countDatadog(body.Bytes())
		}
		t.pause(r.Context())
		t.count(size, spans, err)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"rate_by_service":{"service:,env:":1}}`)
	}
	mux.HandleFunc("PUT /v0.4/traces", traces)
	mux.HandleFunc("POST /v0.4/traces", traces)
	// Statistics, telemetry and all else are ignored.
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	return mux
}

// countDatadog counts the spans of a payload of v0.4.
func countDatadog(payload []byte) (spans int, err error) {
	traces, rest, err := msgp.ReadArrayHeaderBytes(payload)
	if err != nil {
		return 0, err
	}
	for range traces {
		var n uint32
		if n, rest, err = msgp.ReadArrayHeaderBytes(rest); err != nil {
			return spans, err
		}
		for range n {
			if rest, err = msgp.Skip(rest); err != nil {
				return spans, err
			}
			spans++
		}
	}
	return spans, nil
}
