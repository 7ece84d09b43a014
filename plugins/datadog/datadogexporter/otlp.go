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

// The usual ports of an agent for OTLP. An agent does not open them by default.
const (
	otlpPortHTTP = "4318"
	otlpPortGRPC = "4317"
)

// newOTLP returns the exporter of the mode "otlp". It is the exporter of package
// otlpexporter, with the agent's host in the default endpoint.
func newOTLP(ctx context.Context, s pluginsdk.Setup, doc document) (pluginsdk.Exporter, error) {
	if err := refuseOff(s); err != nil {
		return nil, err
	}
	rest, err := json.Marshal(map[string]any{"exporter": doc.Exporter.OTLP})
	if err != nil {
		return nil, &pluginsdk.ConfigError{Path: "exporter", Err: err}
	}
	// The configuration is encoded again without the key "mode", which otlpexporter does not
	// know. JSON is valid YAML, which otlpexporter reads.
	s.Config = rest
	port, opens := otlpPortHTTP, "DD_OTLP_CONFIG_RECEIVER_PROTOCOLS_HTTP_ENDPOINT"
	if fromDocument, _ := doc.Exporter.OTLP["protocol"].(string); cmp.Or(
		s.Getenv(otlpexporter.EnvTracesProtocol), s.Getenv(otlpexporter.EnvProtocol), fromDocument) == "grpc" {
		port, opens = otlpPortGRPC, "DD_OTLP_CONFIG_RECEIVER_PROTOCOLS_GRPC_ENDPOINT"
	}
	host, err := agentHost(s.Getenv(envAgentHost))
	if err != nil {
		return nil, err
	}
	inner, err := otlpexporter.NewWith(ctx, s, otlpexporter.Defaults{Endpoint: "http://" + net.JoinHostPort(host, port)})
	if err != nil {
		return nil, err
	}
	warnOfOthers(s)
	warnOfTracerMode(s)
	return &hinting{inner, opens + "=0.0.0.0:" + port}, nil
}

// hinting is the exporter of package otlpexporter. It adds advice to errors about a port
// that the agent has not opened.
type hinting struct {
	pluginsdk.Exporter
	opens string // the agent's variable that opens the port, and its value
}

var _ pluginsdk.Exporter = (*hinting)(nil)

// Export delivers b by the inner exporter.
func (h *hinting) Export(ctx context.Context, b *pluginsdk.Batch) error {
	err := h.Exporter.Export(ctx, b)
	if err != nil && strings.Contains(err.Error(), syscall.ECONNREFUSED.Error()) { // the text is compared, because gRPC keeps only the text of an error
		return fmt.Errorf("%w: a Datadog agent accepts OTLP only if %s is set for it; %s=%s needs no setting of the agent",
			err, h.opens, EnvMode, modeTracer)
	}
	return err
}
