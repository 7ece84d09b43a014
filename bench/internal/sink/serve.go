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
	"syscall"
	"time"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// taker counts what comes and answers after a pause.
type taker struct {
	spans, requests, bytes, bad atomic.Uint64
	latency                     atomic.Int64

	buffers sync.Pool // of *bytes.Buffer
	unzip   sync.Pool // of *gzip.Reader
}

func newTaker() *taker {
	t := &taker{}
	t.buffers.New = func() any { return new(bytes.Buffer) }
	t.unzip.New = func() any { return new(gzip.Reader) }
	return t
}

// pause is what a slow back end makes its clients wait.
func (t *taker) pause(ctx context.Context) {
	d := time.Duration(t.latency.Load())
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// count books a body of so many bytes by what count makes of it.
func (t *taker) count(size int, spans int, err error) {
	t.requests.Add(1)
	t.bytes.Add(uint64(size))
	if err != nil {
		t.bad.Add(1)
		return
	}
	t.spans.Add(uint64(spans))
}

// Serve is the sink's process: it prints its addresses to stdout as a line of
// JSON and serves until stdin or ctx ends.
func Serve(ctx context.Context, stdin io.Reader, stdout io.Writer) (failed error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// One thread at a time: what comes has hardly work for two, and to wake a second,
	// which then looks for some, was a fifth of what the sink cost.
	runtime.GOMAXPROCS(1)
	t := newTaker()
	otlp := http.NewServeMux()
	otlp.HandleFunc("POST /v1/traces", t.takeOTLP)
	door, err := newDoor(otlp)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, door.end()) }()
	control := http.NewServeMux()
	control.HandleFunc("POST /door", door.takeDoor)
	control.HandleFunc("GET /counts", t.answerCounts)
	control.HandleFunc("POST /latency", t.takeLatency)
	rpc := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(t.takeGRPC), grpc.MaxRecvMsgSize(64<<20))

	a := Addresses{PID: os.Getpid(), HTTP: door.address}
	serve := make(chan error, 4)
	servers := []*http.Server{}
	for _, s := range []struct {
		handler http.Handler
		address *string
	}{{t.agent(), &a.Datadog}, {control, &a.Control}} {
		l, err := listen(s.address)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second}
		servers = append(servers, server)
		go func() { serve <- server.Serve(l) }() // ended by the loop over servers
	}
	l, err := listen(&a.GRPC)
	if err != nil {
		return err
	}
	go func() { serve <- rpc.Serve(l) }() // ended by rpc.Stop
	if err := json.NewEncoder(stdout).Encode(a); err != nil {
		return err
	}
	go func() { // ends with stdin, which the parent's death closes at the latest
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	<-ctx.Done()
	for _, s := range servers {
		_ = s.Close()
	}
	rpc.Stop()
	for range len(servers) + 1 {
		if err := <-serve; err != nil && !errors.Is(err, http.ErrServerClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func listen(address *string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	*address = l.Addr().String()
	return l, nil
}

// keepPort binds a port and does not listen at it. Others may, with SO_REUSEADDR,
// which package net sets.
func keepPort(address *string) (func(), error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("sink: keep a port: %w", err)
	}
	free := func() { _ = syscall.Close(fd) }
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		free()
		return nil, fmt.Errorf("sink: keep a port: %w", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		free()
		return nil, fmt.Errorf("sink: keep a port: %w", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		free()
		return nil, fmt.Errorf("sink: keep a port: %w", err)
	}
	if inet, ok := name.(*syscall.SockaddrInet4); ok {
		*address = fmt.Sprintf("127.0.0.1:%d", inet.Port)
	}
	return free, nil
}

// takeOTLP takes a request of OTLP/HTTP, plain or gzip.
func (t *taker) takeOTLP(w http.ResponseWriter, r *http.Request) {
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
	// An empty ExportTraceServiceResponse is no bytes at all.
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(http.StatusOK)
}

// read gives the body, decompressed, and its size as it came.
func (t *taker) read(into *bytes.Buffer, r *http.Request) (size int, err error) {
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

func (t *taker) answerCounts(w http.ResponseWriter, _ *http.Request) {
	// Whoever has had an answer is in the counts: they are booked before.
	_ = json.NewEncoder(w).Encode(Counts{
		Spans: t.spans.Load(), Requests: t.requests.Load(), Bytes: t.bytes.Load(), Bad: t.bad.Load(),
	})
}

func (t *taker) takeLatency(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.URL.Query().Get("d"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	t.latency.Store(int64(d))
}
