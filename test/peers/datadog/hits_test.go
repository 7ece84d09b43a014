package datadog

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
	"github.com/servetrace/servetrace/test/peers/peer"
)

// requests returns the server spans of n requests that a host with this sampling
// threshold keeps, as its sampler marks them.
func requests(n int, threshold uint64) *coltracepb.ExportTraceServiceRequest {
	var spans []*tracepb.Span
	now := uint64(time.Now().UnixNano())
	for i := range n {
		id := uint64(i+1) * 0x9e3779b97f4a7c15 // evenly spread
		if id&(1<<56-1) < threshold {
			continue
		}
		s := &tracepb.Span{
			TraceId: binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 7), id),
			SpanId:  binary.BigEndian.AppendUint64(nil, id), Name: "GET /", Kind: tracepb.Span_SPAN_KIND_SERVER,
			StartTimeUnixNano: now, EndTimeUnixNano: now + 1000,
		}
		if threshold > 0 {
			s.TraceState = fmt.Sprintf("ot=th:%014x", threshold)
		}
		spans = append(spans, s)
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{str("service.name", "orders")}},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}},
	}}}
}

// TestHitsUnderSampling: Datadog's statistics count all requests, if the host samples, or
// Datadog, or neither. The agent has its default target rate.
func TestHitsUnderSampling(t *testing.T) {
	const n = 2000
	for name, c := range map[string]struct {
		ratio     float64
		threshold uint64
		variables []string
		least     uint64
		most      uint64
	}{
		"all":                {1, 0, nil, n, n},
		"a tenth":            {0.1, 0xe6666666666668, nil, 1800, 2200},
		"a tenth by OTLP":    {0.1, 0xe6666666666668, []string{"SERVE_DATADOG_MODE=otlp"}, 1800, 2200},
		"a tenth by Datadog": {1, 0, []string{"DD_TRACE_SAMPLE_RATE=0.1", "DD_TRACE_RATE_LIMIT=100000"}, n, n},
	} {
		t.Run(name, func(t *testing.T) {
			a := peer.StartDatadogAgent(t, peer.WithStatistics())
			variables := append(c.variables, "DD_TRACE_AGENT_URL="+a.URL(), "OTEL_EXPORTER_OTLP_ENDPOINT="+a.OTLPGRPC(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
			set(t, variables)
			p := plugintest.Run(t, spec, plugintest.WithEnv(variables...),
				plugintest.WithContext(pluginsdk.StaticContext{SamplingRatio: c.ratio}))
			answer, err := p.Export(t.Context(), requests(n, c.threshold))
			if err != nil || !answer.Delivered() || answer.Rejected != 0 {
				t.Fatalf("answer is %v, %v", answer, err)
			}
			if err := p.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			a.Stop()
			if hits := a.Hits()["server.request"]; hits < c.least || hits > c.most {
				t.Errorf("Datadog counts %d requests, want %d to %d", hits, c.least, c.most)
			}
		})
	}
}
