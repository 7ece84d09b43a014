package serveload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// RoleServer is the argument that makes the program a server.
const RoleServer = "serve"

// Who serves.
const (
	byBare   = "bare"   // net/http or grpc-go alone
	byHeaded = "headed" // the same, and each answer has an id of its request
	byOurs   = "ours"

	byThreeSpans = "threespans" // the same, and makes three spans with OpenTelemetry's SDK, batch processor and exporter in process
)

// ready is the first line that a server writes.
type ready struct {
	Addr string `json:"addr"` // host:port
}

// usage is what a server has used since its start. It writes one for each line
// that it reads.
type usage struct {
	CPU     time.Duration `json:"cpu_ns"`   // user and system
	Ended   time.Duration `json:"ended_ns"` // the same of child processes that have ended
	Objects uint64        `json:"objects"`  // allocated
	Bytes   uint64        `json:"bytes"`    // allocated
}

// books are what became of a server's spans.
type books struct {
	Ended     uint64 `json:"ended"`
	Delivered uint64 `json:"delivered"`
}

// RunServer is a server process: it writes ready, then a usage for each line of
// in, which may be nil. At the end of in, or of ctx, it stops and writes its
// books.
func RunServer(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	flags := flag.NewFlagSet(RoleServer, flag.ContinueOnError)
	by := flags.String("by", byOurs, "the server: `bare`, headed, threespans or ours")
	app := flags.String("app", appHello, "its application: `hello` or echo")
	addr := flags.String("addr", "127.0.0.1:0", "`address` to serve at")
	profile := flags.String("profile", "", "`prefix` of files for CPU, heap, block and mutex profiles of the server's whole life")
	if err := flags.Parse(args); err != nil {
		return err
	}
	stopProfile, err := measure.Profile(*profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfile()) }()
	var s *server
	switch *by {
	case byBare:
		s, err = startBare(*addr, *app, http.HandlerFunc(hello))
	case byHeaded:
		h := headedHandler(func(w http.ResponseWriter, r *http.Request, _ string) { hello(w, r) })
		s, err = startBare(*addr, *app, h, grpc.UnaryInterceptor(withTrailer))
	case byThreeSpans:
		s, err = startThreeSpans(ctx, *addr, *app)
	case byOurs:
		s, err = startOurs(ctx, *addr, *app)
	default:
		err = fmt.Errorf("-by %q: want %s, %s, %s or %s", *by, byBare, byHeaded, byThreeSpans, byOurs)
	}
	if err != nil {
		return err
	}
	kept := liveHeap()
	enc := json.NewEncoder(out)
	err = answerUsage(ctx, s.addr, in, enc)
	runtime.KeepAlive(kept)
	closed, stopErr := s.stop()
	return errors.Join(err, stopErr, enc.Encode(closed))
}

// server is one that runs.
type server struct {
	addr string
	stop func() (books, error)
}

// answerUsage says where the server is, and what it has used for each line of in,
// until in ends, or ctx. Without in it is ctx that ends.
func answerUsage(ctx context.Context, addr string, in io.Reader, enc *json.Encoder) error {
	if err := enc.Encode(ready{Addr: addr}); err != nil {
		return err
	}
	asked, ended := make(chan struct{}), make(chan struct{})
	if in != nil {
		go func() { // ends with in, or with the process
			defer close(ended)
			for lines := bufio.NewScanner(in); lines.Scan(); {
				asked <- struct{}{}
			}
		}()
	}
	for {
		select {
		case <-asked:
			if err := enc.Encode(usageNow()); err != nil {
				return err
			}
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

func usageNow() usage {
	heap := measure.ReadHeap()
	return usage{CPU: measure.SelfCPU(), Ended: measure.EndedChildrenCPU(), Objects: heap.Objects, Bytes: heap.Bytes}
}

// liveMiB of memory stay allocated, in blocks without pointers: they set the
// collector's pace. A server without any would collect every 4 MiB, and every
// allocation would look dearer than it is.
const liveMiB = 64

func liveHeap() [][]byte {
	blocks := make([][]byte, liveMiB)
	for i := range blocks {
		blocks[i] = make([]byte, 1<<20)
	}
	return blocks
}

// startBare serves an application without a runtime: h, or the service echo.
func startBare(addr, app string, h http.Handler, options ...grpc.ServerOption) (*server, error) {
	switch app {
	case appHello:
		return serveHTTP(addr, h)
	case appEcho:
		s := grpc.NewServer(options...)
		testpb.RegisterTestServiceServer(s, echo{})
		reflection.Register(s) // for load generators that ask what there is
		return serveGRPC(addr, s)
	}
	return nil, errUnknownApp(app)
}

func serveHTTP(addr string, h http.Handler) (*server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }() // ends by Close
	return &server{addr: l.Addr().String(), stop: func() (books, error) {
		err := s.Close()
		if served := <-served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return books{}, err
	}}, nil
}

func serveGRPC(addr string, s *grpc.Server) (*server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }() // ends by Stop
	return &server{addr: l.Addr().String(), stop: func() (books, error) {
		s.Stop()
		return books{}, <-served
	}}, nil
}
