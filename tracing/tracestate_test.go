package tracing_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/tracing"
)

// Pairs of inbound and outbound tracestate.
func TestConsistentTracestate(t *testing.T) {
	members := make([]string, 32)
	for i := range members {
		members[i] = fmt.Sprintf("v%d=%d", i, i)
	}
	full := strings.Join(members, ",")
	long := "ot=" + strings.Repeat("x", 250)
	const high, low = "ffffffffffffff", "00000000000000"
	for _, tc := range []struct {
		name, in, random string
		ratio            float64
		trust            bool
		flags, out       string
	}{
		{"untrusted: our threshold", "vendor=x", high, 0.5, false, "01", "ot=th:8,vendor=x"},
		{"untrusted: ours instead of the caller's", "vendor=x,ot=th:c;ab:1", high, 0.5, false, "01", "ot=ab:1;th:8,vendor=x"},
		{"untrusted, not sampled: the caller's goes", "ot=th:c;ab:1,vendor=x", low, 0.5, false, "00", "ot=ab:1,vendor=x"},
		{"untrusted, not sampled: its member with it", "vendor=x,ot=th:c", low, 0.5, false, "00", "vendor=x"},
		{"untrusted, ratio 1: nothing is written", "vendor=x,ot=th:c", low, 1, false, "01", "vendor=x"},
		{"untrusted, ratio 1: nothing at all", "", low, 1, false, "01", ""},
		{"untrusted, ratio 0", "ot=th:c;ab:1", high, 0, false, "00", "ot=ab:1"},
		{"explicit randomness takes", "ot=rv:80000000000000", low, 0.5, false, "01", "ot=rv:80000000000000;th:8"},
		{"explicit randomness leaves", "ot=rv:7fffffffffffff;th:0", high, 0.5, false, "00", "ot=rv:7fffffffffffff"},
		{"malformed randomness is none", "ot=rv:7F", high, 0.5, false, "01", "ot=rv:7F;th:8"},
		{"upper case is malformed", "ot=rv:7FFFFFFFFFFFFF", high, 0.5, false, "01", "ot=rv:7FFFFFFFFFFFFF;th:8"},
		{"the last of 32 falls", full, high, 0.5, false, "01", "ot=th:8," + strings.Join(members[:31], ",")},
		{"no room in the member", long, high, 0.5, false, "01", "ot=" + strings.Repeat("x", 250) + ";th:8"},
		{"no room at all", long + "yyyy", high, 0.5, false, "01", long + "yyyy"},
		{"trusted: as it came", "vendor=x,ot=th:c;ab:1", high, 0.5, true, "01", "vendor=x,ot=th:c;ab:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRecorder(t, func(c *tracing.Config) { c.Ratio, c.TrustInbound = tc.ratio, tc.trust })
			in := http.Header{"Traceparent": {"00-ffffffffffffffffff" + tc.random + "-" + inboundSpan + "-01"}}
			if tc.in != "" {
				in.Set("Tracestate", tc.in)
			}
			out := http.Header{}
			r.Inject(serveOne(r.Tracer, in), out)
			if got := out.Get("Tracestate"); got != tc.out {
				t.Errorf("tracestate %q, want %q", got, tc.out)
			}
			if got := out.Get("Traceparent"); !strings.HasSuffix(got, "-"+tc.flags) {
				t.Errorf("traceparent %q, want flags %s", got, tc.flags)
			}
			for _, s := range r.exporter.GetSpans() {
				if got := s.SpanContext.TraceState().String(); got != tc.out {
					t.Errorf("%q has tracestate %q, want %q", s.Name, got, tc.out)
				}
			}
		})
	}
}

// In a trace that begins here, all spans and outbound headers have the threshold. All
// ratio samplers are the same.
func TestConsistentRoot(t *testing.T) {
	for _, sampler := range []tracing.Sampler{tracing.TraceIDRatio, tracing.ParentBasedTraceIDRatio} {
		r := newRecorder(t, func(c *tracing.Config) { c.Sampler, c.Ratio = sampler, 0.25 })
		sampled := 0
		for range 200 {
			r.exporter.Reset()
			ctx := serveOne(r.Tracer, nil)
			sc, out := trace.SpanContextFromContext(ctx), http.Header{}
			r.Inject(ctx, out)
			want := ""
			if sc.IsSampled() {
				want = "ot=th:c"
				sampled++
			}
			id := sc.TraceID()
			if atLeast := id[9] >= 0xc0; atLeast != sc.IsSampled() {
				t.Errorf("%s: trace %s is sampled: %t", sampler, id, sc.IsSampled())
			}
			if got := out.Get("Tracestate"); got != want {
				t.Errorf("%s: tracestate %q leaves, want %q", sampler, got, want)
			}
			for _, s := range r.exporter.GetSpans() {
				if got := s.SpanContext.TraceState().String(); got != want {
					t.Errorf("%s: %q has tracestate %q, want %q", sampler, s.Name, got, want)
				}
			}
		}
		// 200 throws at a quarter leave 10 to 100 but once in 10^10 runs.
		if sampled < 10 || sampled > 100 {
			t.Errorf("%s: %d of 200 traces are sampled, want about 50", sampler, sampled)
		}
	}
}
