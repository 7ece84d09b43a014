package serving_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/serving"
)

// TestGRPCHandlerAPI: what gRPC and we offer to a method works in one.
func TestGRPCHandlerAPI(t *testing.T) {
	var r *grpcRig
	use := func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		from, ok := peer.FromContext(ctx)
		info, inside := serving.ReplicaContext(ctx)
		method, _ := grpc.Method(ctx)
		if !slices.Equal(md["x-in"], []string{"1", "2"}) || !ok || !strings.HasPrefix(from.Addr.String(), "127.0.0.1:") ||
			!inside || info.Deployment != "D" || serving.ModelID(ctx) != "m2" || !strings.HasPrefix(method, "/grpc.testing.TestService/") {
			return fmt.Errorf("metadata %v, peer %v, replica %v, model %q, method %q", md, from, info, serving.ModelID(ctx), method)
		}
		return errors.Join(
			grpc.SetSendCompressor(ctx, "gzip"),
			grpc.SetHeader(ctx, metadata.Pairs("x-set", "1")),
			grpc.SendHeader(ctx, metadata.Pairs("x-sent", "2")),
			grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "3")))
	}
	r = startGRPC(t, serving.Config{}, testService{
		unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return &pb.SimpleResponse{Username: strings.Repeat("x", 10000)}, use(ctx)
		},
		bidi: func(stream pb.TestService_FullDuplexCallServer) error {
			if err := stream.SetHeader(metadata.Pairs("x-set", "1")); err != nil {
				return err
			}
			stream.SetTrailer(metadata.Pairs("x-trailer", "3"))
			if err := stream.SendHeader(metadata.Pairs("x-sent", "2")); err != nil {
				return err
			}
			if stream.SetHeader(metadata.Pairs("x-late", "4")) == nil {
				return errors.New("headers that were sent can be set")
			}
			return nil
		},
	})
	var header, trailer metadata.MD
	ctx := with(patient(t), "x-in", "1", "x-in", "2", "request_id", "not fit\"", "multiplexed_model_id", "m1", "multiplexed_model_id", "m2")
	_, err := r.stub.UnaryCall(ctx, &pb.SimpleRequest{}, useGzip, grpc.Header(&header), grpc.Trailer(&trailer))
	checkMetadata(t, "unary", err, header, trailer)
	if got := header["grpc-encoding"]; len(got) > 0 && got[0] != "gzip" {
		t.Errorf("the answer is encoded as %q, want gzip", got)
	}
	if id := trailer["request_id"]; len(id) != 1 || len(id[0]) != 36 {
		t.Errorf("request id %q, want a fresh one in place of one that is not fit", id)
	}
	stream, err := r.stub.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	header, err = stream.Header()
	if err == nil {
		if _, err = stream.Recv(); err.Error() == "EOF" {
			err = nil
		}
	}
	checkMetadata(t, "bidi", err, header, stream.Trailer())
}

func checkMetadata(t *testing.T, kind string, err error, header, trailer metadata.MD) {
	t.Helper()
	if err != nil || last(header, "x-set") != "1" || last(header, "x-sent") != "2" || last(trailer, "x-trailer") != "3" {
		t.Errorf("%s: %v, header %v, trailer %v", kind, err, header, trailer)
	}
}

// noted keeps what interceptors and stats handlers saw, in order.
type noted struct {
	mu    sync.Mutex
	lines []string
}

func (n *noted) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *noted) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

type tagKey struct{}

// statsNote is a stats handler that notes the events and whether they carry what
// it has put into the context.
type statsNote struct{ *noted }

func (s statsNote) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	s.note("tag %s", info.FullMethodName)
	return context.WithValue(ctx, tagKey{}, "tagged")
}

func (s statsNote) HandleRPC(ctx context.Context, e stats.RPCStats) {
	tag, _ := ctx.Value(tagKey{}).(string)
	text := strings.TrimPrefix(fmt.Sprintf("%T", e), "*stats.")
	switch e := e.(type) {
	case *stats.InHeader:
		text += fmt.Sprintf(" %s %s", e.FullMethod, last(e.Header, "x-in"))
	case *stats.InPayload:
		text += fmt.Sprintf(" %d", e.Length)
	case *stats.OutPayload:
		text += fmt.Sprintf(" %d", e.Length)
	case *stats.End:
		text += fmt.Sprintf(" %v", status.Code(e.Error))
	}
	s.note("%s %s", tag, text)
}

func (s statsNote) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	s.note("TagConn")
	return ctx
}

func (s statsNote) HandleConn(context.Context, stats.ConnStats) { s.note("HandleConn") }

// TestGRPCAround: interceptors and stats handlers run in the replica, in their
// order, and what they put into the context reaches the method.
func TestGRPCAround(t *testing.T) {
	n := &noted{}
	unary := func(name string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			_, inside := serving.ReplicaContext(ctx)
			n.note("%s %s inside=%t", name, info.FullMethod, inside)
			defer n.note("%s ends", name)
			return next(ctx, req)
		}
	}
	stream := func(name string) grpc.StreamServerInterceptor {
		return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			n.note("%s %s client=%t server=%t", name, info.FullMethod, info.IsClientStream, info.IsServerStream)
			defer n.note("%s ends", name)
			return next(srv, ss)
		}
	}
	service := testService{
		unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			n.note("method %v", ctx.Value(tagKey{}))
			return nil, status.Error(codes.NotFound, "nothing")
		},
		server: func(_ *pb.StreamingOutputCallRequest, s pb.TestService_StreamingOutputCallServer) error {
			n.note("method %v", s.Context().Value(tagKey{}))
			return s.Send(&pb.StreamingOutputCallResponse{Payload: payload(3)})
		},
	}
	r := startGRPC(t, serving.Config{}, service, serving.WithUnaryInterceptor(unary("u1"), unary("u2")), serving.WithUnaryInterceptor(unary("u3")),
		serving.WithStreamInterceptor(stream("s1"), stream("s2")), serving.WithStatsHandler(statsNote{n}))
	if err := r.unaryCall("x-in", "1"); status.Code(err) != codes.NotFound {
		t.Errorf("client was told %v, want NotFound", err)
	}
	const full = "/grpc.testing.TestService/"
	want := []string{
		"tag " + full + "UnaryCall", "tagged InHeader " + full + "UnaryCall 1", "tagged Begin", "tagged InPayload 0",
		"u1 " + full + "UnaryCall inside=true", "u2 " + full + "UnaryCall inside=true", "u3 " + full + "UnaryCall inside=true",
		"method tagged", "u3 ends", "u2 ends", "u1 ends", "tagged OutTrailer", "tagged End NotFound",
	}
	if diff := cmp.Diff(want, n.take()); diff != "" {
		t.Errorf("unary (-want +got):\n%s", diff)
	}
	s, err := r.stub.StreamingOutputCall(with(patient(t), "x-in", "2"), &pb.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := drainSizes(s); got != "3" || err != nil {
		t.Errorf("the stream gave %q, %v", got, err)
	}
	want = []string{
		"tag " + full + "StreamingOutputCall", "tagged InHeader " + full + "StreamingOutputCall 2", "tagged Begin",
		"s1 " + full + "StreamingOutputCall client=false server=true", "s2 " + full + "StreamingOutputCall client=false server=true",
		"tagged InPayload 0", "method tagged", "tagged OutHeader", "tagged OutPayload 7", "s2 ends", "s1 ends",
		"tagged OutTrailer", "tagged End OK",
	}
	if diff := cmp.Diff(want, n.take()); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
}

// TestGRPCStatsOfPanic: stats handlers are told what the client is, and not of a
// success, where the method has not returned.
func TestGRPCStatsOfPanic(t *testing.T) {
	n := &noted{}
	r := startGRPC(t, serving.Config{}, testService{
		unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { panic("oh") },
		server: func(*pb.StreamingOutputCallRequest, pb.TestService_StreamingOutputCallServer) error {
			runtime.Goexit()
			return nil
		},
	}, serving.WithStatsHandler(statsNote{n}))
	if err := r.unaryCall(); status.Code(err) != codes.Internal {
		t.Errorf("client was told %v, want Internal", err)
	}
	s, err := r.stub.StreamingOutputCall(patient(t), &pb.StreamingOutputCallRequest{})
	if err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Internal {
		t.Errorf("client was told %v, want Internal", err)
	}
	ends := slices.DeleteFunc(n.take(), func(line string) bool { return !strings.Contains(line, "End ") })
	if diff := cmp.Diff([]string{"tagged End Internal", "tagged End Internal"}, ends); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
}

// TestGRPCInterceptorRefuses: what an interceptor answers is the answer.
func TestGRPCInterceptorRefuses(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{}, serving.WithUnaryInterceptor(
		func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			return nil, status.Error(codes.PermissionDenied, "who are you?")
		}))
	if got, want := told(r.unaryCall()), "PERMISSION_DENIED: who are you?"; got != want {
		t.Errorf("client was told %q, want %q", got, want)
	}
}

// TestGRPCRegistration: what is wrong with a service is told by New, all of it.
func TestGRPCRegistration(t *testing.T) {
	type greeter interface{ Greet() }
	method := grpc.MethodDesc{MethodName: "M", Handler: func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
		return nil, nil
	}}
	desc := func(name string, methods ...grpc.MethodDesc) *grpc.ServiceDesc {
		return &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil), Methods: methods}
	}
	d := serving.NewDeployment("D", nil, serving.WithUnaryInterceptor(nil), serving.WithStreamInterceptor(nil), serving.WithStatsHandler(nil))
	d.RegisterService(nil, 1)
	d.RegisterService(desc(""), 1)
	d.RegisterService(desc("nil"), nil)
	d.RegisterService(&grpc.ServiceDesc{ServiceName: "untyped"}, 1)
	d.RegisterService(&grpc.ServiceDesc{ServiceName: "oddly typed", HandlerType: 1}, 1)
	d.RegisterService(&grpc.ServiceDesc{ServiceName: "misfit", HandlerType: (*greeter)(nil)}, 1)
	d.RegisterService(desc("slash", grpc.MethodDesc{MethodName: "a/b", Handler: method.Handler}), 1)
	d.RegisterService(desc("double", method, method), 1)
	d.RegisterService(desc("empty", grpc.MethodDesc{MethodName: "M"}), 1)
	d.RegisterService(&grpc.ServiceDesc{ServiceName: "mute", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{StreamName: "S"}}}, 1)
	d.RegisterService(desc("fine", method), 1)
	d.RegisterService(desc("fine", method), 1)
	d.RegisterService(&healthv1.Health_ServiceDesc, healthv1.UnimplementedHealthServer{})
	inner := serving.NewDeployment("E", nil)
	inner.RegisterService(desc("fine", method), 1)
	_, err := serving.New(serving.Config{}, []*serving.App{serving.NewApp("a", d, serving.WithDeployments(inner))})
	want := `app "a": deployment "D": gRPC service: no description
gRPC service "": no name
gRPC service "nil": the implementation is nil
gRPC service "untyped": the description has no HandlerType
gRPC service "oddly typed": HandlerType int: want a pointer to the service's interface
gRPC service "misfit": the implementation int is no serving_test.greeter
gRPC service "slash": method "a/b": want a name without "/"
gRPC service "double": method "M": described twice
gRPC service "empty": method "M": no handler
gRPC service "mute": method "S": no handler
gRPC service "fine": registered twice
gRPC service "grpc.health.v1.Health": the proxy serves it itself: take it out
WithStatsHandler: nil
WithUnaryInterceptor: nil
WithStreamInterceptor: nil
deployment "E": it has gRPC services, which only the ingress of an app can serve
no functions: nothing can call it; see AddFunction`
	if err == nil {
		t.Fatal("New takes it")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

// TestGRPCBesideHTTP: an app with both, one with gRPC alone, and a server without
// gRPC, which listens on one port.
func TestGRPCBesideHTTP(t *testing.T) {
	both := serving.NewDeployment("D", serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
	pb.RegisterTestServiceServer(both, testService{})
	r := startGRPCApps(t, serving.Config{}, serving.NewApp("both", both), testApp("grpc", testService{}))
	if got := r.get("/"); got.Status != 200 {
		t.Errorf("HTTP: %v", got)
	}
	for _, app := range []string{"both", "grpc"} {
		if err := r.unaryCall("application", app); err != nil {
			t.Errorf("gRPC of %q: %v", app, err)
		}
	}
	only := startGRPCApps(t, serving.Config{}, testApp("grpc", testService{}))
	if got := only.get("/"); got.Status != 404 {
		t.Errorf("HTTP of an app without a handler: %v, want 404", got)
	}
	without := start(t, serving.Config{}, serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
	if addr := without.server.GRPCAddr(); addr != nil {
		t.Errorf("a server without gRPC listens on %v", addr)
	}
}

// TestGRPCPortTaken: an address that cannot be had fails the start, and nothing
// stays behind.
func TestGRPCPortTaken(t *testing.T) {
	first := startGRPC(t, serving.Config{}, testService{})
	addr := first.server.GRPCAddr().String()
	s, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0", GRPC: serving.GRPCConfig{Addr: addr}}, []*serving.App{testApp("a", testService{})})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another process listens there; choose another port with SERVE_GRPC_PORT") {
		t.Errorf("Start: %v", err)
	}
	if s.Addr() != nil || s.GRPCAddr() != nil {
		t.Error("a server that did not start has addresses")
	}
	if err := s.Shutdown(patient(t)); err != nil {
		t.Error(err)
	}
}

// last returns the last value of a key, or "".
func last(md metadata.MD, key string) string {
	if values := md[key]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}
