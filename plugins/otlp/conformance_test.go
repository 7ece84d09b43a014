package main

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// envPlugin makes the test binary the otlp plugin.
const envPlugin = "OTLP_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(envPlugin) != "" {
		main() // exits
	}
	os.Exit(m.Run())
}

// backEnd takes spans over both protocols. A batch of one span with the name of
// an input has it its way.
type backEnd struct {
	coltracepb.UnimplementedTraceServiceServer
	mu  sync.Mutex
	ids []string
}

// Export is gRPC's.
func (b *backEnd) Export(ctx context.Context, request *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	answer := &coltracepb.ExportTraceServiceResponse{}
	switch plugintest.Input(nameIn(request)) {
	case plugintest.Permanent:
		return nil, status.Error(codes.InvalidArgument, "as the test wants it")
	case plugintest.Retryable:
		return nil, status.Error(codes.Unavailable, "as the test wants it")
	case plugintest.Partial:
		answer.PartialSuccess = &coltracepb.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "as the test wants it"}
	case plugintest.Slow:
		<-time.After(time.Second)
	case plugintest.Stuck:
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				b.ids = append(b.ids, hex.EncodeToString(span.GetSpanId()))
			}
		}
	}
	return answer, nil
}

// ServeHTTP is HTTP's.
func (b *backEnd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := &coltracepb.ExportTraceServiceRequest{}
	if err != nil || proto.Unmarshal(body, request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer, err := b.Export(r.Context(), request)
	switch status.Code(err) {
	case codes.OK:
		w.Header().Set("Content-Type", "application/x-protobuf")
		encoded, _ := proto.Marshal(answer)
		_, _ = w.Write(encoded)
	case codes.InvalidArgument:
		w.WriteHeader(http.StatusBadRequest)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (b *backEnd) received() ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.ids), nil
}

func nameIn(request *coltracepb.ExportTraceServiceRequest) string {
	if list := request.GetResourceSpans(); len(list) > 0 && len(list[0].GetScopeSpans()) > 0 && len(list[0].GetScopeSpans()[0].GetSpans()) > 0 {
		return list[0].GetScopeSpans()[0].GetSpans()[0].GetName()
	}
	return ""
}

func request(name string) *coltracepb.ExportTraceServiceRequest {
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: name, TraceId: make([]byte, 16), SpanId: []byte(name + "         ")[:8]}}}},
	}}}
}

// TestConformance holds the plugin to every rule of the contract, over HTTP and
// gRPC, as a process and in this one.
func TestConformance(t *testing.T) {
	filtered := request("dropped span")
	filtered.ResourceSpans = append(filtered.ResourceSpans, request("kept span").GetResourceSpans()...)
	for protocol, start := range map[string]func(*testing.T, *backEnd) string{
		"http/protobuf": func(t *testing.T, b *backEnd) string {
			s := httptest.NewServer(b)
			t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
			return s.URL
		},
		"grpc": func(t *testing.T, b *backEnd) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
			coltracepb.RegisterTraceServiceServer(s, b)
			served := make(chan struct{})
			go func() { defer close(served); _ = s.Serve(l) }()
			t.Cleanup(func() { s.Stop(); <-served })
			return "http://" + l.Addr().String()
		},
	} {
		for name, target := range map[string]plugintest.Target{
			"process":    plugintest.Binary(os.Args[0], envPlugin+"=1", "GOCOVERDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0"),
			"in-process": plugintest.InProcess(otlpexporter.Spec),
		} {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				back := &backEnd{}
				options := []plugintest.Option{
					plugintest.WithEnv("SERVE_RAY_CONTEXT=on", otlpexporter.EnvEndpoint+"="+start(t, back), otlpexporter.EnvProtocol+"="+protocol),
					plugintest.WithConfig([]byte("processors:\n  - filter: {drop: [{name: \"dropped *\"}]}\nexporter: {timeout: 5m}\n")),
					plugintest.WithBadConfig([]byte("exporter: {compression: zip}")),
					plugintest.WithInput(plugintest.Filtered, filtered),
					plugintest.WithReceived(back.received),
				}
				for _, input := range []plugintest.Input{
					plugintest.Permanent, plugintest.Retryable, plugintest.Partial, plugintest.Slow, plugintest.Stuck,
				} {
					options = append(options, plugintest.WithInput(input, request(string(input))))
				}
				plugintest.Conformance(t, target, options...)
			})
		}
	}
}
