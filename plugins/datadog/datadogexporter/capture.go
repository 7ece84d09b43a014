package datadogexporter

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/DataDog/datadog-go/v5/statsd"
	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
)

// capture is the transport of the tracer's HTTP client. It keeps payloads of traces and
// statistics until the encoder takes them, and passes other requests to the agent. It is
// safe for concurrent use.
type capture struct {
	// changed receives a value when chunks have left the tracer. Its capacity is 1.
	changed chan struct{}

	mu       sync.Mutex
	serves   *native // the exporter for which the tracer runs
	payloads []payload
	// chunks is the number of chunks that have left the tracer since resetChunks: chunks in
	// payloads, and chunks that the tracer has dropped for any reason.
	chunks        int
	filteredSpans int
	readErr       error // the error of a payload that could not be parsed, or nil
}

// serve sets the exporter for which the tracer runs.
func (c *capture) serve(n *native) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serves = n
}

// resetChunks sets the number of chunks to zero. It keeps the payloads.
func (c *capture) resetChunks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chunks = 0
}

func (c *capture) leftChunks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chunks
}

func (c *capture) take() (payloads []payload, filteredSpans int, readErr error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	payloads, filteredSpans, readErr = c.payloads, c.filteredSpans, c.readErr
	c.payloads, c.filteredSpans, c.readErr = nil, 0, nil
	return payloads, filteredSpans, readErr
}

var _ http.RoundTripper = (*capture)(nil)

// RoundTrip answers the tracer in place of the agent. It keeps payloads of traces and
// statistics, and answers them with the agent's last sampling rates. It discards requests
// to other hosts, and telemetry unless the operator has enabled it. It passes other
// requests to the agent.
func (c *capture) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	n := c.serves
	c.mu.Unlock()
	switch path := req.URL.Path; {
	case strings.HasSuffix(path, tracesPath), strings.HasSuffix(path, statsPath):
		if err := c.keep(req); err != nil {
			return nil, err
		}
		return answer(req, http.StatusOK, *n.rates.Load()), nil
	case strings.HasPrefix(path, "/telemetry/") && !n.settings.telemetry, req.URL.Host != tracersAgent:
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return answer(req, http.StatusAccepted, nil), nil
	}
	return n.settings.agent.pass(req)
}

// tracersAgent is the address of the agent that the tracer is configured with. RoundTrip
// replaces it by the real address.
const tracersAgent = "agent.invalid:8126"

// keep stores a payload that the tracer sends.
func (c *capture) keep(req *http.Request) error {
	defer func() { _ = req.Body.Close() }()
	var body bytes.Buffer
	body.Grow(int(max(0, req.ContentLength)) + bytes.MinRead)
	if _, err := body.ReadFrom(req.Body); err != nil {
		return fmt.Errorf("read the tracer's request to %s: %w", req.URL.Path, err)
	}
	p := payload{path: req.URL.Path, header: req.Header.Clone(), body: body.Bytes()}
	var readErr error
	chunks := 0
	if strings.HasSuffix(p.path, tracesPath) {
		chunks = p.number(headerTraceCount) + p.number(headerDroppedTraces)
		if p.number(headerTraceCount) == 0 { // the tracer checks the agent by an empty request when it starts
			return nil
		}
		readErr = p.read()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.payloads = append(c.payloads, p)
	if readErr != nil {
		c.readErr = readErr
	}
	c.addChunks(chunks)
	return nil
}

// addChunks adds to the number of chunks that have left the tracer, and signals the change.
// The caller holds mu.
func (c *capture) addChunks(n int) {
	c.chunks += n
	select {
	case c.changed <- struct{}{}:
	default: // the channel already has a value
	}
}

func answer(req *http.Request, status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Request: req,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// health receives the tracer's metrics about itself. It counts the chunks that the tracer
// has dropped but does not report in a payload.
type health struct {
	statsd.NoOpClientDirect
	capture *capture
}

var _ tracer.StatsdClient = (*health)(nil)

// Names and tags of dd-trace-go's metrics about dropped traces and spans.
const (
	metricTracesDropped = "datadog.tracer.traces_dropped"
	metricSpansDropped  = "datadog.tracer.spans_dropped"
	tagFiltered         = "reason:trace_filter"
	tagEncoding         = "reason:encoding_error"
	tagQueueFull        = "reason:queue_full"
)

// Incr adds 1 to a metric, as Count does.
func (h *health) Incr(name string, tags []string, rate float64) error {
	return h.Count(name, 1, tags, rate)
}

// Count adds value to the count of dropped chunks or spans, if name and tags are about
// these.
func (h *health) Count(name string, value int64, tags []string, _ float64) error {
	if len(tags) == 0 || tags[0] != tagFiltered && tags[0] != tagEncoding && tags[0] != tagQueueFull {
		return nil
	}
	c := h.capture
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case name == metricTracesDropped:
		c.addChunks(int(value))
	case name == metricSpansDropped && tags[0] == tagFiltered:
		c.filteredSpans += int(value)
	}
	return nil
}
