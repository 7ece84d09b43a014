package mixed

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/spans/identity"
)

// overGRPC is the version of plans for gRPC. Which kind of method is called goes
// by the number of the request.
const overGRPC = "gRPC"

// methods is gRPC's own test service, which has a method of each kind.
type methods struct {
	pb.UnimplementedTestServiceServer

	service    *service
	deployment string
}

// run executes the plan. send and receive pass a message.
func (m methods) run(ctx context.Context, send, receive func()) error {
	n, ok := numberOf(identity.RequestFromContext(ctx).ID)
	if !ok {
		return errors.New("no request of a plan")
	}
	m.service.witness.entered(ctx, m.deployment)
	p := m.service.plans[n]
	if err := m.service.steps(ctx, p, send, receive); err != nil {
		return err
	}
	switch p.end {
	case answer404:
		return status.Error(codes.NotFound, "as planned")
	case answer503:
		return status.Error(codes.Unavailable, "as planned")
	}
	return p.end.do(ctx)
}

func nothing() {}

func (m methods) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, m.run(ctx, nothing, nothing)
}

func (m methods) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, s pb.TestService_StreamingOutputCallServer) error {
	return m.run(s.Context(), func() { _ = s.Send(&pb.StreamingOutputCallResponse{}) }, nothing)
}

func (m methods) StreamingInputCall(s pb.TestService_StreamingInputCallServer) error {
	if err := m.run(s.Context(), nothing, func() { _, _ = s.Recv() }); err != nil {
		return err
	}
	return s.SendAndClose(&pb.StreamingInputCallResponse{})
}

func (m methods) FullDuplexCall(s pb.TestService_FullDuplexCallServer) error {
	return m.run(s.Context(), func() { _ = s.Send(&pb.StreamingOutputCallResponse{}) }, func() { _, _ = s.Recv() })
}

func dialGRPC(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// invoke is the client of a gRPC call.
func (c *clients) invoke(ctx context.Context, p plan) (view clientView) {
	ctx = metadata.AppendToOutgoingContext(ctx, "application", p.app, "request_id", p.id())
	if p.parent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", p.parent)
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	stub := pb.NewTestServiceClient(c.grpc)
	var err error
	switch p.n % 4 {
	case 0:
		_, err = stub.UnaryCall(ctx, &pb.SimpleRequest{})
	case 1:
		var s pb.TestService_StreamingOutputCallClient
		if s, err = stub.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{}); err == nil {
			view.left, err = c.drain(s, p, leave)
		}
	case 2:
		var s pb.TestService_StreamingInputCallClient
		if s, err = stub.StreamingInputCall(ctx); err == nil {
			for range 3 {
				_ = s.Send(&pb.StreamingInputCallRequest{}) // where it fails, the end of the call says why
			}
			_, err = s.CloseAndRecv()
		}
	case 3:
		var s pb.TestService_FullDuplexCallClient
		if s, err = stub.FullDuplexCall(ctx); err == nil {
			for range 3 {
				_ = s.Send(&pb.StreamingOutputCallRequest{})
			}
			_ = s.CloseSend()
			view.left, err = c.drain(s, p, leave)
		}
	}
	view.status = c.books.name(codeName(status.Code(err)))
	// The deadline is in the call's metadata too: its end may be told before ctx's.
	view.left = view.left || p.leave == byClock && status.Code(err) == codes.DeadlineExceeded
	return view
}

// drain reads a stream to its end, or leaves after the first message where the
// plan says so.
func (*clients) drain(s grpc.ServerStreamingClient[pb.StreamingOutputCallResponse], p plan, leave func()) (left bool, err error) {
	for {
		switch _, err := s.Recv(); {
		case err == io.EOF:
			return left, nil
		case err != nil:
			return left, err
		}
		if p.leave == midStream {
			left = true
			leave()
		}
	}
}

// codeName returns the name of a code in Ray's logs and spans, which is the name in the
// specification.
func codeName(c codes.Code) string {
	switch c {
	case codes.OK:
		return "OK"
	case codes.Canceled:
		return "CANCELLED"
	}
	var name strings.Builder
	for i, r := range c.String() {
		if i > 0 && unicode.IsUpper(r) {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToUpper(r))
	}
	return name.String()
}
