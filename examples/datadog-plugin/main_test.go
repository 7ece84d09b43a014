package main

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/DataDog/datadog-agent/pkg/proto/pbgo/trace"
	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
	"github.com/servetrace/servetrace/semconv"
)

// name is the name of this test binary as the plugin.
const name = "datadog-plugin"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == name {
		main() // exits
	}
	hellotest.Main(m)
}

// agent is a Datadog agent of the kind that knows protocol 0.4 alone.
type agent struct {
	mu    sync.Mutex
	spans []*pb.Span
}

// startAgent starts an agent and gives its address.
func startAgent(t *testing.T) (a *agent, url string) {
	t.Helper()
	a = &agent{}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return a, server.URL
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/info":
		_, _ = io.WriteString(w, `{"version": "7.66.0", "endpoints": ["/v0.4/traces"]}`)
	case "/v0.4/traces":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var traces pb.Traces
		if _, err := traces.UnmarshalMsg(body); err != nil || strconv.Itoa(len(traces)) != r.Header.Get("X-Datadog-Trace-Count") {
			http.Error(w, "not as many traces as the header says", http.StatusBadRequest)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, chunk := range traces {
			a.spans = append(a.spans, chunk...)
		}
		_, _ = io.WriteString(w, `{"rate_by_service": {}}`)
	default:
		http.NotFound(w, r)
	}
}

func (a *agent) taken() []*pb.Span {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*pb.Span(nil), a.spans...)
}

// await waits until the agent has n spans.
func (a *agent) await(t *testing.T, n int) []*pb.Span {
	t.Helper()
	late := time.After(hellotest.Patience)
	for {
		if spans := a.taken(); len(spans) >= n {
			return spans
		}
		select {
		case <-late:
			t.Fatalf("%d of %d spans within %v", len(a.taken()), n, hellotest.Patience)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

const job = "01020304"

// resources are the names in Datadog of the spans of a request of hello.
var resources = map[string]bool{
	"proxy_http_request HelloWorld GET /":        true,
	"route_to_replica HelloWorld __call__":       true,
	"replica_handle_request HelloWorld __call__": true,
	"HelloWorld application_span":                true,
}

// wantRay wants Ray's identity among the attributes of a span.
func wantRay(t *testing.T, span string, get func(key string) string) {
	t.Helper()
	task, actor := get(semconv.RayTaskID), get(semconv.RayActorID)
	if get(semconv.RayJobID) != job || get(semconv.RayRequestID) != "r1" || len(task) != 48 ||
		len(actor) != 32 || !strings.HasSuffix(task, actor) || !strings.HasSuffix(actor, job) {
		t.Errorf("span %q has job %q, actor %q, task %q and request %q; want job %s, request r1, and each id the end of the next",
			span, get(semconv.RayJobID), actor, task, get(semconv.RayRequestID), job)
	}
}

// The spans of a request are one trace in the agent, with Ray's identity, the
// service's name, and resources that say the deployment.
func TestSpansArriveAtTheAgent(t *testing.T) {
	datadog, url := startAgent(t)
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, name), "DD_TRACE_AGENT_URL="+url, "DD_ENV=test",
		"OTEL_SERVICE_NAME=my-service-name", "RAY_JOB_ID="+job)
	s.Get("/", "r1")
	spans := datadog.await(t, hellotest.SpansOfRequest)
	s.Stop()

	got := map[string]bool{}
	parents := map[uint64]bool{}
	trace := spans[0].TraceID
	for _, span := range spans {
		got[span.Resource] = true
		parents[span.ParentID] = true
		if span.Service != "my-service-name" || span.Meta["env"] != "test" || span.TraceID != trace {
			t.Errorf("span %q is of service %q, env %q and trace %d; want my-service-name, test, %d",
				span.Resource, span.Service, span.Meta["env"], span.TraceID, trace)
		}
		wantRay(t, span.Resource, func(key string) string { return span.Meta[key] })
	}
	if diff := cmp.Diff(resources, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if len(parents) != hellotest.SpansOfRequest || !parents[0] {
		t.Errorf("parents %v, want a chain", parents)
	}
	s.Await(s.Log, `msg=stopped spans=4 datadog-plugin\.delivered=4`, 1)
}

// As in the guide, by OTLP: the same in OTLP's words.
func TestSpansArriveByOTLP(t *testing.T) {
	datadog := hellotest.StartReceiver(t)
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, name), "SERVE_DATADOG_MODE=otlp",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+datadog.URL, "OTEL_SERVICE_NAME=my-service-name", "RAY_JOB_ID="+job)
	s.Get("/", "r1")
	spans := datadog.Await(t, hellotest.SpansOfRequest)
	s.Stop()

	got := map[string]bool{}
	for _, span := range spans {
		attribute := func(key string) string { return hellotest.Text(span.GetAttributes(), key) }
		got[attribute(semconv.ResourceName)] = true
		wantRay(t, span.GetName(), attribute)
		if service := hellotest.Text(span.Resource, semconv.ServiceName); service != "my-service-name" {
			t.Errorf("span %q is of service %q, want my-service-name", span.GetName(), service)
		}
	}
	if diff := cmp.Diff(resources, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	s.Await(s.Log, `msg=stopped spans=4 datadog-plugin\.delivered=4`, 1)
}

func TestConformance(t *testing.T) {
	datadog, url := startAgent(t)
	plugintest.Conformance(t, plugintest.Binary(hellotest.Self(t, name), "GORACE=atexit_sleep_ms=0"),
		plugintest.WithEnv("DD_TRACE_AGENT_URL="+url),
		plugintest.WithReceived(func() ([]string, error) {
			var ids []string
			for _, span := range datadog.taken() {
				ids = append(ids, hex.EncodeToString(binary.BigEndian.AppendUint64(nil, span.SpanID)))
			}
			return ids, nil
		}))
}
