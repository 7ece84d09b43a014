package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/tinylib/msgp/msgp"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// receiver counts spans, and answers after a pause.
type receiver struct {
	spans   atomic.Uint64
	latency atomic.Int64
	closed  atomic.Bool

	buffers sync.Pool // of *bytes.Buffer
	unzip   sync.Pool // of *gzip.Reader
}

func newReceiver() *receiver {
	t := &receiver{}
	t.buffers.New = func() any { return new(bytes.Buffer) }
	t.unzip.New = func() any { return new(gzip.Reader) }
	return t
}

// serve is the sink's process. It writes its addresses, and serves until in or ctx
// ends.
func serve(ctx context.Context, _ []string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The work keeps hardly one thread busy. Waking a second thread, which then spins,
	// was a fifth of the sink's cost.
	runtime.GOMAXPROCS(1)
	t := newReceiver()
	otlp := http.NewServeMux()
	otlp.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		if t.closed.Load() {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		t.receive(w, r, otlpwire.CountSpans, "") // an empty ExportTraceServiceResponse has no bytes
	})
	rpc := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(t.receiveGRPC), grpc.MaxRecvMsgSize(64<<20))

	a := Addresses{PID: os.Getpid()}
	ended := make(chan error, 4)
	listen := func(address *string, serve func(net.Listener) error) error {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("sink: %w", err)
		}
		*address = l.Addr().String()
		go func() { ended <- serve(l) }() // ends with this process
		return nil
	}
	serveHTTP := func(h http.Handler) func(net.Listener) error {
		return (&http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}).Serve
	}
	err := errors.Join(listen(&a.HTTP, serveHTTP(otlp)), listen(&a.Datadog, serveHTTP(t.agent())), listen(&a.Control, serveHTTP(t.control())), listen(&a.GRPC, rpc.Serve))
	if err := errors.Join(err, json.NewEncoder(out).Encode(a)); err != nil {
		return err
	}
	go func() { // ends with in, which the parent's death closes
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// control returns the handler of the parent's requests.
func (t *receiver) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /spans", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(t.spans.Load()) })
	mux.HandleFunc("POST /open", func(_ http.ResponseWriter, r *http.Request) { t.closed.Store(r.FormValue("open") == "false") })
	mux.HandleFunc("POST /latency", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.FormValue("d"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		t.latency.Store(int64(d))
	})
	return mux
}

// agent returns a handler with the API of a Datadog agent. It has the endpoints of a
// real agent, so that the tracer computes statistics, and ignores all but traces.
func (t *receiver) agent() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"version":"7.80.0","endpoints":["/v0.4/traces","/v0.6/stats","/telemetry/proxy/"],"client_drop_p0s":true,"span_events":true}`)
	})
	mux.HandleFunc("/v0.4/traces", func(w http.ResponseWriter, r *http.Request) {
		t.receive(w, r, countDatadog, `{"rate_by_service":{"service:,env:":1}}`)
	})
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	return mux
}

// receive counts the spans of a body, waits, and answers.
func (t *receiver) receive(w http.ResponseWriter, r *http.Request, count func(body []byte) (spans int, err error), answer string) {
	body := t.buffers.Get().(*bytes.Buffer)
	defer t.buffers.Put(body)
	body.Reset()
	err := t.read(body, r)
	spans := 0
	if err == nil {
		spans, err = count(body.Bytes())
	}
	t.book(r.Context(), spans)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, answer)
}

// read reads a body, plain or gzip.
func (t *receiver) read(into *bytes.Buffer, r *http.Request) error {
	if r.Header.Get("Content-Encoding") != "gzip" {
		if r.ContentLength > 0 {
			into.Grow(int(r.ContentLength) + bytes.MinRead)
		}
		_, err := into.ReadFrom(r.Body)
		return err
	}
	unzip := t.unzip.Get().(*gzip.Reader)
	defer t.unzip.Put(unzip)
	if err := unzip.Reset(r.Body); err != nil {
		return err
	}
	_, err := into.ReadFrom(unzip)
	return err
}

// book waits for the latency, and counts spans before their request is answered.
func (t *receiver) book(ctx context.Context, spans int) {
	if d := time.Duration(t.latency.Load()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	t.spans.Add(uint64(spans)) //nolint:gosec // a count
}

// countDatadog counts the spans of a payload of version 0.4: arrays of arrays of spans.
func countDatadog(payload []byte) (spans int, err error) {
	traces, rest, err := msgp.ReadArrayHeaderBytes(payload)
	if err != nil {
		return 0, err
	}
	for range traces {
		var n uint32
		if n, rest, err = msgp.ReadArrayHeaderBytes(rest); err != nil {
			return 0, err
		}
		for range n {
			if rest, err = msgp.Skip(rest); err != nil {
				return 0, err
			}
			spans++
		}
	}
	return spans, nil
}
