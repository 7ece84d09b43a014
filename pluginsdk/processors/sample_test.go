package processors

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/tracing"
)

// TestThreshold has the values of OpenTelemetry's specification: 25 % is the
// threshold c0000000000000, and so on.
func TestThreshold(t *testing.T) {
	for ratio, want := range map[float64]uint64{
		1: 0, 0.5: 0x80000000000000, 0.25: 0xc0000000000000, 0.01: 0xfd70a3d70a3d71, 0.1: 0xe6666666666666,
		0: 1 << 56, 1.0 / (1 << 56): 1<<56 - 1,
	} {
		if got := threshold(ratio); got != want {
			t.Errorf("threshold(%v) = %#x, want %#x", ratio, got, want)
		}
	}
}

func TestRandomness(t *testing.T) {
	id := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7}
	const ofID = 0x01020304050607
	for state, want := range map[string]uint64{
		"": ofID, "x=rv:0fffffffffffff": ofID, "ot=th:c": ofID, "ot=rv:0fffffffffffff": 0x0fffffffffffff,
		"x=y,ot=th:c;rv:00000000000001": 1, "ot=rv:1": ofID, "ot=rv:0FFFFFFFFFFFFF": ofID, "ot=rv:0ffffffffffff+": ofID,
		"ot=rv:+ffffffffffff1": ofID, "ot=xrv:0fffffffffffff": ofID, "malformed": ofID,
	} {
		data := &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
			ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{TraceId: id, TraceState: state}}}},
		}}}
		for span := range pluginsdk.NewBatch(marshal(t, data)).Spans() {
			if got := randomness(span); got != want {
				t.Errorf("randomness with tracestate %q = %#x, want %#x", state, got, want)
			}
		}
	}
}

// TestSampleIsConsistent: a ratio keeps about its share of the traces, and only traces
// that each larger ratio keeps.
func TestSampleIsConsistent(t *testing.T) {
	const traces = 10_000
	g, scope := newGenerator(1), &tracepb.ScopeSpans{}
	for range traces {
		scope.Spans = append(scope.Spans, &tracepb.Span{TraceId: g.id(16)})
	}
	encoded := marshal(t, &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{scope}}}})
	var before map[string]bool
	for _, ratio := range []float64{1, 0.5, 0.1, 0.01} {
		out, err := process(t, construct(t, Sample(SampleConfig{Ratio: ratio}), pluginsdk.Setup{}), encoded)
		if err != nil {
			t.Fatal(err)
		}
		kept := map[string]bool{}
		for _, s := range spansOf(unmarshal(t, out)) {
			kept[string(s.TraceId)] = true
			if before != nil && !before[string(s.TraceId)] {
				t.Errorf("ratio %v keeps a trace that a larger one drops", ratio)
			}
		}
		// 2.5 % are five standard deviations.
		if share := float64(len(kept)) / traces; share < ratio-0.025 || share > ratio+0.025 {
			t.Errorf("ratio %v keeps %v of the traces", ratio, share)
		}
		before = kept
	}
}

// TestSampleAgreesWithTheSampler: for the spans of a service with a sampler of its own,
// the same ratio keeps every span, and a smaller ratio keeps the spans that the service
// would have sent at that ratio.
func TestSampleAgreesWithTheSampler(t *testing.T) {
	sent := func(ratio float64) []byte {
		cfg := tracing.DefaultConfig()
		cfg.Ratio, cfg.TrustInbound = ratio, false
		w := &wired{}
		provider, err := tracing.NewProvider(cfg, w)
		if err != nil {
			t.Fatal(err)
		}
		p := spans.New(provider)
		g := newGenerator(2)
		for range 1000 {
			ctx := provider.Extract(t.Context(), http.Header{"Traceparent": {fmt.Sprintf("00-%x-%x-01", g.id(16), g.id(8))}})
			_, span := p.StartProxy(ctx, spans.ProxyStart{Request: &identity.Request{}})
			span.EndProxy(spans.ProxyResult{StatusCode: 200})
		}
		return w.AppendRequest(nil)
	}
	traces := func(data []byte) (ids []string) {
		for _, s := range spansOf(unmarshal(t, data)) {
			ids = append(ids, fmt.Sprintf("%x", s.TraceId))
		}
		return ids
	}
	for _, ratio := range []float64{0.3, 0.1, 0.05} {
		kept, err := process(t, construct(t, Sample(SampleConfig{Ratio: ratio}), pluginsdk.Setup{}), sent(0.3))
		if err != nil {
			t.Fatal(err)
		}
		want := traces(sent(ratio))
		if diff := cmp.Diff(want, traces(kept)); diff != "" || len(want) < 20 {
			t.Errorf("ratio %v of a service's 0.3, %d traces (-sent at that ratio +kept):\n%s", ratio, len(want), diff)
		}
	}
}

// TestRayContextForms: which task ids are taken for one.
func TestRayContextForms(t *testing.T) {
	const id = "23eec2ff096fc93aea943783f1a232b9b59a8ce587b0358e"
	for task, want := range map[string]string{
		id: id[40:], id[1:]: "", id + "0": "", "": "", "23EEC2FF096FC93AEA943783F1A232B9B59A8CE587B0358E": "",
		"g" + id[1:]: "", "é" + id[2:]: "",
	} {
		span := &tracepb.Span{Attributes: []*commonpb.KeyValue{{Key: "serve.task_id", Value: textValue(task)}}}
		data := &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
			ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{span}}},
		}}}
		out, err := process(t, construct(t, RayContext(), pluginsdk.Setup{}), marshal(t, data))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := find(spansOf(unmarshal(t, out))[0].Attributes, "ray.job_id")
		if got.GetStringValue() != want {
			t.Errorf("task id %q gives job id %q, want %q", task, got.GetStringValue(), want)
		}
	}
}
