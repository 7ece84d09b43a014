package clients

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/test/peers/peer"
)

// The spans of a trace of the Datadog client beside the spans of hello.
var datadogClient = []string{"node-dd: client.work", "node-dd: GET"}

// agentNodes returns the agent's spans by trace, under their names in OpenTelemetry. For
// spans of hello, this is Datadog's resource. Zero is no parent.
func agentNodes(spans []peer.AgentSpan) map[string][]node {
	id := func(n uint64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%016x", n)
	}
	traces := map[string][]node{}
	for _, s := range spans {
		traces[s.TraceID] = append(traces[s.TraceID], node{id(s.SpanID), id(s.ParentID), s.Service, s.Resource})
	}
	return traces
}

// callAsDatadog has a client that dd-trace traces call hello.
func callAsDatadog(t *testing.T, s *hellotest.Service, a *peer.DatadogAgent, paths map[string]int, env ...string) []call {
	t.Helper()
	return callHello(t, s, "dd.js", paths, append(env, "AGENT="+a.URL(),
		"DD_INSTRUMENTATION_TELEMETRY_ENABLED=false", "DD_REMOTE_CONFIGURATION_ENABLED=false")...)
}

// startForAgent starts hello with the plugin for Datadog in a mode.
func startForAgent(t *testing.T, a *peer.DatadogAgent, mode string) *hellotest.Service {
	t.Helper()
	if mode == "otlp" {
		return startHello(t, "datadog", "SERVE_DATADOG_MODE=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT="+a.OTLPHTTP())
	}
	return startHello(t, "datadog", "SERVE_DATADOG_MODE="+mode, "DD_TRACE_AGENT_URL="+a.URL())
}

func TestDatadogClientAndWeAreOneTrace(t *testing.T) {
	for _, mode := range []string{"tracer", "otlp"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := peer.StartDatadogAgent(t)
			s := startForAgent(t, a, mode)
			calls := callAsDatadog(t, s, a, pathsOfHello())
			spans := a.WaitSpans(len(calls) * (len(datadogClient) + hellotest.SpansOfRequest))
			got := agentNodes(spans)
			for _, call := range calls {
				if call.flag() != "01" || call.Trace[:16] == "0000000000000000" {
					t.Errorf("trace %s, headers %v: want one of 128 bits that is kept", call.Trace, call.Headers)
				}
				// The trace that Datadog's own headers name is the same.
				low, err := strconv.ParseUint(call.Headers["x-datadog-trace-id"], 10, 64)
				if err != nil || fmt.Sprintf("%016x", low) != call.Trace[16:] {
					t.Errorf("trace %s, headers %v, %v", call.Trace, call.Headers, err)
				}
				wantChain(t, call, got[call.Trace], datadogClient...)
				wantTracestate(t, spans, call)
			}
			if len(got) != len(calls) {
				t.Errorf("%d traces, want %d", len(got), len(calls))
			}
		})
	}
}

// wantTracestate checks that each span of hello has the client's tracestate unchanged: the
// member "dd" has Datadog's decision and its reason.
func wantTracestate(t *testing.T, spans []peer.AgentSpan, c call) {
	t.Helper()
	for _, s := range spans {
		if s.TraceID == c.Trace && s.Service == "hello" && s.Meta["w3c.tracestate"] != c.Headers["tracestate"] {
			t.Errorf("%s has the tracestate %q, want %q", s.Resource, s.Meta["w3c.tracestate"], c.Headers["tracestate"])
		}
	}
}

// A client that does not sample its trace gets an answer, and hello has no span of it when
// the spans of a later request have come and all is flushed.
func TestDatadogClientThatDoesNotSample(t *testing.T) {
	for _, mode := range []string{"tracer", "otlp"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := peer.StartDatadogAgent(t)
			s := startForAgent(t, a, mode)
			for _, call := range callAsDatadog(t, s, a, pathsOfHello(), "DD_TRACE_SAMPLE_RATE=0") {
				if call.flag() != "00" || call.Headers["x-datadog-sampling-priority"] != "-1" {
					t.Errorf("the client sent %v, want a flag of 00 and priority -1", call.Headers)
				}
			}
			kept := callAsDatadog(t, s, a, map[string]int{"/": 200})[0]
			s.Stop()
			ours := 0
			for _, span := range a.WaitSpans(len(datadogClient) + hellotest.SpansOfRequest) {
				if span.Service != "hello" {
					continue
				}
				if ours++; span.TraceID != kept.Trace {
					t.Errorf("%s of trace %s, which the client does not keep", span.Resource, span.TraceID)
				}
			}
			if ours != hellotest.SpansOfRequest {
				t.Errorf("%d spans of hello, want %d", ours, hellotest.SpansOfRequest)
			}
		})
	}
}
