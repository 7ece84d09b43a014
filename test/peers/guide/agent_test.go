package guide

import (
	"strings"
	"testing"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/test/peers/peer"
)

const job = "01020304"

// resources are the names in Datadog of the spans of a request of hello, from the outermost
// on.
var resources = []string{
	"proxy_http_request HelloWorld GET /", "route_to_replica HelloWorld __call__",
	"replica_handle_request HelloWorld __call__", "HelloWorld application_span",
}

// wantAtDatadog wants the four spans of a request as one trace, each the parent
// of the next, with the guide's Ray context and the resources of the plugin.
func wantAtDatadog(t *testing.T, spans []peer.AgentSpan) {
	t.Helper()
	byResource := map[string]peer.AgentSpan{}
	for _, span := range spans {
		byResource[span.Resource] = span
		task, actor := span.Meta["ray.task_id"], span.Meta["ray.actor_id"]
		if span.Meta["ray.job_id"] != job || span.Meta["ray.request_id"] != "r1" || len(task) != 48 ||
			len(actor) != 32 || !strings.HasSuffix(task, actor) || !strings.HasSuffix(actor, job) {
			t.Errorf("span %q has %v, want Ray's identity", span.Resource, span.Meta)
		}
		if span.Service != "my-service-name" || span.Error != 0 {
			t.Errorf("span %q is of service %q, error %d; want my-service-name, 0", span.Resource, span.Service, span.Error)
		}
	}
	if len(spans) != len(resources) {
		t.Errorf("%d spans, want %d", len(spans), len(resources))
	}
	var parent uint64
	for _, resource := range resources {
		span, there := byResource[resource]
		if !there {
			t.Fatalf("no resource %q among %v", resource, byResource)
		}
		if span.ParentID != parent || span.TraceID != spans[0].TraceID {
			t.Errorf("span %q has parent %d in trace %s, want %d in %s",
				resource, span.ParentID, span.TraceID, parent, spans[0].TraceID)
		}
		parent = span.SpanID
	}
}

// The plugin in its two modes, at an agent of each kind: Datadog gets the same trace.
func TestDatadogPlugin(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options []peer.AgentOption
		environ func(*peer.DatadogAgent) []string
	}{
		{"agent", nil, func(a *peer.DatadogAgent) []string {
			return []string{"DD_TRACE_AGENT_URL=" + a.URL()}
		}},
		{"agent, protocol 1.0", nil, func(a *peer.DatadogAgent) []string {
			return []string{"DD_TRACE_AGENT_URL=" + a.URL(), "DD_TRACE_AGENT_PROTOCOL_VERSION=1.0"}
		}},
		{"an old agent", []peer.AgentOption{peer.WithoutV1()}, func(a *peer.DatadogAgent) []string {
			return []string{"DD_TRACE_AGENT_URL=" + a.URL(), "DD_TRACE_AGENT_PROTOCOL_VERSION=1.0"}
		}},
		{"otlp, as in the guide", nil, func(a *peer.DatadogAgent) []string {
			return []string{"SERVE_DATADOG_MODE=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=" + a.OTLPHTTP()}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			agent := peer.StartDatadogAgent(t, tc.options...)
			s := startHello(t, "datadog-plugin", append(tc.environ(agent), "OTEL_SERVICE_NAME=my-service-name", "RAY_JOB_ID="+job)...)
			s.Get("/", "r1")
			wantAtDatadog(t, agent.WaitSpans(hellotest.SpansOfRequest))
			s.Stop()
			s.Await(s.Log, `msg=stopped spans=4 p\.delivered=4`, 1)
		})
	}
}
