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
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// receiver counts requests, and answers after a pause.
type receiver struct {
	spans, requests, bytes, bad atomic.Uint64
	latency                     atomic.Int64
	closed                      atomic.Bool

	buffers sync.Pool // of *bytes.Buffer
	unzip   sync.Pool // of *gzip.Reader
}

func newReceiver() *receiver {
	t := &receiver{}
	t.buffers.New = func() any { return new(bytes.Buffer) }
	t.unzip.New = func() any { return new(gzip.Reader) }
	return t
}

// pause waits for the latency that the parent has set.
func (t *receiver) pause(ctx context.Context) {
	d := time.Duration(t.latency.Load())
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// count adds a request with a body of size bytes. err is the error of reading it.
func (t *receiver) count(size int, spans int, err error) {
	t.requests.Add(1)
	t.bytes.Add(uint64(size))
	if err != nil {
		t.bad.Add(1)
		return
	}
	t.spans.Add(uint64(spans))
}

// serve is the sink's process. It writes its addresses, and serves until in or ctx
// ends.
func serve(ctx context.Context, _ []string, in io.Reader, out io.Writer) (failed error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The work keeps hardly one thread busy. Waking a second thread, which then spins,
	// was a fifth of the sink's cost.
	runtime.GOMAXPROCS(1)
	t := newReceiver()
	control := http.NewServeMux()
	control.HandleFunc("GET /counts", t.answerCounts)
	control.HandleFunc("POST /latency", t.setLatency)
	control.HandleFunc("POST /open", func(_ http.ResponseWriter, r *http.Request) { t.closed.Store(r.FormValue("open") == "false") })
	otlp := http.NewServeMux()
	otlp.HandleFunc("POST /v1/traces", t.receiveOTLP)
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
	err := errors.Join(listen(&a.HTTP, serveHTTP(otlp)), listen(&a.Datadog, serveHTTP(t.agent())), listen(&a.Control, serveHTTP(control)), listen(&a.GRPC, rpc.Serve))
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

// receiveOTLP receives a request of OTLP/HTTP, plain or gzip.
func (t *receiver) receiveOTLP(w http.ResponseWriter, r *http.Request) {
	if t.closed.Load() {
		panic(http.ErrAbortHandler)
	}
	body := t.buffers.Get().(*bytes.Buffer)
	defer t.buffers.Put(body)
	body.Reset()
	size, err := t.read(body, r)
	spans := 0
	if err == nil {
		spans, err = otlpwire.CountSpans(body.Bytes())
	}
	t.pause(r.Context())
	t.count(size, spans, err)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// An empty ExportTraceServiceResponse has no bytes.
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(http.StatusOK)
}

// read reads the body, decompresses it, and returns its size as received.
func (t *receiver) read(into *bytes.Buffer, r *http.Request) (size int, err error) {
	counted := &countingReader{r: r.Body}
	if r.Header.Get("Content-Encoding") != "gzip" {
		if r.ContentLength > 0 {
			into.Grow(int(r.ContentLength) + bytes.MinRead)
		}
		_, err = into.ReadFrom(counted)
		return counted.n, err
	}
	unzip := t.unzip.Get().(*gzip.Reader)
	defer t.unzip.Put(unzip)
	if err := unzip.Reset(counted); err != nil {
		return counted.n, err
	}
	_, err = into.ReadFrom(unzip)
	return counted.n, err
}

type countingReader struct {
	r io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func (t *receiver) answerCounts(w http.ResponseWriter, _ *http.Request) {
	// A request is counted before it is answered.
	_ = json.NewEncoder(w).Encode(Counts{
		Spans: t.spans.Load(), Requests: t.requests.Load(), Bytes: t.bytes.Load(), Bad: t.bad.Load(),
	})
}

func (t *receiver) setLatency(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.URL.Query().Get("d"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	t.latency.Store(int64(d))
}
