package serving_test

import (
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/serving"
)

// TestGRPCKinds makes a call of each kind, and looks at what the spans say of it.
func TestGRPCKinds(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{})
	for _, c := range []struct {
		method    string
		streaming bool // the answer
		call      func(opts ...grpc.CallOption) (string, error)
	}{
		{"UnaryCall", false, func(opts ...grpc.CallOption) (string, error) {
			out, err := r.stub.UnaryCall(patient(t), &pb.SimpleRequest{Payload: payload(2)}, opts...)
			return out.GetUsername(), err
		}},
		{"StreamingOutputCall", true, func(opts ...grpc.CallOption) (string, error) {
			stream, err := r.stub.StreamingOutputCall(patient(t), &pb.StreamingOutputCallRequest{
				ResponseParameters: []*pb.ResponseParameters{{Size: 1}, {Size: 2}},
			}, opts...)
			if err != nil {
				return "", err
			}
			return drainSizes(stream)
		}},
		{"StreamingInputCall", false, func(opts ...grpc.CallOption) (string, error) {
			stream, err := r.stub.StreamingInputCall(patient(t), opts...)
			if err != nil {
				return "", err
			}
			for size := range 3 {
				if err := stream.Send(&pb.StreamingInputCallRequest{Payload: payload(size)}); err != nil {
					return "", err
				}
			}
			out, err := stream.CloseAndRecv()
			return out.String(), err
		}},
		{"FullDuplexCall", true, func(opts ...grpc.CallOption) (string, error) {
			stream, err := r.stub.FullDuplexCall(patient(t), opts...)
			if err != nil {
				return "", err
			}
			for size := range 3 {
				if err := stream.Send(&pb.StreamingOutputCallRequest{Payload: payload(size)}); err != nil {
					return "", err
				}
			}
			if err := stream.CloseSend(); err != nil {
				return "", err
			}
			return drainSizes(stream)
		}},
	} {
		var trailer metadata.MD
		got, err := c.call(grpc.Trailer(&trailer))
		if err != nil {
			t.Errorf("%s: %v", c.method, err)
			continue
		}
		t.Log(got, trailer)
		spans := r.spans.take(t, 3)
		want := []string{"proxy_grpc_request code=OK OK", "route_to_replica", "replica_handle_request"}
		if diff := cmp.Diff(want, rpcDigests(spans)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.method, diff)
		}
	}
}

// TestGRPCRequestIDsConcurrentSafe: each of many calls at a time gets its own
// request id back, and only that one.
func TestGRPCRequestIDsConcurrentSafe(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{})
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for call := range 40 {
				want := fmt.Sprintf("%d-%d", caller, call)
				var trailer metadata.MD
				_, err := r.stub.UnaryCall(with(patient(t), metaRequestID, want), &pb.SimpleRequest{}, grpc.Trailer(&trailer))
				if got := trailer[metaRequestID]; err != nil || len(got) != 1 || got[0] != want {
					t.Errorf("call %s: error %v, request ids %q", want, err, got)
				}
			}
		})
	}
	callers.Wait()
}

// drainSizes writes down the sizes of what a stream sends.
func drainSizes(stream grpc.ServerStreamingClient[pb.StreamingOutputCallResponse]) (string, error) {
	text := ""
	for {
		switch out, err := stream.Recv(); err {
		case nil:
			text += string(rune('0' + len(out.GetPayload().GetBody())))
		case io.EOF:
			return text, nil
		default:
			return text, err
		}
	}
}
