package clients

import (
	"encoding/hex"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/test/peers/peer"
)

// nodes are the spans of OTLP by their traces.
func nodes(batches []*tracepb.ResourceSpans) map[string][]node {
	traces := map[string][]node{}
	for _, resource := range batches {
		service := ""
		for _, kv := range resource.GetResource().GetAttributes() {
			if kv.GetKey() == "service.name" {
				service = kv.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				id := hex.EncodeToString(s.GetTraceId())
				traces[id] = append(traces[id], node{
					hex.EncodeToString(s.GetSpanId()), hex.EncodeToString(s.GetParentSpanId()), service, s.GetName(),
				})
			}
		}
	}
	return traces
}

// pathsOfHello are requests, and how hello answers them.
func pathsOfHello() map[string]int { return map[string]int{"/": 200, "/fail": 500} }

func TestOpenTelemetryClientAndWeAreOneTrace(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := peer.StartCollector(t)
			endpoint := c.HTTP()
			if protocol == "grpc" {
				endpoint = c.GRPC()
			}
			s := startHello(t, "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint)
			calls := callHello(t, s, "otel.js", pathsOfHello(), "COLLECTOR="+c.HTTP())
			got := nodes(c.WaitSpans(len(calls) * (1 + hellotest.SpansOfRequest)))
			for _, call := range calls {
				if call.flag() != "01" || call.parent() != call.Span {
					t.Errorf("the client sent %v", call.Headers)
				}
				wantChain(t, call, got[call.Trace], "node-otel: client")
			}
			if len(got) != len(calls) {
				t.Errorf("%d traces, want %d", len(got), len(calls))
			}
		})
	}
}

// A client that does not sample its trace gets an answer, and there is no span of it when
// the spans of a later request have come and all is flushed.
func TestOpenTelemetryClientThatDoesNotSample(t *testing.T) {
	t.Parallel()
	c := peer.StartCollector(t)
	s := startHello(t, "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT="+c.HTTP())
	for _, call := range callHello(t, s, "otel.js", pathsOfHello(), "COLLECTOR="+c.HTTP(), "UNSAMPLED=1") {
		if call.flag() != "00" {
			t.Errorf("the client sent %v, want a flag of 00", call.Headers)
		}
	}
	kept := callHello(t, s, "otel.js", map[string]int{"/": 200}, "COLLECTOR="+c.HTTP())[0]
	s.Stop()
	got := nodes(c.WaitSpans(1 + hellotest.SpansOfRequest))
	if len(got) != 1 || len(got[kept.Trace]) != 1+hellotest.SpansOfRequest {
		t.Errorf("spans of %v, want those of trace %s alone", got, kept.Trace)
	}
}
