package spans

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/serving"
)

// rpc is a call of a method of gRPC's own test service at deployment D of app
// "a". Its route is the app's name.
func rpc(id, method string, streaming bool) call {
	return call{
		id: id, app: "a", deployment: "D", protocol: "grpc", full: "/grpc.testing.TestService/" + method,
		method: method, route: "a", streaming: streaming,
	}
}

// testService is gRPC's own test service, which has a method of each kind. Each
// does work, under the call's context, for every message.
type testService struct {
	pb.UnimplementedTestServiceServer

	work func(context.Context) error
}

func (s testService) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, s.work(ctx)
}

func (s testService) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
	for range 2 {
		if err := s.answer(stream); err != nil {
			return err
		}
	}
	return nil
}

func (s testService) StreamingInputCall(stream pb.TestService_StreamingInputCallServer) error {
	for {
		switch _, err := stream.Recv(); {
		case err == io.EOF:
			return stream.SendAndClose(&pb.StreamingInputCallResponse{})
		case err != nil:
			return err
		}
		if err := s.work(stream.Context()); err != nil {
			return err
		}
	}
}

func (s testService) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	for {
		switch _, err := stream.Recv(); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := s.answer(stream); err != nil {
			return err
		}
	}
}

func (s testService) answer(stream grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	if err := s.work(stream.Context()); err != nil {
		return err
	}
	return stream.Send(&pb.StreamingOutputCallResponse{})
}

// stub connects to the server's gRPC port.
func (r *rig) stub() pb.TestServiceClient {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+r.server.GRPCAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return pb.NewTestServiceClient(conn)
}

// kinds are the four kinds of methods, each of which is called with two messages
// where it takes a stream.
var kinds = []struct {
	name, method string
	streaming    bool // the answer
	messages     int  // for each of which the service works once
	call         func(context.Context, pb.TestServiceClient) error
}{
	{"unary", "UnaryCall", false, 1, func(ctx context.Context, stub pb.TestServiceClient) error {
		_, err := stub.UnaryCall(ctx, &pb.SimpleRequest{})
		return err
	}},
	{"server", "StreamingOutputCall", true, 2, func(ctx context.Context, stub pb.TestServiceClient) error {
		stream, err := stub.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
		if err != nil {
			return err
		}
		return drain(stream)
	}},
	{"client", "StreamingInputCall", false, 2, func(ctx context.Context, stub pb.TestServiceClient) error {
		stream, err := stub.StreamingInputCall(ctx)
		for range 2 {
			err = errors.Join(err, stream.Send(&pb.StreamingInputCallRequest{}))
		}
		_, ended := stream.CloseAndRecv()
		return errors.Join(err, ended)
	}},
	{"bidirectional", "FullDuplexCall", true, 2, func(ctx context.Context, stub pb.TestServiceClient) error {
		stream, err := stub.FullDuplexCall(ctx)
		for range 2 {
			err = errors.Join(err, stream.Send(&pb.StreamingOutputCallRequest{}))
			_, received := stream.Recv()
			err = errors.Join(err, received)
		}
		return errors.Join(err, stream.CloseSend(), drain(stream))
	}},
}

func drain(stream grpc.ServerStreamingClient[pb.StreamingOutputCallResponse]) error {
	for {
		switch _, err := stream.Recv(); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// outgoing is the context of a client's call with metadata.
func outgoing(t testing.TB, pairs ...string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), pairs...), patience)
	t.Cleanup(cancel)
	return ctx
}

// Test12GRPC: the spans of each kind of call, below the caller's, with the user's
// below them. One proxy span for each call, however many messages it has.
func Test12GRPC(t *testing.T) {
	var r *rig
	d := serving.NewDeployment("D", noHandler)
	pb.RegisterTestServiceServer(d, testService{work: func(ctx context.Context) error {
		ownSpan(ctx, r)
		return nil
	}})
	r = serve(t, serving.Config{}, serving.NewApp("a", d))
	stub := r.stub()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			if err := kind.call(outgoing(t, "request_id", kind.name, "traceparent", sampledParent), stub); err != nil {
				t.Fatal(err)
			}
			c := rpc(kind.name, kind.method, kind.streaming)
			var own []*span
			for range kind.messages {
				own = append(own, user("own"))
			}
			root := r.check(kind.name, c.proxyGRPC("OK", c.called(noStatus, own...)))
			if got := root.Parent().SpanID().String(); got != parentSpan {
				t.Errorf("the proxy span's parent is %s", got)
			}
		})
	}
}

// Test12GRPCRequestID: a call without an id gets a UUIDv4, and its client is told.
func Test12GRPCRequestID(t *testing.T) {
	d := serving.NewDeployment("D", noHandler)
	pb.RegisterTestServiceServer(d, testService{work: func(context.Context) error { return nil }})
	r := serve(t, serving.Config{}, serving.NewApp("a", d))
	var trailer metadata.MD
	if _, err := r.stub().UnaryCall(outgoing(t), &pb.SimpleRequest{}, grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	ids := trailer["request_id"]
	if len(ids) != 1 || !uuid4.MatchString(ids[0]) {
		t.Fatalf("the trailer has the request ids %q, want one UUIDv4", ids)
	}
	c := rpc(ids[0], "UnaryCall", false)
	r.check(ids[0], c.proxyGRPC("OK", c.called(noStatus)))
}

// TestG02FullTree: the whole tree of a gRPC call that fails, through a call by
// handle. The other rows are in package serving.
func TestG02FullTree(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			back := serving.NewDeployment("B", noHandler)
			fails := serving.AddFunction(back, "", func(context.Context, int) (int, error) { return 0, errBoom })
			d := serving.NewDeployment("D", noHandler)
			pb.RegisterTestServiceServer(d, testService{work: func(ctx context.Context) error {
				_, err := fails.Call(ctx, 0)
				return err
			}})
			r := serve(t, serving.Config{}, serving.NewApp("a", d, serving.WithDeployments(back)))
			if err := kind.call(outgoing(t, "request_id", "g2"), r.stub()); err == nil {
				t.Error("the call has not failed")
			}
			c := rpc("g2", kind.method, kind.streaming)
			b := c.nested("B", "__call__")
			boom := func(s *span) *span { return s.raised("*errors.errorString", "boom") }
			r.check("g2", boom(c.proxyGRPC("INTERNAL", c.router(boom(c.replica(noStatus, b.router(boom(b.replica(noStatus)))))))).failed("boom"))
		})
	}
}
