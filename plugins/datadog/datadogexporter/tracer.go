package datadogexporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
)

// theEncoder is dd-trace-go, of which a process has one: its tracer is global,
// and so are its settings.
var theEncoder = &encoder{turn: make(chan struct{}, 1), captured: make(chan struct{}, 1)}

// encoder makes dd-trace-go turn spans into what an agent reads, and nothing
// else: the tracer's HTTP client ends in this type, which keeps each payload for
// the caller instead of sending it. So the one who sends has the status, the
// deadline and the connection in his hands, a payload belongs to the call that
// made it, whatever the network does, and nothing that dd-trace-go does by
// itself (telemetry, remote configuration, statistics) leaves the process.
type encoder struct {
	// turn is held, by what lies in it, by whoever starts, uses or stops the
	// tracer. It guards running, users and the order of everything else.
	turn    chan struct{}
	running *encoding // nil: the tracer is stopped
	users   int       // exporters that have not been shut down

	// captured has something in it when payloads has grown.
	captured chan struct{}

	mu       sync.Mutex
	answer   []byte // what the tracer is told of the agent
	payloads []payload
	chunks   int // in payloads
}

// encoding is what the bytes look like. Comparable.
type encoding struct {
	// v1: the agent takes /v1.0/traces, and the operator wants it used.
	v1 bool
	// events: the agent takes a span's events as such; else they are a tag of JSON.
	events bool
	// passed are the variables that the tracer is shown, in lines of NAME=value.
	passed string
}

// enter waits for the turn. The caller must leave.
func (e *encoder) enter(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *encoder) leave() { <-e.turn }

// encode gives what bridge starts and ends in the tracer, so many chunks, as
// payloads in the form that want says. It touches no network: what it waits for
// is the tracer's own worker.
func (e *encoder) encode(ctx context.Context, want encoding, log tracer.Logger, chunks int, bridge func()) ([]payload, error) {
	if err := e.enter(ctx); err != nil {
		return nil, err
	}
	defer e.leave()
	if e.running == nil || *e.running != want {
		if err := e.start(want, log); err != nil {
			return nil, err
		}
	}
	bridge()
	if e.collect(ctx, chunks) {
		return merge(e.take())
	}
	// Not all of them came out. The end of the tracer is the one point where it
	// is sure that no more will: nothing of this batch may reach the next.
	e.stop()
	payloads := e.take()
	got := 0
	for _, p := range payloads {
		got += p.chunks
	}
	if got == chunks {
		return merge(payloads) // it was slow, that is all
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("%w: %d of %d chunks", errNotEncoded, got, chunks)
}

// errNotEncoded is what dd-trace-go leaves of a trace that it can not encode,
// such as one of more than 100,000 spans in a batch. It would do it again.
var errNotEncoded = errors.New("the Datadog tracer did not encode all of the batch")

// Pace of collect.
const (
	// flushPace is how long the tracer's worker may work undisturbed between two
	// flushes: each cuts a payload. There is nothing to wait for that says that
	// the worker has come to the end of its queue.
	flushPace = time.Millisecond
	// encodePatience is how long it may show nothing new, on a machine that is
	// busy with other things.
	encodePatience = 10 * time.Second
)

// collect waits until n chunks have come, and gives up where nothing comes, or
// ctx ends.
func (e *encoder) collect(ctx context.Context, n int) bool {
	pace := time.NewTimer(flushPace)
	defer pace.Stop()
	last, since := -1, time.Now()
	for {
		tracer.Flush() // returns when the payload is cut; it comes from another goroutine
		got := e.count()
		if got >= n {
			return got == n
		}
		if got != last {
			last, since = got, time.Now()
		} else if time.Since(since) > encodePatience {
			return false
		}
		pace.Reset(flushPace)
		select {
		case <-e.captured:
		case <-pace.C:
		case <-ctx.Done():
			return false
		}
	}
}

func (e *encoder) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.chunks
}

// take gives what has been captured, and forgets it.
func (e *encoder) take() []payload {
	e.mu.Lock()
	defer e.mu.Unlock()
	payloads := e.payloads
	e.payloads, e.chunks = nil, 0
	return payloads
}

// start starts the tracer, in place of one that runs.
func (e *encoder) start(want encoding, log tracer.Logger) error {
	e.stop()
	e.take() // nothing; a start-up probe at most
	e.mu.Lock()
	e.answer = want.info()
	e.mu.Unlock()
	err := withEnvironment(want.passed, func() error {
		return tracer.Start(
			tracer.WithHTTPClient(&http.Client{Transport: e}),
			tracer.WithAgentURL("http://localhost:8126"), // of which nobody hears
			tracer.WithLogger(log),
			tracer.WithTraceEnabled(true),
			// A service of its own would stand on each span as its base service. A
			// value that is no text leaves the tracer without one, and is no tag.
			tracer.WithGlobalTag("service", []string{}),
		)
	})
	if err != nil {
		return fmt.Errorf("start the Datadog tracer: %w", err)
	}
	e.running = &want
	return nil
}

// stop ends the tracer, which writes out what it has first.
func (e *encoder) stop() {
	if e.running == nil {
		return
	}
	tracer.Stop()
	e.running = nil
}

// use counts an exporter in.
func (e *encoder) use(ctx context.Context) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.leave()
	e.users++
	return nil
}

// release counts an exporter out, and ends the tracer with the last.
func (e *encoder) release(ctx context.Context) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.leave()
	if e.users--; e.users == 0 {
		e.stop()
		e.take()
	}
	return nil
}

var _ http.RoundTripper = (*encoder)(nil)

// RoundTrip is what the tracer takes for the agent: always there, and content.
func (e *encoder) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
		var err error
		if body, err = readAll(req); err != nil {
			return nil, fmt.Errorf("read what the tracer sends to %s: %w", req.URL.Path, err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case req.URL.Path == infoPath:
		return answer(req, http.StatusOK, e.answer), nil
	case !strings.HasSuffix(req.URL.Path, "/traces"):
		return answer(req, http.StatusNotFound, nil), nil
	}
	chunks, err := strconv.Atoi(req.Header.Get(headerTraceCount))
	if err != nil {
		return nil, fmt.Errorf("the tracer's header %s: %w", headerTraceCount, err)
	}
	if chunks > 0 {
		e.payloads = append(e.payloads, payload{req.URL.Path, req.Header.Clone(), body, chunks})
		e.chunks += chunks
		select {
		case e.captured <- struct{}{}:
		default: // it has not been seen yet that there is more
		}
	}
	return answer(req, http.StatusOK, []byte("{}")), nil
}

// readAll reads a body whose length is known.
func readAll(req *http.Request) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(int(max(0, req.ContentLength)) + bytes.MinRead)
	_, err := buf.ReadFrom(req.Body)
	return buf.Bytes(), err
}

func answer(req *http.Request, status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Request: req,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// info is the agent that the tracer is told of. It takes no statistics, drops
// nothing and filters nothing, so that the tracer does none of it: a batch that
// is sent again would count twice, and what is left out would be missing from
// the books. The agent itself does all three.
func (f encoding) info() []byte {
	endpoints := `"/v0.4/traces"`
	if f.v1 {
		endpoints += `,"/v1.0/traces"`
	}
	return fmt.Appendf(nil, `{"endpoints":[%s],"span_events":%t,"client_drop_p0s":false}`, endpoints, f.events)
}
