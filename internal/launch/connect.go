package launch

import (
	"context"
	"net"

	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/internal/wire"
)

// Connect returns a connection to the plugin that listens at the socket. It adds the
// options in more to the options of every connection to a plugin. Connect does not wait,
// because the first call on the connection connects. The caller must close the connection.
func Connect(socket string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return grpc.NewClient("passthrough:///localhost", append(dialOptions(dial, wire.PeerCredentials()), more...)...)
}
