package serveload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

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

// The applications are a handler and a gRPC service. A bare server and our server run
// the same code.
const (
	appHello = "hello" // HTTP, five bytes
	appEcho  = "echo"  // gRPC, unary
)

// account is the delivery accounting of a server.
type account struct{ Ended, Delivered uint64 }

// runServer is a server process of a kind with an application. It writes its address,
// and the number of its allocations for each line of in. When in ends, it stops and
// writes its delivery accounting.
func runServer(args []string, in io.Reader, out io.Writer) error {
	s, err := start(context.Background(), args[0], args[1])
	if err != nil {
		return err
	}
	live := measure.LiveHeap()
	enc := json.NewEncoder(out)
	err = enc.Encode(s.addr)
	for lines := bufio.NewScanner(in); err == nil && lines.Scan(); {
		objects, _ := measure.HeapAllocs()
		err = enc.Encode(objects)
	}
	runtime.KeepAlive(live)
	closed, stopErr := s.stop()
	return errors.Join(err, stopErr, enc.Encode(closed))
}

// server is a running server.
type server struct {
	addr string
	stop func() (account, error)
}

func start(ctx context.Context, by, app string) (*server, error) {
	handle := hello
	var options []grpc.ServerOption
	switch by {
	case byOurs:
		return startOurs(ctx, app)
	case byThreeSpans:
		return startThreeSpans(ctx)
	case byHeaded:
		handle = headed(func(w http.ResponseWriter, r *http.Request, _ string) { hello(w, r) })
		options = append(options, grpc.UnaryInterceptor(withTrailer))
	}
	if app == appHello {
		return serveHTTP(handle)
	}
	s := grpc.NewServer(options...)
	testpb.RegisterTestServiceServer(s, echo{})
	return serveGRPC(s)
}

func serveHTTP(h http.HandlerFunc) (*server, error) {
	s := &http.Server{Handler: h}
	return serve(s.Serve, s.Close, http.ErrServerClosed)
}

func serveGRPC(s *grpc.Server) (*server, error) {
	return serve(s.Serve, func() error { s.Stop(); return nil }, nil)
}

// serve starts a server, which ends with the given error.
func serve(run func(net.Listener) error, stop func() error, end error) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- run(l) }() // ends by stop
	return &server{addr: l.Addr().String(), stop: func() (account, error) {
		err := stop()
		if ended := <-ended; !errors.Is(ended, end) {
			err = errors.Join(err, fmt.Errorf("serve: %w", ended))
		}
		return account{}, err
	}}, nil
}

const helloBody = "hello"

// hello is the smallest handler.
func hello(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, helloBody) // the client may have left
}

// echo is a gRPC service that returns the payload of the request.
type echo struct {
	testpb.UnimplementedTestServiceServer
}

// UnaryCall implements [testpb.TestServiceServer].
func (echo) UnaryCall(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
}

// echoPayload is the payload of the load.
var echoPayload = []byte("the quick brown fox")

const headerRequestID = "X-Request-Id"

// headed adds a request id to each answer: the client's, or a new id.
func headed(next func(w http.ResponseWriter, r *http.Request, requestID string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(headerRequestID)
		if id == "" {
			id = uuid.NewString()
		}
		w.Header().Set(headerRequestID, id)
		next(w, r, id)
	}
}

// withTrailer adds a request id to the trailer of each gRPC answer.
func withTrailer(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	id := ""
	if ids := metadata.ValueFromIncomingContext(ctx, "request_id"); len(ids) > 0 {
		id = ids[0]
	}
	if id == "" {
		id = uuid.NewString()
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs("request_id", id)); err != nil {
		return nil, err
	}
	return handler(ctx, in)
}
