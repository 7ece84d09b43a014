package serving_test

import (
	"cmp"
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// testService is gRPC's own test service, which has a method of each kind.
type testService struct {
	pb.UnimplementedTestServiceServer

	unary  func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error)
	server func(*pb.StreamingOutputCallRequest, pb.TestService_StreamingOutputCallServer) error
	client func(pb.TestService_StreamingInputCallServer) error
	bidi   func(pb.TestService_FullDuplexCallServer) error
}

func (s testService) UnaryCall(ctx context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if s.unary == nil {
		return &pb.SimpleResponse{Username: strconv.Itoa(len(in.GetPayload().GetBody()))}, nil
	}
	return s.unary(ctx, in)
}

func (s testService) StreamingOutputCall(in *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
	if s.server != nil {
		return s.server(in, stream)
	}
	for _, p := range in.GetResponseParameters() {
		if err := stream.Send(&pb.StreamingOutputCallResponse{Payload: payload(int(p.GetSize()))}); err != nil {
			return err
		}
	}
	return nil
}

func (s testService) StreamingInputCall(stream pb.TestService_StreamingInputCallServer) error {
	if s.client != nil {
		return s.client(stream)
	}
	size := 0
	for {
		switch in, err := stream.Recv(); err {
		case nil:
			size += len(in.GetPayload().GetBody())
		case io.EOF:
			return stream.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)})
		default:
			return err
		}
	}
}

func (s testService) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	if s.bidi != nil {
		return s.bidi(stream)
	}
	for {
		switch in, err := stream.Recv(); err {
		case nil:
			if err := stream.Send(&pb.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
				return err
			}
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

func payload(size int) *pb.Payload { return &pb.Payload{Body: make([]byte, size)} }

// failing fails every unary call with err.
func failing(err error) testService {
	return testService{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { return nil, err }}
}

// grpcRig is a running server and a connection to its gRPC port.
type grpcRig struct {
	*rig

	conn *grpc.ClientConn
	stub pb.TestServiceClient
}

// startGRPC serves s as deployment D of app "a".
func startGRPC(t testing.TB, cfg serving.Config, s testService, opts ...serving.DeploymentOption) *grpcRig {
	t.Helper()
	d := serving.NewDeployment("D", nil, opts...)
	pb.RegisterTestServiceServer(d, s)
	return startGRPCApps(t, cfg, serving.NewApp("a", d))
}

func startGRPCApps(t testing.TB, cfg serving.Config, apps ...*serving.App) *grpcRig {
	t.Helper()
	cfg.GRPC.Addr = cmp.Or(cfg.GRPC.Addr, "127.0.0.1:0")
	r := &grpcRig{rig: startApps(t, cfg, apps...)}
	r.conn = r.dialGRPC()
	r.stub = pb.NewTestServiceClient(r.conn)
	return r
}

// dialGRPC makes a connection of its own.
func (r *grpcRig) dialGRPC(opts ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	return dialGRPC(r.t, r.server.GRPCAddr().String(), opts...)
}

func dialGRPC(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///"+addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// queuedRPCs waits until n calls wait for a replica.
func (r *grpcRig) queuedRPCs(n int) {
	r.t.Helper()
	r.queued(n)
}

// slotsFree waits until no call holds a slot of a replica.
func (r *grpcRig) slotsFree() {
	r.t.Helper()
	servingtest.Await(r.t, "free slots", func() bool { return r.ongoing() == 0 })
}

// with is ctx for a call with the metadata.
func with(ctx context.Context, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// unaryCall makes one, within patience.
func (r *grpcRig) unaryCall(pairs ...string) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), servingtest.Patience)
	defer cancel()
	_, err := r.stub.UnaryCall(with(ctx, pairs...), &pb.SimpleRequest{})
	return err
}

// useGzip compresses what a call sends.
var useGzip = grpc.UseCompressor("gzip")

// send makes a unary call whose message has a payload of so many bytes.
func (r *grpcRig) send(size int, opts ...grpc.CallOption) error {
	_, err := r.stub.UnaryCall(patient(r.t), &pb.SimpleRequest{Payload: payload(size)}, opts...)
	return err
}

// codeName returns a code's name in the gRPC specification.
func codeName(c codes.Code) string {
	if name, ok := code.Code_name[int32(c)]; ok {
		return name
	}
	return "UNKNOWN"
}

// told writes down what a client saw.
func told(err error) string {
	s := status.Convert(err)
	return codeName(s.Code()) + ": " + s.Message()
}

// rpcDigest writes down what the status table tells of a span of a gRPC call.
func rpcDigest(s sdktrace.ReadOnlySpan) string {
	text := strings.TrimSuffix(digest(s), " no-http")
	text = strings.Replace(text, " no-http event", " event", 1)
	if v, ok := attr(s, "rpc.grpc.status_code"); ok {
		family, rest, _ := strings.Cut(text, " ")
		text = family + " code=" + v.AsString() + " " + rest
	}
	return text
}

// rpcDigests gives the spans of one call in the order proxy, router, replica.
func rpcDigests(spans []sdktrace.ReadOnlySpan) []string {
	var out []string
	for _, family := range []string{"proxy_grpc_request", "route_to_replica", "replica_handle_request"} {
		for _, s := range spans {
			if strings.HasPrefix(s.Name(), family) {
				out = append(out, rpcDigest(s))
			}
		}
	}
	return out
}

// patient bounds a test's call.
func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servingtest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// soon is for a timeout that is to pass: short, and long enough for a call to reach
// its handler on a machine that others use.
const soon = 300 * time.Millisecond
