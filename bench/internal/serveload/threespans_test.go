package serveload

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver keeps the names, kinds and attribute keys of received spans.
type receiver struct {
	mu    sync.Mutex
	spans []string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var batch coltracepb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &batch)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range batch.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				var keys []string
				for _, a := range span.GetAttributes() {
					keys = append(keys, a.GetKey())
				}
				slices.Sort(keys)
				text := span.GetName() + " " + span.GetKind().String() + " " + span.GetStatus().GetCode().String()
				for _, key := range keys {
					text += "\n\t" + key
				}
				r.spans = append(r.spans, text)
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// TestThreeSpansAreOurs compares the spans of the SDK's server with our server's spans
// of the same request.
func TestThreeSpansAreOurs(t *testing.T) {
	spansOf := func(by string) []string {
		t.Helper()
		into := &receiver{}
		sink := httptest.NewServer(into)
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
		slices.Sort(into.spans)
		return into.spans
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
