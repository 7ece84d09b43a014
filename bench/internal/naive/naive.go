// Package naive is what both ends of the naive exporter plugin agree on: a peer
// that is written as go-plugin's guide has it, without a thought of cost. It is
// what one gets who makes OpenTelemetry's exporter a plugin in an afternoon.
//
// The host's end is in package spanpath, the plugin's in plugins/naive.
package naive

import (
	"context"

	goplugin "github.com/hashicorp/go-plugin"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

const (
	// Name is what the plugin is dispensed as.
	Name = "exporter"
	// EnvEndpoint is the variable with the URL that the plugin posts to.
	EnvEndpoint = "NAIVE_ENDPOINT"
)

// Handshake is go-plugin's.
var Handshake = goplugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "NAIVE_PLUGIN", MagicCookieValue: "traces"}

// Plugin serves OTLP's own service, and dispenses the connection.
type Plugin struct {
	goplugin.NetRPCUnsupportedPlugin

	// Service is the plugin's; nil at the host's end.
	Service coltracepb.TraceServiceServer
}

var _ goplugin.GRPCPlugin = Plugin{}

// GRPCServer registers the service.
func (p Plugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	coltracepb.RegisterTraceServiceServer(s, p.Service)
	return nil
}

// GRPCClient gives the connection, a *grpc.ClientConn.
func (Plugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}
