package datadogexporter

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// otlpPort is the agent's for OTLP over HTTP, which is closed unless somebody
// opens it.
const otlpPort = "4318"

// newOTLP builds the mode otlp: otlpexporter's exporter, to the agent's host
// where the operator names no endpoint.
func newOTLP(ctx context.Context, s pluginsdk.Setup, doc document) (pluginsdk.Exporter, error) {
	if err := refuseOff(s); err != nil {
		return nil, err
	}
	rest, err := json.Marshal(map[string]any{"exporter": doc.Exporter.OTLP})
	if err != nil {
		return nil, &pluginsdk.ConfigError{Path: "exporter", Err: err}
	}
	// The other exporter would not know the mode; JSON is YAML too.
	s.Config = rest
	host := cmp.Or(strings.Trim(s.Getenv(envAgentHost), "[]"), "localhost")
	inner, err := otlpexporter.NewWith(ctx, s, otlpexporter.Defaults{Endpoint: "http://" + net.JoinHostPort(host, otlpPort)})
	if err != nil {
		return nil, err
	}
	return &hinting{inner}, nil
}

// hinting tells an operator who finds the port closed what opens it.
type hinting struct{ pluginsdk.Exporter }

var _ pluginsdk.Exporter = (*hinting)(nil)

// Export delivers b as the exporter behind it does.
func (h *hinting) Export(ctx context.Context, b *pluginsdk.Batch) error {
	err := h.Exporter.Export(ctx, b)
	if err != nil && strings.Contains(err.Error(), syscall.ECONNREFUSED.Error()) { // gRPC passes on the text alone
		return fmt.Errorf("%w: a Datadog agent takes OTLP only if DD_OTLP_CONFIG_RECEIVER_PROTOCOLS_HTTP_ENDPOINT=0.0.0.0:%s is set for it; %s=%s needs nothing",
			err, otlpPort, EnvMode, modeAgent)
	}
	return err
}
