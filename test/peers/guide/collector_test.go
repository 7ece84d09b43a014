package guide

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/test/peers/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// key stands for a vendor's key. Nothing that is printed may hold it.
const key = "hcaik-01-not-a-key-0123456789"

// startHello starts hello with one plugin of bin/, which runs as "p".
func startHello(t *testing.T, plugin string, environ ...string) *hellotest.Service {
	t.Helper()
	return hellotest.StartProgram(t, peer.Command(t, "hello"), []string{"--http", "127.0.0.1:0"},
		append(environ, "SERVE_TRACING_EXPORTER_PLUGIN=p="+peer.Command(t, plugin))...)
}

// arrived is a span with the name of its service.
type arrived struct {
	*tracepb.Span
	service string
}

func (a arrived) id() string     { return hex.EncodeToString(a.GetSpanId()) }
func (a arrived) parent() string { return hex.EncodeToString(a.GetParentSpanId()) }
func (a arrived) trace() string  { return hex.EncodeToString(a.GetTraceId()) }

// flat is all spans by name; it fails the test where one is there twice.
func flat(t *testing.T, resources []*tracepb.ResourceSpans) map[string]arrived {
	t.Helper()
	spans := map[string]arrived{}
	for _, resource := range resources {
		service := hellotest.Text(resource.GetResource().GetAttributes(), "service.name")
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				if _, twice := spans[span.GetName()]; twice {
					t.Errorf("span %q is there twice", span.GetName())
				}
				spans[span.GetName()] = arrived{span, service}
			}
		}
	}
	return spans
}

// The names of the spans of a request, from the outermost on.
var (
	helloChain = []string{
		"proxy_http_request HelloWorld GET /", "route_to_replica HelloWorld __call__",
		"replica_handle_request HelloWorld __call__", "application_span",
	}
	upstreamChain = []string{
		"proxy_http_request UpstreamApp GET /", "route_to_replica UpstreamApp __call__",
		"replica_handle_request UpstreamApp __call__", "upstream_application_span",
	}
	downstreamChain = []string{
		"proxy_http_request DownstreamApp GET /downstream", "route_to_replica DownstreamApp __call__",
		"replica_handle_request DownstreamApp __call__", "downstream_application_span",
	}
)

// wantChain wants the spans of names and no others, each the parent of the next,
// all of one trace.
func wantChain(t *testing.T, spans map[string]arrived, names []string) {
	t.Helper()
	if len(spans) != len(names) {
		t.Errorf("%d spans, want %d", len(spans), len(names))
	}
	parent := ""
	for _, name := range names {
		span, there := spans[name]
		if !there {
			t.Fatalf("no span %q", name)
		}
		if span.parent() != parent || span.trace() != spans[names[0]].trace() {
			t.Errorf("span %q has parent %q in trace %s, want %q in %s",
				name, span.parent(), span.trace(), parent, spans[names[0]].trace())
		}
		parent = span.id()
	}
}

// A Collector that takes keys as Honeycomb does gets the spans of services with the key.
func TestHoneycombPlugin(t *testing.T) {
	collector := peer.StartCollector(t, peer.WithTokenIn("x-honeycomb-team", key))
	s := startHello(t, "honeycomb-plugin", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.HTTP(),
		"HONEYCOMB_WRITE_KEY="+key, "HONEYCOMB_SERVICE_NAME=my-service-name", "HONEYCOMB_DATASET_NAME=my-dataset-name")
	s.Get("/", "r1")
	spans := flat(t, collector.WaitSpans(hellotest.SpansOfRequest))
	wantChain(t, spans, helloChain)
	for name, span := range spans {
		if span.service != "my-service-name" {
			t.Errorf("span %q is of service %q, want my-service-name", name, span.service)
		}
	}
	s.Stop()
	s.Await(s.Log, `msg=stopped spans=4 p\.delivered=4`, 1)
	wantNoKey(t, s)
}

// Over gRPC the same headers are metadata.
func TestHoneycombPluginOverGRPC(t *testing.T) {
	collector := peer.StartCollector(t, peer.WithTokenIn("x-honeycomb-team", key))
	s := startHello(t, "honeycomb-plugin", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.GRPC(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"HONEYCOMB_API_KEY="+key)
	s.Get("/", "r1")
	wantChain(t, flat(t, collector.WaitSpans(hellotest.SpansOfRequest)), helloChain)
	s.Stop()
	wantNoKey(t, s)
}

// A service with another key is refused, the reason is in its log, and the key is not.
func TestHoneycombPluginWithAWrongKey(t *testing.T) {
	collector := peer.StartCollector(t, peer.WithTokenIn("x-honeycomb-team", "another-key-altogether"))
	s := startHello(t, "honeycomb-plugin", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.HTTP(), "HONEYCOMB_WRITE_KEY="+key)
	s.Get("/", "r1")
	s.Await(s.Log, `level=(?:WARN|ERROR) .*plugin=p .*401`, 1)
	s.Stop()
	s.Await(s.Log, `msg="stopped; spans were lost" spans=4 p\.delivered=0 p\.rejected=map\[\w+:4\]`, 1)
	if spans := flat(t, collector.Spans()); len(spans) != 0 {
		t.Errorf("the Collector has %d spans", len(spans))
	}
	wantNoKey(t, s)
}

func wantNoKey(t *testing.T, s *hellotest.Service) {
	t.Helper()
	if strings.Contains(s.Log.String()+s.Stdout.String(), key) {
		t.Error("the key was printed")
	}
}

// Two services, one of which sends over HTTP and the other over gRPC: the
// Collector has one trace.
func TestUpstreamDownstream(t *testing.T) {
	collector := peer.StartCollector(t)
	start := func(service, endpoint, protocol string, args ...string) *hellotest.Service {
		return hellotest.StartProgram(t, peer.Command(t, "upstream-downstream"), append([]string{"--http", "127.0.0.1:0"}, args...),
			"SERVE_TRACING_EXPORTER_PLUGIN=otlp", "OTEL_SERVICE_NAME="+service,
			"OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol)
	}
	down := start("downstream", collector.GRPC(), "grpc")
	up := start("upstream", collector.HTTP(), "http/protobuf", "--downstream", down.URL+"/downstream")
	up.Get("/", "r1")
	spans := flat(t, collector.WaitSpans(2*hellotest.SpansOfRequest))
	wantChain(t, spans, slices.Concat(upstreamChain, downstreamChain))
	for service, names := range map[string][]string{"upstream": upstreamChain, "downstream": downstreamChain} {
		for _, name := range names {
			if spans[name].service != service {
				t.Errorf("span %q is of service %q, want %s", name, spans[name].service, service)
			}
		}
	}
	for _, s := range []*hellotest.Service{up, down} {
		s.Stop()
		s.Await(s.Log, `msg=stopped spans=4 otlp\.delivered=4`, 1)
	}
}

// The Collector is gone for a while. It gets every span after its return, and no back end
// gets one twice.
func TestMultiBackendPlugin(t *testing.T) {
	collector := peer.StartCollector(t)
	collector.Stop()
	s := startHello(t, "multi-backend-plugin", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.HTTP(),
		"SPAN_LINES_FILE="+t.TempDir()+"/spans.jsonl")
	s.Get("/", "r1")
	s.Await(s.Log, `level=WARN .*plugin=p .*connection refused`, 1)
	printed := s.Await(s.Stdout, `(?m)^        "span_id": "0x([0-9a-f]{16})",?$`, hellotest.SpansOfRequest)
	collector.Restart()
	spans := flat(t, collector.WaitSpans(hellotest.SpansOfRequest))
	wantChain(t, spans, helloChain)
	for name, span := range spans {
		if !slices.Contains(printed, span.id()) {
			t.Errorf("span %q with id %s is not on the console: %v", name, span.id(), printed)
		}
	}
	s.Stop()
	s.Await(s.Log, `msg=stopped spans=4 p\.delivered=4`, 1)
	if again := s.Await(s.Stdout, `(?m)^        "span_id": "0x([0-9a-f]{16})",?$`, 1); len(again) != hellotest.SpansOfRequest {
		t.Errorf("the console has %d spans, want %d", len(again), hellotest.SpansOfRequest)
	}
}
