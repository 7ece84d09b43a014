package pluginsdk_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// connPlugin dispenses the bare connection to go-plugin's users.
type connPlugin struct{ plugin.NetRPCUnsupportedPlugin }

func (connPlugin) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("client side only")
}

func (connPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// stockClient is go-plugin's own client over the test binary.
func stockClient(t *testing.T, log *output, change func(*plugin.ClientConfig)) *plugin.Client {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	// A client that refuses its plugin kills it, and its folder stays.
	dir, err := os.MkdirTemp("", "stock") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd.Env = append(childEnviron(t), envMode+"=plugin", "TMPDIR="+dir)
	config := &plugin.ClientConfig{
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion: wire.ProtocolVersion, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolVersion: {"conn": connPlugin{}}},
		Cmd:              cmd,
		SkipHostEnv:      true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		StartTimeout:     patience,
		Logger:           hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug, Name: "host"}),
	}
	if change != nil {
		change(config)
	}
	client := plugin.NewClient(config)
	t.Cleanup(client.Kill)
	return client
}

func TestStockClient(t *testing.T) {
	log := &output{}
	client := stockClient(t, log, nil)
	protocol, err := client.Client()
	if err != nil {
		t.Fatalf("start: %v\n%s", err, log.clipped())
	}
	if err := protocol.Ping(); err != nil {
		t.Errorf("Ping: %v", err)
	}
	dispensed, err := protocol.Dispense("conn")
	if err != nil {
		t.Fatal(err)
	}
	conn := dispensed.(*grpc.ClientConn)
	if _, err := pluginv1.NewLifecycleClient(conn).Configure(t.Context(), &pluginv1.ConfigureRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), named("log", "noise")); err != nil {
		t.Errorf("Export: %v", err)
	}
	log.await(t, "[WARN]  host.plugin") // go-plugin found level and message
	log.await(t, "as asked: ")
	log.await(t, "_@message=5")
	log.await(t, "_msg=mine")
	log.await(t, "count=3")
	log.await(t, "a print in an exporter")

	client.Kill()
	// The level with its brackets: go-plugin closes the connection as soon as it
	// has the answer to its Shutdown. If the server's GOAWAY is there by then and
	// the end of the stdio stream is not, that ends with a text that says
	// "NO_ERROR", at level Debug.
	for _, bad := range []string{"gracefully", "stdio service not available", "[ERROR]"} {
		if strings.Contains(log.String(), bad) {
			t.Errorf("go-plugin complains of %q:\n%s", bad, log.clipped())
		}
	}
	log.await(t, "released by the host")
}

func TestStockClientRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*plugin.ClientConfig)
		want   string
		log    string
	}{
		{"version", func(c *plugin.ClientConfig) {
			c.ProtocolVersion = 7
			c.VersionedPlugins = map[int]plugin.PluginSet{7: {"conn": connPlugin{}}}
		}, "incompatible API version with plugin. Plugin version: 1, Client versions: [7]", "no protocol version in common"},
		{"cookie", func(c *plugin.ClientConfig) {
			c.MagicCookieValue = "other"
		}, "Unrecognized remote plugin message", "This is an exporter plugin of servetrace"},
		{"AutoMTLS", func(c *plugin.ClientConfig) {
			c.AutoMTLS = true
		}, "Unrecognized remote plugin message", "host asks for AutoMTLS"},
		{"multiplexed broker", func(c *plugin.ClientConfig) {
			c.GRPCBrokerMultiplex = true
		}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &output{}
			client := stockClient(t, log, c.change)
			_, err := client.Start()
			switch {
			case c.name == "multiplexed broker":
				if !errors.Is(err, plugin.ErrGRPCBrokerMuxNotSupported) {
					t.Errorf("error is %v, want ErrGRPCBrokerMuxNotSupported", err)
				}
			case err == nil || !strings.Contains(err.Error(), c.want):
				t.Errorf("error is %v, want %q", err, c.want)
			}
			log.await(t, c.log)
		})
	}
}
