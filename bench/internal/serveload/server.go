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

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// roleServer is the role of a server process.
const roleServer = "server"

// The kinds of servers.
const (
	byBare   = "bare"   // net/http or grpc-go
	byHeaded = "headed" // the same, and each answer has a request id
	byOurs   = "ours"

	byThreeSpans = "threespans" // the same as headed, with three spans by the SDK in process
)

// usage is the usage of a server since its start. CPU and Plugins are user and system
// time in nanoseconds, Objects and Bytes are allocations. The server's Plugins has only
// child processes that have ended.
type usage struct{ CPU, Plugins, Objects, Bytes float64 }

func (u usage) sub(before usage) usage {
	return usage{u.CPU - before.CPU, u.Plugins - before.Plugins, u.Objects - before.Objects, u.Bytes - before.Bytes}
}

func usageNow() usage {
	heap := measure.ReadHeap()
	return usage{float64(measure.SelfCPU()), float64(measure.EndedChildrenCPU()), float64(heap.Objects), float64(heap.Bytes)}
}

// account is the span account of a server.
type account struct {
	Ended     uint64 `json:"ended"`
	Delivered uint64 `json:"delivered"`
}

// RunServer runs a server process. It writes its address, and a usage for each line of
// in, which may be nil. When in or ctx ends, it stops and writes its span account.
func RunServer(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	flags := flag.NewFlagSet(roleServer, flag.ContinueOnError)
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
	s, err := start(ctx, *by, *addr, *app)
	if err != nil {
		return err
	}
	live := measure.LiveHeap()
	enc := json.NewEncoder(out)
	err = answerUsage(ctx, s.addr, in, enc)
	runtime.KeepAlive(live)
	closed, stopErr := s.stop()
	return errors.Join(err, stopErr, enc.Encode(closed))
}

// server is a running server.
type server struct {
	addr string
	stop func() (account, error)
}

func start(ctx context.Context, by, addr, app string) (*server, error) {
	switch by {
	case byBare:
		return startBare(addr, app, http.HandlerFunc(hello))
	case byHeaded:
		h := headedHandler(func(w http.ResponseWriter, r *http.Request, _ string) { hello(w, r) })
		return startBare(addr, app, h, grpc.UnaryInterceptor(withTrailer))
	case byThreeSpans:
		return startThreeSpans(ctx, addr, app)
	case byOurs:
		return startOurs(ctx, addr, app)
	}
	return nil, fmt.Errorf("-by %q: want %s, %s, %s or %s", by, byBare, byHeaded, byThreeSpans, byOurs)
}

// answerUsage writes the address, and the usage for each line of in, until in or ctx
// ends.
func answerUsage(ctx context.Context, addr string, in io.Reader, enc *json.Encoder) error {
	if err := enc.Encode(addr); err != nil {
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

// startBare serves h, or the service echo, without our runtime.
func startBare(addr, app string, h http.Handler, options ...grpc.ServerOption) (*server, error) {
	switch app {
	case appHello:
		return serveHTTP(addr, h)
	case appEcho:
		s := grpc.NewServer(options...)
		testpb.RegisterTestServiceServer(s, echo{})
		reflection.Register(s) // for other load generators
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
	return &server{addr: l.Addr().String(), stop: func() (account, error) {
		err := s.Close()
		if served := <-served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return account{}, err
	}}, nil
}

func serveGRPC(addr string, s *grpc.Server) (*server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }() // ends by Stop
	return &server{addr: l.Addr().String(), stop: func() (account, error) {
		s.Stop()
		return account{}, <-served
	}}, nil
}
