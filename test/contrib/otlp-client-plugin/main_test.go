package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// envPlugin makes the test binary the plugin.
const envPlugin = "OTLP_CLIENT_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(envPlugin) != "" {
		main() // exits
	}
	os.Exit(m.Run())
}

// backEnd is a receiver of OTLP. A batch whose first span has the name of one of
// plugintest's inputs is answered accordingly.
type backEnd struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
	ids    []string
}

func startBackEnd(t *testing.T) *backEnd {
	t.Helper()
	b := &backEnd{}
	b.Server = httptest.NewServer(b)
	t.Cleanup(func() { b.CloseClientConnections(); b.Close() })
	return b
}

func (b *backEnd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := &coltracepb.ExportTraceServiceRequest{}
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer := &coltracepb.ExportTraceServiceResponse{}
	switch spans := spansOf(request); plugintest.Input(spans[0].GetName()) {
	case plugintest.Permanent:
		w.WriteHeader(http.StatusBadRequest)
		return
	case plugintest.Retryable:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case plugintest.Partial:
		answer.PartialSuccess = &coltracepb.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "as the test wants it"}
	case plugintest.Slow:
		<-time.After(time.Second)
	case plugintest.Stuck:
		<-r.Context().Done()
		return
	}
	b.mu.Lock()
	b.bodies = append(b.bodies, body)
	for _, span := range spansOf(request) {
		b.ids = append(b.ids, hex.EncodeToString(span.GetSpanId()))
	}
	b.mu.Unlock()
	encoded, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(encoded)
}

func (b *backEnd) received() ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.ids), nil
}

// spansOf returns the spans of a request; one without a name if there is none.
func spansOf(request *coltracepb.ExportTraceServiceRequest) (list []*tracepb.Span) {
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			list = append(list, scope.GetSpans()...)
		}
	}
	if len(list) == 0 {
		list = []*tracepb.Span{{}}
	}
	return list
}

func request(names ...string) *coltracepb.ExportTraceServiceRequest {
	spans := make([]*tracepb.Span, len(names))
	for i, name := range names {
		spans[i] = &tracepb.Span{Name: name, TraceId: bytes.Repeat([]byte{7}, 16), SpanId: []byte(name + "         ")[:8]}
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}}}}}
}

// TestBatchArrivesAsItIs: the back end gets the very bytes of the batch, with
// fields that this version of OTLP does not have.
func TestBatchArrivesAsItIs(t *testing.T) {
	later := request("of a later version")
	later.ResourceSpans[0].ScopeSpans[0].Spans[0].ProtoReflect().SetUnknown([]byte{0xe2, 0x76, 0x03, 'n', 'e', 'w'})
	batch, err := proto.Marshal(later)
	if err != nil {
		t.Fatal(err)
	}
	back := startBackEnd(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", back.URL)
	e, err := newExporter(t.Context(), pluginsdk.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Export(t.Context(), pluginsdk.NewBatch(batch)); err != nil {
		t.Fatal(err)
	}
	if err := e.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if len(back.bodies) != 1 || !bytes.Equal(back.bodies[0], batch) {
		t.Errorf("%x arrived, want %x", back.bodies, batch)
	}
}

// TestAnswers: the host gets the answers of the back end.
func TestAnswers(t *testing.T) {
	back := startBackEnd(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", back.URL)
	e, err := newExporter(t.Context(), pluginsdk.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Shutdown(context.Background()) }()
	send := func(input plugintest.Input) error {
		batch, err := proto.Marshal(request(string(input)))
		if err != nil {
			t.Fatal(err)
		}
		return e.Export(t.Context(), pluginsdk.NewBatch(batch))
	}
	if err := send(plugintest.Permanent); !pluginsdk.Final(err) || !strings.Contains(err.Error(), "400 Bad Request") {
		t.Errorf("permanent: %v, want a final error", err)
	}
	if err := send(plugintest.Retryable); err == nil || pluginsdk.Final(err) || !strings.Contains(err.Error(), "503 Service Unavailable") {
		t.Errorf("retryable: %v, want one that is not final", err)
	}
	if rejected, message, ok := pluginsdk.Rejected(send(plugintest.Partial)); !ok || rejected != 1 || message != "as the test wants it" {
		t.Errorf("partial: %d rejected, %q, %v", rejected, message, ok)
	}
}

// TestConformance holds the plugin, as a process, to every rule of the contract.
func TestConformance(t *testing.T) {
	back := startBackEnd(t)
	options := []plugintest.Option{
		plugintest.WithEnv("OTEL_EXPORTER_OTLP_ENDPOINT=" + back.URL), plugintest.WithReceived(back.received),
	}
	for _, input := range []plugintest.Input{
		plugintest.Permanent, plugintest.Retryable, plugintest.Partial, plugintest.Slow, plugintest.Stuck,
	} {
		options = append(options, plugintest.WithInput(input, request(string(input))))
	}
	plugintest.Conformance(t, plugintest.Binary(os.Args[0], envPlugin+"=1", "GOCOVERDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0"), options...)
}
