package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// envPlugin makes the test binary the console plugin.
const envPlugin = "CONSOLE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(envPlugin) != "" {
		main() // exits
	}
	os.Exit(m.Run())
}

// connPlugin dispenses the bare connection to go-plugin's users.
type connPlugin struct{ plugin.NetRPCUnsupportedPlugin }

func (connPlugin) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("client side only")
}

func (connPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// start runs the plugin under go-plugin's own client, and configures it. Its output goes to
// shared.
func start(t *testing.T, shared *os.File, env map[string]string) *grpc.ClientConn {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{envPlugin + "=1", wire.EnvStdoutFD + "=3", "GOCOVERDIR=" + t.TempDir(), "GORACE=atexit_sleep_ms=0"}
	cmd.ExtraFiles = []*os.File{shared}
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion: wire.ProtocolVersion, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolVersion: {"conn": connPlugin{}}},
		Cmd:              cmd,
		SkipHostEnv:      true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
	})
	t.Cleanup(client.Kill)
	protocol, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	dispensed, err := protocol.Dispense("conn")
	if err != nil {
		t.Fatal(err)
	}
	conn := dispensed.(*grpc.ClientConn)
	answer, err := pluginv1.NewLifecycleClient(conn).Configure(t.Context(), &pluginv1.ConfigureRequest{Env: env})
	if err != nil || len(answer.GetDiagnostics()) > 0 {
		t.Fatalf("Configure: %v, %v", answer, err)
	}
	return conn
}

func request(name string) *coltracepb.ExportTraceServiceRequest {
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: name}}}},
	}}}
}

func TestSpansReachTheHostsStandardOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	conn := start(t, w, nil)
	_ = w.Close()
	if _, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), request("hello")); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(r)
	var got strings.Builder
	for !strings.HasSuffix(got.String(), "\n}\n") {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after:\n%s", err, got.String())
		}
		got.WriteString(line)
	}
	if want := "{\n    \"name\": \"hello\",\n"; !strings.HasPrefix(got.String(), want) {
		t.Errorf("standard output has %q, want it to begin with %q", got.String(), want)
	}
}

// TestStandardOutputIsGone: its reader has ended. No span counts as delivered, and the
// plugin goes on.
func TestStandardOutputIsGone(t *testing.T) {
	for _, format := range []string{"json", "pretty"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		conn := start(t, w, map[string]string{"SERVE_CONSOLE_FORMAT": format})
		_, _ = w.Close(), r.Close()
		for range 2 {
			_, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), request("hello"))
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "broken pipe") {
				t.Errorf("%s: Export gives %v, want UNAVAILABLE for the broken pipe", format, err)
			}
		}
	}
}

func TestSpansReachAFolder(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	dir := filepath.Join(t.TempDir(), "spans")
	conn := start(t, null, map[string]string{"SERVE_CONSOLE_OUTPUT": dir})
	if _, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), request("hello")); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "unknown_service_*_tracing.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files are %q, %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(content), `"name": "hello"`) {
		t.Errorf("file has %q, %v", content, err)
	}
}

func TestDescription(t *testing.T) {
	cmd := exec.Command(os.Args[0], "--describe")
	cmd.Env = []string{envPlugin + "=1", "GOCOVERDIR=" + t.TempDir(), "GORACE=atexit_sleep_ms=0"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name": "console"`, `"max_concurrency": 1`, `"SERVE_CONSOLE_FORMAT"`, `"SERVE_CONSOLE_OUTPUT"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("description lacks %s:\n%s", want, out)
		}
	}
}
