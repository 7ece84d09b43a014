package pluginsdk

import (
	"context"
	"errors"
	"math"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // a sender may compress requests to a plugin that runs with --listen
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// streamWorkers is the number of goroutines that gRPC keeps for calls, because a new
// goroutine costs time to grow its stack. It is the host's default number of concurrent
// calls.
const streamWorkers = 4

// newServer returns a gRPC server with all services that a host or go-plugin's client
// calls. MaxRecvMsgSize also bounds the size of a message after decompression.
func newServer(p *plugin) *grpc.Server {
	server := grpc.NewServer(
		grpc.Creds(wire.PeerCredentials()),
		grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.MaxRecvMsgSize(wire.MaxMessageBytes),
		grpc.InitialWindowSize(wire.WindowBytes),
		grpc.InitialConnWindowSize(wire.WindowBytes),
		grpc.ReadBufferSize(wire.WriteBufferBytes),
		grpc.NumStreamWorkers(streamWorkers),
		experimental.BufferPool(wire.Pool),
	)
	pluginv1.RegisterLifecycleServer(server, &lifecycle{plugin: p})
	server.RegisterService(&traceService, p)
	server.RegisterService(&processService, p)
	if p.listening == nil { // a host that did not start the plugin must not be able to end it
		server.RegisterService(&controllerService, p)
		server.RegisterService(&stdioService, p)
	}
	alive := health.NewServer()
	alive.SetServingStatus(wire.HealthService, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, checkOnly{Server: alive})
	return server
}

// checkOnly is a health server that refuses calls of Watch, because a graceful stop of
// the gRPC server would wait for their streams. Hosts call only Check.
type checkOnly struct{ *health.Server }

// Watch returns UNIMPLEMENTED. A gRPC client then uses the connection without health
// checks.
func (checkOnly) Watch(*healthpb.HealthCheckRequest, healthpb.Health_WatchServer) error {
	return wire.ToStatus(&wire.Error{Code: codeUnimplemented, Final: true, Err: errors.New("health checks by Watch are not served: call Check")})
}

type lifecycle struct {
	pluginv1.UnimplementedLifecycleServer
	plugin *plugin
}

var _ pluginv1.LifecycleServer = (*lifecycle)(nil)

// Describe returns the contents of the Spec.
func (l *lifecycle) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	spec := l.plugin.spec
	return &pluginv1.DescribeResponse{
		Name:    spec.Name,
		Version: spec.version(),
		Sdk:     &pluginv1.Sdk{Name: sdkName, Version: Version(), Language: "go"},
		Kind:    kindOf(spec),
		Limits: &pluginv1.Limits{
			MaxBatchSpans:  uint32(min(spec.Limits.MaxBatchSpans, math.MaxInt32)), // not negative: Spec.validate has checked the limits
			MaxBatchBytes:  uint32(min(spec.Limits.MaxBatchBytes, wire.MaxMessageBytes)),
			MaxConcurrency: uint32(min(spec.Limits.MaxConcurrency, math.MaxInt32)),
		},
		EnvPatterns: spec.Env,
		EnvAtStart:  spec.EnvAtStart,
		Description: spec.Description,
	}, nil
}

func kindOf(spec Spec) pluginv1.Kind {
	if spec.isProcessor() {
		return pluginv1.Kind_KIND_PROCESSOR
	}
	return pluginv1.Kind_KIND_EXPORTER
}

// Configure runs the constructors of the processors and the exporter. A second call
// returns an error.
func (l *lifecycle) Configure(ctx context.Context, req *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	if l.plugin.listening != nil {
		return nil, wire.ToStatus(errListening)
	}
	diagnostics, err := l.plugin.configure(ctx, req)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	return &pluginv1.ConfigureResponse{Diagnostics: diagnostics}, nil
}

// Flush flushes the exporter, if it is a Flusher. If Flush succeeds, the exporter has
// delivered all spans, so SpansLeft is 0.
func (l *lifecycle) Flush(ctx context.Context, req *pluginv1.FlushRequest) (*pluginv1.FlushResponse, error) {
	built, err := l.plugin.calls.enter(ready, ready)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	defer l.plugin.calls.leave()
	ctx, cancel := l.within(ctx, req.GetTimeout())
	defer cancel()
	if err := built.flush(ctx); err != nil {
		return nil, wire.ToStatus(err)
	}
	return &pluginv1.FlushResponse{SpansLeft: 0}, nil
}

// Shutdown shuts the processors and the exporter down. The process goes on until the host
// calls GRPCController's Shutdown, or until standard input ends.
func (l *lifecycle) Shutdown(ctx context.Context, req *pluginv1.ShutdownRequest) (*pluginv1.ShutdownResponse, error) {
	if l.plugin.listening != nil {
		return nil, wire.ToStatus(errListening)
	}
	ctx, cancel := l.within(ctx, req.GetTimeout())
	defer cancel()
	if err := l.plugin.stop(ctx); err != nil {
		return nil, wire.ToStatus(err)
	}
	return &pluginv1.ShutdownResponse{SpansLeft: 0}, nil
}

// within returns a context for a call of Flush or Shutdown: ctx with the timeout of the
// request, if there is one. With --debug the context never ends.
func (l *lifecycle) within(ctx context.Context, timeout *durationpb.Duration) (context.Context, context.CancelFunc) {
	if limit := timeout.AsDuration(); limit > 0 && !l.plugin.debugging() {
		return context.WithTimeout(ctx, limit)
	}
	return context.WithCancel(l.plugin.callContext(ctx))
}

// traceService declares OTLP's TraceService without its generated code, which would
// decode each batch. Method export gets the bytes.
var traceService = grpc.ServiceDesc{
	ServiceName: wire.ExportService,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{undecoded("Export", (*plugin).export)},
	Metadata:    "opentelemetry/proto/collector/trace/v1/trace_service.proto",
}

// processService declares the service Processor of plugin.proto without its generated
// code, which would decode each batch. Method process gets the bytes.
var processService = grpc.ServiceDesc{
	ServiceName: wire.ProcessService,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{undecoded("Process", (*plugin).process)},
	Metadata:    "servetrace/plugin/v1/plugin.proto",
}

// undecoded returns the declaration of a gRPC method that passes the encoded request to
// call, and sends the encoded response that call returns.
func undecoded(name string, call func(*plugin, context.Context, *wire.Incoming) (*wire.Outgoing, error)) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := new(wire.Incoming)
			if err := decode(in); err != nil {
				return nil, err
			}
			return call(srv.(*plugin), ctx, in)
		},
	}
}

// controllerService is the service by which go-plugin's client asks the plugin to end. It
// is declared by hand, because the generated code is in an internal package of go-plugin.
// Its messages are empty.
var controllerService = grpc.ServiceDesc{
	ServiceName: "plugin.GRPCController",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Shutdown",
		Handler: func(srv any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := decode(new(emptypb.Empty)); err != nil {
				return nil, err
			}
			srv.(*plugin).release()
			return new(emptypb.Empty), nil
		},
	}},
	Metadata: "grpc_controller.proto",
}

// stdioService is go-plugin's service for a plugin's output. Its stream stays open and
// empty, because this SDK writes output to descriptors. The service exists because
// go-plugin's client logs a warning without it.
var stdioService = grpc.ServiceDesc{
	ServiceName: "plugin.GRPCStdio",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    "StreamStdio",
		ServerStreams: true,
		Handler: func(srv any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
				return err
			}
			select {
			case <-stream.Context().Done():
			case <-srv.(*plugin).draining: // otherwise a graceful stop of the server would wait for this stream
			}
			return nil
		},
	}},
	Metadata: "grpc_stdio.proto",
}
