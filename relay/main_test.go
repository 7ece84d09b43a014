package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/relay"
	"github.com/servetrace/servetrace/test/testplugin"
)

func TestMain(m *testing.M) {
	testplugin.Main()
	goleak.VerifyTestMain(m)
}

// rig is a relay with a host and a plugin.
type rig struct {
	*relay.Server
	host   *host.Host
	plugin string
	log    *testplugin.Log
}

// change changes the settings of a rig.
type change func(*host.Config, *relay.Config)

// startRig starts a relay with a plugin of a mode. The default is a socket alone.
func startRig(t *testing.T, mode string, changes ...change) *rig {
	t.Helper()
	r := &rig{plugin: testplugin.Install(t, mode), log: &testplugin.Log{}}
	hostConfig := host.Config{
		Plugins:  "p=" + strings.ReplaceAll(r.plugin, "=", "%3D"),
		BatchAge: 20 * time.Millisecond, StopTimeout: time.Second,
		Environ: []string{"PATH=" + os.Getenv("PATH")},
	}
	cfg := relay.Config{Socket: socketPath(t)}
	for _, c := range changes {
		c(&hostConfig, &cfg)
	}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	var err error
	if r.host, err = host.New(hostConfig, host.WithLogger(log)); err != nil {
		t.Fatal(err)
	}
	if r.Server, err = relay.New(cfg, r.host, log); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.host.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.end(t) })
	return r
}

// end stops the relay and its host, and checks the accounting.
func (r *rig) end(t *testing.T) {
	t.Helper()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Shutdown(over)                      // a test may have left requests without an answer
	_ = r.host.Shutdown(context.Background()) // the accounting has the lost spans
	_ = r.Close(over)
	if err := r.host.Stats().Check(); err != nil {
		t.Errorf("accounting: %v", err)
	}
	if t.Failed() {
		t.Logf("log:\n%s", r.log)
	}
}

// socketPath returns a path that is short enough for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(folder, "s", "relay.sock")
}

// overTCP makes a rig listen at a free port for gRPC, and not at a socket.
func overTCP(_ *host.Config, c *relay.Config) { c.Socket, c.GRPCAddr = "", "127.0.0.1:0" }

// endpoint returns the address for a protocol.
func (r *rig) endpoint(t *testing.T, protocol string) string {
	t.Helper()
	for _, l := range r.Listeners() {
		if l.Protocol == protocol {
			return l.Endpoint
		}
	}
	t.Fatalf("no listener for %s: %v", protocol, r.Listeners())
	return ""
}

// dial returns a client of the relay's gRPC.
func (r *rig) dial(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	target := strings.TrimPrefix(r.endpoint(t, "grpc"), "http://")
	if len(opts) == 0 {
		opts = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// client returns a client of the TraceService.
func (r *rig) client(t *testing.T) coltracepb.TraceServiceClient {
	t.Helper()
	return coltracepb.NewTraceServiceClient(r.dial(t))
}

// requestOf returns a request of n spans with unique names, each with an attribute of
// this many bytes.
func requestOf(prefix string, n, size int) *coltracepb.ExportTraceServiceRequest {
	spans := make([]*tracepb.Span, n)
	for i := range spans {
		spans[i] = &tracepb.Span{
			TraceId: bytes.Repeat([]byte{1}, 16), SpanId: bytes.Repeat([]byte{2}, 8), Name: fmt.Sprintf("%s-%d", prefix, i),
			Attributes: []*commonpb.KeyValue{{Key: "filler", Value: &commonpb.AnyValue{
				Value: &commonpb.AnyValue_StringValue{StringValue: strings.Repeat("x", size)},
			}}},
		}
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}}}}}
}

// wantSpans waits until the plugin has each span from "prefix-0" to "prefix-(n-1)" once.
func (r *rig) wantSpans(t *testing.T, prefix string, n int) {
	t.Helper()
	testplugin.WaitFor(t, "the spans "+prefix, func() bool {
		got := testplugin.Spans(t, r.plugin)
		for i := range n {
			if got[fmt.Sprintf("%s-%d", prefix, i)] != 1 {
				return false
			}
		}
		return true
	})
}
