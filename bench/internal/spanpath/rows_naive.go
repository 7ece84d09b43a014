package spanpath

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/bench/internal/naive"
)

// openNaive starts the plugin as go-plugin's guide says, with its defaults, and
// gives the SDK's exporter a client that calls it.
func openNaive(ctx context.Context, r rig) (*way, error) {
	cmd := exec.Command(filepath.Join(r.bin, "plugins", "naive"))
	cmd.Env = []string{naive.EnvEndpoint + "=http://" + r.http + "/v1/traces"}
	process := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  naive.Handshake,
		Plugins:          goplugin.PluginSet{naive.Name: naive.Plugin{}},
		Cmd:              cmd,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
	})
	w, err := naiveWay(ctx, process, r)
	if err != nil {
		process.Kill()
		return nil, err
	}
	w.plugins = func() []int { return []int{cmd.Process.Pid} }
	return w, nil
}

func naiveWay(ctx context.Context, process *goplugin.Client, r rig) (*way, error) {
	protocol, err := process.Client()
	if err != nil {
		return nil, err
	}
	raw, err := protocol.Dispense(naive.Name)
	if err != nil {
		return nil, err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return nil, errors.New("the plugin gave no connection")
	}
	exporter, err := otlptrace.New(ctx, naiveClient{coltracepb.NewTraceServiceClient(conn)})
	if err != nil {
		return nil, err
	}
	w := bspWay(r, exporter)
	shutdown := w.close
	w.close = func(ctx context.Context) error {
		err := shutdown(ctx)
		process.Kill()
		return err
	}
	return w, nil
}

// naiveClient sends messages to the plugin as they are.
type naiveClient struct{ service coltracepb.TraceServiceClient }

func (naiveClient) Start(context.Context) error { return nil }
func (naiveClient) Stop(context.Context) error  { return nil }

func (c naiveClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	_, err := c.service.Export(ctx, &coltracepb.ExportTraceServiceRequest{ResourceSpans: spans})
	return err
}
