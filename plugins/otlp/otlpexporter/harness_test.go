package otlpexporter

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// discard is for servers of which a test makes noise.
var discard = log.New(io.Discard, "", 0)

// patience is how long a step may take on a busy machine.
const patience = time.Minute

// env makes a Setup of variables, written NAME=value.
func env(variables ...string) pluginsdk.Setup {
	return pluginsdk.Setup{
		Getenv: func(name string) string {
			for _, v := range variables {
				if key, text, _ := strings.Cut(v, "="); key == name {
					return text
				}
			}
			return ""
		},
		Log: slog.New(slog.DiscardHandler),
	}
}

// open makes an exporter that ends with the test.
func open(tb testing.TB, s pluginsdk.Setup) pluginsdk.Exporter {
	tb.Helper()
	e, err := New(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Shutdown(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// receiver is an HTTP back end.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
}

// request is one that came.
type request struct {
	*http.Request
	body []byte // without compression
}

// receive starts a back end that answers as the handler does, after it has read
// the request. nil: 200.
func receive(tb testing.TB, handler http.HandlerFunc) *receiver {
	tb.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(r.handler(tb, handler))
	tb.Cleanup(r.Close)
	return r
}

func (r *receiver) handler(tb testing.TB, handler http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var from io.Reader = req.Body
		if req.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(req.Body)
			if err != nil {
				tb.Errorf("request is not gzip: %v", err)
				return
			}
			from = z
		}
		body, err := io.ReadAll(from)
		if err != nil {
			tb.Errorf("read request: %v", err)
		}
		r.mu.Lock()
		r.requests = append(r.requests, request{req, body})
		r.mu.Unlock()
		if handler != nil {
			handler(w, req)
		}
	})
}

// all returns all requests that have arrived.
func (r *receiver) all() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// last returns the newest request.
func (r *receiver) last(tb testing.TB) request {
	tb.Helper()
	all := r.all()
	if len(all) == 0 {
		tb.Fatal("nothing has come")
	}
	return all[len(all)-1]
}

// some is a batch of n spans.
func some(tb testing.TB, n int) []byte {
	tb.Helper()
	spans := make([]*tracepb.Span, n)
	for i := range spans {
		spans[i] = &tracepb.Span{
			TraceId: bytes.Repeat([]byte{byte(i + 1)}, 16), SpanId: bytes.Repeat([]byte{byte(i + 1)}, 8),
			Name: "GET /items/{id}", StartTimeUnixNano: 1_700_000_000_000_000_000 + uint64(i), EndTimeUnixNano: 1_700_000_000_001_000_000,
			Attributes: []*commonpb.KeyValue{{
				Key: "http.route", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: "/items/{id}"}},
			}},
		}
	}
	return encode(tb, &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{},
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: "test"}, Spans: spans}},
	}}})
}

func encode(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	encoded, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return encoded
}

// export sends a batch of one span.
func export(tb testing.TB, e pluginsdk.Exporter) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	return e.Export(ctx, pluginsdk.NewBatch(some(tb, 1)))
}

func newGzip(w io.Writer) io.Writer { return gzip.NewWriter(w) }

// asHost is an error as the host has it, for which the SDK wraps it. Its text is
// without the SDK's.
func asHost(err error) *wire.Error {
	e := wire.FromStatus(wire.ToStatus(fmt.Errorf("export: %w", err)))
	e.Err = errors.New(strings.TrimPrefix(e.Error(), "export: "))
	return e
}
