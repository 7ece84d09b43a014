// Command naive is the plugin's end of the naive exporter: it takes messages,
// encodes them again and posts them. See package naive.
package main

import (
	"context"
	"os"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/bench/internal/naive"
	"github.com/servetrace/servetrace/bench/internal/post"
)

type service struct {
	coltracepb.UnimplementedTraceServiceServer

	poster *post.Poster
}

func (s service) Export(ctx context.Context, req *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	body, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	return &coltracepb.ExportTraceServiceResponse{}, s.poster.Post(ctx, body)
}

func main() {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: naive.Handshake,
		Plugins:         goplugin.PluginSet{naive.Name: naive.Plugin{Service: service{poster: post.New(os.Getenv(naive.EnvEndpoint))}}}, //nolint:forbidigo // a program of its own, which is told nothing else
		GRPCServer:      goplugin.DefaultGRPCServer,
		Logger:          hclog.NewNullLogger(),
	})
}
