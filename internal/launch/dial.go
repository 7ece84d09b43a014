package launch

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/servetrace/servetrace/internal/wire"
)

// dialOptions returns the options of every connection to a plugin.
func dialOptions(dial func(context.Context, string) (net.Conn, error), creds credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}), grpc.MaxCallRecvMsgSize(maxReplyBytes)),
		grpc.WithInitialWindowSize(wire.WindowBytes),
		grpc.WithInitialConnWindowSize(wire.WindowBytes),
		grpc.WithWriteBufferSize(wire.WriteBufferBytes),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		// gRPC must not limit a dial: the start timeout and the deadlines of calls do that.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: noLimit}),
		grpc.WithIdleTimeout(0), // gRPC must not close an idle connection, because some cannot be dialled again
		grpc.WithDisableRetry(), // the host retries calls; gRPC would keep each request in memory for a retry
		grpc.WithDisableServiceConfig(),
	}
}

// Connect returns a connection to the plugin that listens at the socket. It adds the
// options in more to the options of every connection to a plugin. Connect does not wait,
// because the first call on the connection connects. The caller must close the connection.
func Connect(socket string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return grpc.NewClient("passthrough:///localhost", append(dialOptions(dial, wire.PeerCredentials()), more...)...)
}

// socketBytes is the requested write buffer of a plugin's socket, large enough for a
// batch. So a batch is written without waiting, and the plugin wakes up less often. The
// kernel limits the size by net.core.wmem_max.
const socketBytes = 1 << 20

// widenSocket enlarges the write buffer of a Unix socket.
func widenSocket(conn net.Conn) {
	if socket, ok := conn.(*net.UnixConn); ok {
		_ = socket.SetWriteBuffer(socketBytes) // a failure costs only CPU
	}
}

// noLimit is the timeout of a dial that has no limit. It is longer than any dial takes.
const noLimit = 365 * 24 * time.Hour

// maxReplyBytes bounds the length of a plugin's answer, in bytes, unless a call has its own
// bound, as Export and Process have. Other answers hold counts and diagnostics. The bound
// is low because a decoded answer takes up to a hundred times as much memory, and a plugin
// may answer many calls at once.
const maxReplyBytes = 256 << 10

// maxHeaderBytes bounds the headers and the trailers of a plugin's answer, in bytes. They
// hold counts of filtered spans and the text of an error.
const maxHeaderBytes = 1 << 20
