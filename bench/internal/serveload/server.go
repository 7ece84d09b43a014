package serveload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving"
)

// roleServers is the role of a process with servers.
const roleServers = "servers"

// The kinds of servers.
const (
	byBare   = "bare"   // net/http or grpc-go
	byHeaded = "headed" // the same, and each answer has a request id
	byOurs   = "ours"

	byThreeSpans = "threespans" // the same as headed, with three spans by the SDK in process

	// Servers of functions. The callers use a handle in one of three ways.
	byHandle     = "handle"
	byIdempotent = "idempotent"
	byJSON       = "json"
)

// The applications are a handler and a gRPC service. A bare server and our server run
// the same code.
const (
	appHello = "hello" // HTTP, five bytes
	appEcho  = "echo"  // gRPC, unary, or a function
)

// account is the delivery accounting of a server.
type account struct{ Ended, Delivered uint64 }

// runServers is a process with servers of a kind with an application. It writes their
// addresses, and the number of its allocations for each line of in. When in ends, it stops
// and writes its delivery accounting.
func runServers(args []string, in io.Reader, out io.Writer) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	var addrs []string
	var servers []*server
	for range n {
		s, err := start(context.Background(), args[0], args[1])
		if err != nil {
			return err
		}
		addrs, servers = append(addrs, s.addr), append(servers, s)
	}
	measure.KeepLiveHeap()
	err = child.Answer(in, out, addrs, func(order) (any, error) {
		objects, _ := measure.HeapAllocs()
		return made{Objects: objects}, nil
	})
	var all account
	for _, s := range servers {
		one, stopped := s.stop()
		all.Ended += one.Ended
		all.Delivered += one.Delivered
		err = errors.Join(err, stopped)
	}
	return errors.Join(err, json.NewEncoder(out).Encode(all))
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
	case byHandle, byIdempotent, byJSON:
		return startCallee(ctx)
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

// pluginName is the name of the plugin in our server.
const pluginName = "spans"

// plenty is more concurrent calls than any load has, so that no limit applies.
const plenty = 1024

// roomy are the options of our deployments. Two replicas give the router a choice.
var roomy = []serving.DeploymentOption{serving.WithReplicas(2), serving.WithMaxOngoingRequests(plenty)}

// ourApp returns an application for our server.
func ourApp(name string) *serving.App {
	if name == appHello {
		return serving.NewApp(name, serving.NewDeployment("Hello", http.HandlerFunc(hello), roomy...))
	}
	d := serving.NewDeployment("Echo", nil, roomy...)
	testpb.RegisterTestServiceServer(d, echo{})
	return serving.NewApp(name, d)
}

// startOurs serves an application with servetrace.Run and the settings of the
// environment, like a user's program.
func startOurs(ctx context.Context, app string) (*server, error) {
	cfg, err := servetrace.LoadConfig()
	if err != nil {
		return nil, err
	}
	cfg.Serving.HTTPAddr = "127.0.0.1:0" // always on
	if app == appEcho {
		cfg.Serving.GRPC.Addr = "127.0.0.1:0"
	}
	log := &keepingLog{Handler: slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel})}
	ctx, cancel := context.WithCancel(ctx)
	up, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { // ends by stop
		ended <- servetrace.Run(ctx, cfg, []*serving.App{ourApp(app)}, servetrace.WithLogger(slog.New(log)),
			servetrace.WithReady(func(addr net.Addr) { up <- addr }))
	}()
	s := &server{stop: func() (account, error) {
		cancel()
		err := <-ended
		return account{Ended: get[uint64](&log.kept, "spans"), Delivered: get[uint64](&log.kept, pluginName+".delivered")}, err
	}}
	select {
	case at := <-up:
		s.addr = at.String()
		if app == appEcho {
			s.addr = get[string](&log.kept, "grpc")
		}
		return s, nil
	case err := <-ended:
		cancel()
		return nil, err
	}
}

// keepingLog keeps the addresses of the server and, after its stop, the delivery accounting.
type keepingLog struct {
	slog.Handler
	kept sync.Map
}

func (l *keepingLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message != "request" {
		r.Attrs(func(a slog.Attr) bool { l.kept.Store(a.Key, a.Value.Any()); return true })
	}
	return l.Handler.Handle(ctx, r)
}

// get returns a value, and the zero value without it.
func get[T any](values *sync.Map, name string) T {
	value, _ := values.Load(name)
	typed, _ := value.(T)
	return typed
}

// threeSpans is OpenTelemetry in the server's process: its SDK, batch processor
// and OTLP/HTTP exporter. The processor blocks, so that no span is lost.
type threeSpans struct {
	provider   *sdktrace.TracerProvider
	propagator propagation.TextMapPropagator
	tracer     trace.Tracer
}

// startThreeSpans serves hello on a bare server with request ids, and makes the same
// three spans of a request as our server.
func startThreeSpans(ctx context.Context) (*server, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	s := &threeSpans{propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})}
	s.provider = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithBlocking()))
	s.tracer = s.provider.Tracer("bench")
	bare, err := serveHTTP(headed(s.handle))
	if err != nil {
		return nil, errors.Join(err, s.provider.Shutdown(ctx))
	}
	return &server{addr: bare.addr, stop: func() (account, error) {
		_, err := bare.stop()
		return account{}, errors.Join(err, s.provider.Shutdown(ctx))
	}}, nil
}

// The identity of the replica, in the form of our server.
const (
	replicaUniqueID = "a1b2c3d4"
	replicaID       = "hello#Hello#" + replicaUniqueID
	actorID         = "5a05fdb1f0f0f0f0f0f0f0f001000000"
)

// newTaskID returns a random task id in Ray's form.
func newTaskID() string { return strconv.FormatUint(rand.Uint64(), 16) + actorID }

// handle is the handler hello inside a proxy span, a router span and a replica span.
// A test compares their names, kinds and attributes with our server's.
func (s *threeSpans) handle(w http.ResponseWriter, r *http.Request, requestID string) {
	proxyTask := newTaskID()
	route, name := "/", "Hello GET /"
	ctx := s.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, proxy := s.tracer.Start(ctx, "proxy_http_request "+name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String(semconv.RequestID, requestID), attribute.String(semconv.ServeRequestID, requestID),
		attribute.String(semconv.ServeTaskID, proxyTask),
		attribute.String(semconv.Deployment, "Hello"), attribute.String(semconv.App, "hello"),
		attribute.String(semconv.RequestType, semconv.RequestTypeHTTP), attribute.String(semconv.RequestMethod, r.Method),
		attribute.String(semconv.RequestRoutePath, r.URL.Path), attribute.String(semconv.ResourceName, "proxy_http_request "+name)))
	ctx, router := s.tracer.Start(ctx, "route_to_replica Hello __call__", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		callAttributes(requestID, proxyTask, "route_to_replica Hello __call__", route,
			attribute.Bool(semconv.IsHTTPRequest, true), attribute.Bool(semconv.IsGRPCRequest, false))...))
	router.SetAttributes(attribute.String(semconv.HTTPMethod, "__call__"), attribute.String(semconv.HTTPRoute, route), attribute.Float64(semconv.ServeQueueWaitMS, 0))
	router.End()
	ctx, replica := s.tracer.Start(ctx, "replica_handle_request Hello __call__", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		callAttributes(requestID, newTaskID(), "replica_handle_request Hello __call__", route,
			attribute.String(semconv.ServeReplicaID, replicaID), attribute.String(semconv.ReplicaID, replicaUniqueID))...))
	hello(w, r.WithContext(ctx))
	replica.SetAttributes(attribute.String(semconv.HTTPRoute, route), attribute.String(semconv.HTTPMethod, r.Method), attribute.Int(semconv.HTTPStatusCode, http.StatusOK))
	replica.End()
	proxy.SetAttributes(attribute.String(semconv.HTTPMethod, r.Method), attribute.String(semconv.HTTPRoute, route), attribute.Int(semconv.HTTPStatusCode, http.StatusOK))
	proxy.SetStatus(codes.Ok, "")
	proxy.End()
}

// callAttributes returns the common attributes of router and replica spans, and others
// behind them.
func callAttributes(requestID, task, resource, route string, others ...attribute.KeyValue) []attribute.KeyValue {
	return append([]attribute.KeyValue{
		attribute.String(semconv.RequestID, requestID), attribute.String(semconv.ServeRequestID, requestID),
		attribute.String(semconv.ServeTaskID, task),
		attribute.String(semconv.Deployment, "Hello"), attribute.String(semconv.App, "hello"),
		attribute.String(semconv.CallMethod, semconv.DefaultCallMethod), attribute.String(semconv.Route, route),
		attribute.String(semconv.MultiplexedModelID, ""), attribute.Bool(semconv.IsStreaming, true),
		attribute.String(semconv.ResourceName, resource),
	}, others...)
}
