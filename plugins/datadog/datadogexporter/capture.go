package datadogexporter

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/DataDog/datadog-go/v5/statsd"
	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
)

// capture is what has left the tracer and no Export has taken yet.
type capture struct {
	mu       sync.Mutex
	serves   *native // the owner, for RoundTrip
	payloads []payload
	// chunks are those that have left the tracer: in payloads, dropped by its
	// sampler, and dropped by its other means.
	chunks        int
	filteredSpans int
	fault         error // of a payload that can not be read
}

// serve has requests of the tracer go to n's agent.
func (c *capture) serve(n *native) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serves = n
}

// begin counts chunks from zero. Payloads that have come meanwhile stay.
func (c *capture) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chunks = 0
}

func (c *capture) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chunks
}

func (c *capture) take() (payloads []payload, filteredSpans int, fault error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	payloads, filteredSpans, fault = c.payloads, c.filteredSpans, c.fault
	c.payloads, c.filteredSpans, c.fault = nil, 0, nil
	return payloads, filteredSpans, fault
}

var _ http.RoundTripper = (*encoder)(nil)

// RoundTrip is what the tracer takes for the agent. Payloads of traces and
// statistics are kept, and answered with the sampling rates that the agent gave
// last. Telemetry goes to the agent if the operator says so. The rest goes to the
// agent as it is.
func (e *encoder) RoundTrip(req *http.Request) (*http.Response, error) {
	e.mu.Lock()
	n := e.serves
	e.mu.Unlock()
	switch path := req.URL.Path; {
	case strings.HasSuffix(path, tracesPath), strings.HasSuffix(path, statsPath):
		if err := e.keep(req); err != nil {
			return nil, err
		}
		return answer(req, http.StatusOK, n.lastRates()), nil
	case strings.HasPrefix(path, "/telemetry/") && !n.settings.telemetry, req.URL.Host != tracersAgent:
		discard(req)
		return answer(req, http.StatusAccepted, nil), nil
	}
	return n.settings.agent.pass(req)
}

// tracersAgent is the address that the tracer has for its agent.
const tracersAgent = "agent.invalid:8126"

// keep reads a payload.
func (e *encoder) keep(req *http.Request) error {
	defer func() { _ = req.Body.Close() }()
	var body bytes.Buffer
	body.Grow(int(max(0, req.ContentLength)) + bytes.MinRead)
	if _, err := body.ReadFrom(req.Body); err != nil {
		return fmt.Errorf("read what the tracer sends to %s: %w", req.URL.Path, err)
	}
	p := payload{path: req.URL.Path, header: req.Header.Clone(), body: body.Bytes()}
	var fault error
	gone := 0
	if strings.HasSuffix(p.path, tracesPath) {
		gone = p.number(headerTraceCount) + p.number(headerDroppedTraces)
		if p.number(headerTraceCount) == 0 { // a probe at its start
			return nil
		}
		fault = p.read()
	}
	e.mu.Lock()
	e.payloads = append(e.payloads, p)
	e.chunks += gone
	if fault != nil {
		e.fault = fault
	}
	e.mu.Unlock()
	e.changed()
	return nil
}

func (e *encoder) changed() {
	select {
	case e.captured <- struct{}{}:
	default: // it has not been seen yet that there is more
	}
}

func discard(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

func answer(req *http.Request, status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Request: req,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// health receives the tracer's metrics about itself, of which it counts the
// chunks that the tracer drops without telling the agent.
type health struct {
	statsd.NoOpClientDirect
	encoder *encoder
}

var _ tracer.StatsdClient = (*health)(nil)

// Names of dd-trace-go's metrics.
const (
	metricTracesDropped = "datadog.tracer.traces_dropped"
	metricSpansDropped  = "datadog.tracer.spans_dropped"
	tagFiltered         = "reason:trace_filter"
	tagEncoding         = "reason:encoding_error"
	tagQueueFull        = "reason:queue_full"
)

// Incr counts one.
func (h *health) Incr(name string, tags []string, rate float64) error {
	return h.Count(name, 1, tags, rate)
}

// Count counts what is dropped.
func (h *health) Count(name string, value int64, tags []string, _ float64) error {
	if len(tags) == 0 || tags[0] != tagFiltered && tags[0] != tagEncoding && tags[0] != tagQueueFull {
		return nil
	}
	e := h.encoder
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case name == metricTracesDropped:
		e.chunks += int(value)
		e.changed()
	case name == metricSpansDropped && tags[0] == tagFiltered:
		e.filteredSpans += int(value)
	}
	return nil
}

// noRates is the answer before the agent has given one.
var noRates = []byte("{}")

// rates are the sampling rates that the agent answered last, in JSON.
type rates struct{ atomic.Pointer[[]byte] }

func (n *native) lastRates() []byte {
	if known := n.rates.Load(); known != nil {
		return *known
	}
	return noRates
}
