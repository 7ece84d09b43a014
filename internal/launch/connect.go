package launch

import (
	"context"
	"net"

	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/internal/wire"
)

// Connect returns a connection to the plugin that listens at the socket. The connection
// has the options of every connection to a plugin, and also the options in the argument
// more. Connect does not wait: the first call connects. The caller must close the
// connection.
func Connect(socket string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return grpc.NewClient("passthrough:///localhost", append(dialOptions(dial, wire.PeerCredentials()), more...)...)
}
