package hellotest

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Receiver is a back end for OTLP over HTTP on its own port, for a plugin under test.
// It is safe for concurrent use.
type Receiver struct {
	// URL is the receiver's address, a value for OTEL_EXPORTER_OTLP_ENDPOINT.
	URL string

	mu       sync.Mutex
	answer   http.HandlerFunc // nil: spans are accepted
	requests []Request
	changed  chan struct{} // closed by each request
}

// Request is a request that a [Receiver] got.
type Request struct {
	Path   string
	Header http.Header
	// Spans are the spans of the request, in their order.
	Spans []Arrived
	// Taken reports that the Receiver accepted the spans, so no function of Answer was
	// set.
	Taken bool
}

// Arrived is a received span with its resource's attributes.
type Arrived struct {
	*tracepb.Span
	Resource []*commonpb.KeyValue
}

// Text returns the text of an attribute, or "" if there is none.
func Text(attributes []*commonpb.KeyValue, key string) string {
	for _, kv := range attributes {
		if kv.GetKey() == key {
			return kv.GetValue().GetStringValue()
		}
	}
	return ""
}

// StartReceiver starts a receiver that accepts all spans. It closes with the test.
func StartReceiver(tb testing.TB) *Receiver {
	tb.Helper()
	r := &Receiver{changed: make(chan struct{})}
	server := httptest.NewServer(r)
	tb.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// Answer makes f answer all further requests instead of accepting their spans. Nil
// accepts spans again.
func (r *Receiver) Answer(f http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// Requests returns the requests so far.
func (r *Receiver) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Await waits until n spans were accepted and returns them. It fails the test if they
// do not arrive.
func (r *Receiver) Await(tb testing.TB, n int) []Arrived {
	tb.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		var taken []Arrived
		for _, request := range r.Requests() {
			if request.Taken {
				taken = append(taken, request.Spans...)
			}
		}
		if len(taken) >= n {
			return taken
		}
		select {
		case <-changed:
		case <-late.C:
			tb.Fatalf("%d of %d spans within %v, and %d requests", len(taken), n, Patience, len(r.Requests()))
		}
	}
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	spans, err := decode(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	answer := r.answer
	r.requests = append(r.requests, Request{Path: req.URL.Path, Header: req.Header.Clone(), Spans: spans, Taken: answer == nil})
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	if answer != nil {
		answer(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf") // the body is an empty message
}

// decode returns the spans of a request.
func decode(req *http.Request) ([]Arrived, error) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = unzipped
	}
	encoded, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var message coltracepb.ExportTraceServiceRequest
	if err := proto.Unmarshal(encoded, &message); err != nil {
		return nil, err
	}
	var spans []Arrived
	for _, resource := range message.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				spans = append(spans, Arrived{span, resource.GetResource().GetAttributes()})
			}
		}
	}
	return spans, nil
}
