package sink

import (
	"bytes"
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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
)

// receiver counts spans, and answers after a pause.
type receiver struct {
	spans atomic.Uint64
	shut  atomic.Bool

	buffers sync.Pool // of *bytes.Buffer
}

// serve is the sink's process. It writes its addresses, and serves until in ends.
func serve(_ []string, in io.Reader, out io.Writer) error {
	// The work keeps hardly one thread busy. A second thread, which wakes up and then
	// spins, was a fifth of the sink's cost.
	runtime.GOMAXPROCS(1)
	t := &receiver{buffers: sync.Pool{New: func() any { return new(bytes.Buffer) }}}
	rpc := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec{}), grpc.UnknownServiceHandler(t.receiveGRPC), grpc.MaxRecvMsgSize(64<<20))
	a := Addresses{PID: os.Getpid()}
	ended := make(chan error, 3)
	listen := func(address *string, serve func(net.Listener) error) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("sink: %w", err)
		}
		*address = l.Addr().String()
		go func() { ended <- serve(l) }() // ends with this process
		return nil
	}
	web := &http.Server{Handler: t.handler(), ReadHeaderTimeout: 10 * time.Second}
	err := errors.Join(listen(&a.HTTP, web.Serve), listen(&a.GRPC, rpc.Serve))
	if err := errors.Join(err, json.NewEncoder(out).Encode(a)); err != nil {
		return err
	}
	go func() { // ends with in, which the parent's death closes
		_, err := io.Copy(io.Discard, in)
		ended <- err
	}()
	return <-ended
}

// handler returns the handler of all paths. It has the endpoints of a real Datadog
// agent, so that the tracer computes statistics, and ignores all but traces.
func (t *receiver) handler() http.Handler {
	mux := http.NewServeMux()
	otlp := func(latency time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if t.shut.Load() {
				panic(http.ErrAbortHandler)
			}
			time.Sleep(latency)
			w.Header().Set("Content-Type", "application/x-protobuf")
			t.receive(w, r, otlpwire.CountSpans, "") // an empty ExportTraceServiceResponse has no bytes
		}
	}
	mux.HandleFunc("POST /v1/traces", otlp(0))
	mux.HandleFunc("POST "+SlowPath+"/v1/traces", otlp(Latency))
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"version":"7.80.0","endpoints":["/v0.4/traces","/v0.6/stats","/telemetry/proxy/"],"client_drop_p0s":true,"span_events":true}`)
	})
	mux.HandleFunc("/v0.4/traces", func(w http.ResponseWriter, r *http.Request) {
		t.receive(w, r, countDatadog, `{"rate_by_service":{"service:,env:":1}}`)
	})
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("GET /control/spans", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(t.spans.Load()) })
	for path, shut := range map[string]bool{"GET /control/open": false, "GET /control/shut": true} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(t.shut.Swap(shut))
		})
	}
	return mux
}

// receive counts the spans of a body, plain or gzip, and answers.
func (t *receiver) receive(w http.ResponseWriter, r *http.Request, count func(body []byte) (spans int, err error), answer string) {
	body := t.buffers.Get().(*bytes.Buffer)
	defer t.buffers.Put(body)
	body.Reset()
	var from io.Reader = r.Body
	var err error
	if r.Header.Get("Content-Encoding") == "gzip" {
		from, err = gzip.NewReader(r.Body)
	}
	if err == nil {
		_, err = body.ReadFrom(from)
	}
	spans := 0
	if err == nil {
		spans, err = count(body.Bytes())
	}
	t.spans.Add(uint64(spans)) //nolint:gosec // a count; before the answer
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, answer)
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

// receiveGRPC receives a call of any service.
func (t *receiver) receiveGRPC(_ any, stream grpc.ServerStream) error {
	var request wire.Incoming
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	spans, err := otlpwire.CountSpans(request.Data)
	t.spans.Add(uint64(spans)) //nolint:gosec // a count; before the answer
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return stream.SendMsg(&wire.Outgoing{})
}
