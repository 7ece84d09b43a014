package serveload

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// describe returns the name, kind, status and sorted attribute keys of each span.
func describe(t *testing.T, body io.Reader) (spans []string) {
	t.Helper()
	data, err := io.ReadAll(body)
	var batch coltracepb.ExportTraceServiceRequest
	if err := errors.Join(err, proto.Unmarshal(data, &batch)); err != nil {
		t.Error(err)
	}
	for _, resource := range batch.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				var keys []string
				for _, a := range span.GetAttributes() {
					keys = append(keys, a.GetKey())
				}
				slices.Sort(keys)
				spans = append(spans, fmt.Sprintln(span.GetName(), span.GetKind(), span.GetStatus().GetCode(), strings.Join(keys, "\n\t")))
			}
		}
	}
	return spans
}

// TestThreeSpansAreOurs compares the spans of the SDK's server with our server's spans
// of the same request.
func TestThreeSpansAreOurs(t *testing.T) {
	spansOf := func(by string) (spans []string) {
		t.Helper()
		var mu sync.Mutex
		sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			spans = append(spans, describe(t, r.Body)...)
			w.Header().Set("Content-Type", "application/x-protobuf")
		}))
		defer sink.Close()
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.URL)
		s, err := start(t.Context(), by, appHello)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.Get("http://" + s.addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK || answer.Header.Get(headerRequestID) == "" {
			t.Errorf("status %d, headers %v", answer.StatusCode, answer.Header)
		}
		if _, err := s.stop(); err != nil {
			t.Error(err)
		}
		slices.Sort(spans)
		return spans
	}
	env := newEnv(t)
	t.Setenv("SERVE_TRACING_EXPORTER_PLUGIN", pluginName+"="+env.Bin+"/plugins/otlp")
	t.Setenv("SERVE_TRACING_PLUGIN_WRITABLE", "allow")
	t.Setenv("SERVE_TRACING_STOP_TIMEOUT", "20s")
	want := spansOf(byOurs)
	if got := spansOf(byThreeSpans); len(want) != spansOfRequest || cmp.Diff(want, got) != "" {
		t.Errorf("spans of ours, %d, and of the other server (-want +got)\n%s", len(want), cmp.Diff(want, got))
	}
}
