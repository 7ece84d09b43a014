package launch

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/wire"
)

// TestHugeAnswersAreNotTaken: a plugin that answers megabytes would have its
// host decode them into hundreds.
func TestHugeAnswersAreNotTaken(t *testing.T) {
	path := socketPath(t)
	listener := listen(t, path)
	size := 0
	server := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(&wire.Outgoing{Buffers: func() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(make([]byte, size))} }})
	}))
	go func() { _ = server.Serve(listener) }() // ends with Stop, which waits for it
	t.Cleanup(server.Stop)
	a := attach(t, path)
	for n, want := range map[int]codes.Code{128 << 10: codes.OK, 1 << 20: codes.ResourceExhausted} {
		size = n
		err := a.Conn().Invoke(t.Context(), wire.ExportMethod, &wire.Outgoing{}, &wire.Incoming{})
		if got := status.Code(err); got != want {
			t.Errorf("an answer of %d bytes: %v, want %v", n, err, want)
		}
	}
}
