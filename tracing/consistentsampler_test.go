package tracing

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// traceWith returns a trace id that ends in these 14 digits.
func traceWith(t *testing.T, random string) (id trace.TraceID) {
	t.Helper()
	raw, err := hex.DecodeString("ffffffffffffffffff" + random)
	if err != nil || len(raw) != len(id) {
		t.Fatalf("%q is not 14 hexadecimal digits", random)
	}
	copy(id[:], raw)
	return id
}

// The thresholds are those of the specification's table, at full precision, and what
// is not below them is sampled.
func TestConsistentThreshold(t *testing.T) {
	for _, tc := range []struct {
		share          float64
		th             string
		last, notBelow string // the last randomness that is dropped, the first that is sampled; empty for none
	}{
		{1, "", "", "00000000000000"},
		{0.5, "th:8", "7fffffffffffff", "80000000000000"},
		{0.25, "th:c", "bfffffffffffff", "c0000000000000"},
		{0.1, "th:e6666666666666", "e6666666666665", "e6666666666666"},
		{0.01, "th:fd70a3d70a3d71", "fd70a3d70a3d70", "fd70a3d70a3d71"},
		{1.0 / (1 << 56), "th:ffffffffffffff", "fffffffffffffe", "ffffffffffffff"},
		{1e-20, "", "ffffffffffffff", ""}, // rounds to none
		{0, "", "ffffffffffffff", ""},
	} {
		s := newConsistentSampler(tc.share)
		if s.th != tc.th {
			t.Errorf("share %v: %q, want %q", tc.share, s.th, tc.th)
		}
		for random, want := range map[string]sdktrace.SamplingDecision{tc.last: sdktrace.Drop, tc.notBelow: sdktrace.RecordAndSample} {
			if random == "" {
				continue
			}
			got := s.ShouldSample(sdktrace.SamplingParameters{ParentContext: t.Context(), TraceID: traceWith(t, random)})
			if got.Decision != want {
				t.Errorf("share %v, randomness %s: decision %v, want %v", tc.share, random, got.Decision, want)
			}
			state := ""
			if tc.th != "" && want == sdktrace.RecordAndSample {
				state = "ot=" + tc.th
			}
			if got.Tracestate.String() != state {
				t.Errorf("share %v, randomness %s: tracestate %q, want %q", tc.share, random, got.Tracestate, state)
			}
		}
	}
}

// What comes in as tracestate, and what goes out.
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
			r := newRecorder(t, func(c *Config) { c.Ratio, c.TrustInbound = tc.ratio, tc.trust })
			id := traceWith(t, tc.random)
			in := http.Header{"Traceparent": {"00-" + id.String() + "-" + inboundSpan + "-01"}}
			if tc.in != "" {
				in.Set("Tracestate", tc.in)
			}
			out := http.Header{}
			r.Inject(serveOne(r.Provider, in), out)
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

// Of a trace that begins here, all spans say the threshold, and so does what leaves.
// Every ratio sampler is the same.
func TestConsistentRoot(t *testing.T) {
	for _, sampler := range []Sampler{TraceIDRatio, ParentBasedTraceIDRatio} {
		r := newRecorder(t, func(c *Config) { c.Sampler, c.Ratio = sampler, 0.25 })
		sampled := 0
		for range 200 {
			r.exporter.Reset()
			ctx := serveOne(r.Provider, nil)
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

// FuzzConsistentTracestate: whatever comes in, what goes out can be read again, and
// has one threshold at most.
func FuzzConsistentTracestate(f *testing.F) {
	f.Add("ot=th:c;rv:1234567890abcd,vendor=x", byte(0))
	f.Add("ot=;;th:;th:1;rv:,a=b", byte(0xff))
	f.Fuzz(func(t *testing.T, in string, random byte) {
		state, err := trace.ParseTraceState(in)
		if err != nil {
			t.Skip()
		}
		parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceState: state, Remote: true})
		p := sdktrace.SamplingParameters{ParentContext: trace.ContextWithSpanContext(context.Background(), parent), TraceID: trace.TraceID{9: random}}
		got := newConsistentSampler(0.5).ShouldSample(p).Tracestate
		again, err := trace.ParseTraceState(got.String())
		if err != nil || again.String() != got.String() || got.Len() > 32 {
			t.Errorf("%q became %q: %v", in, got, err)
		}
		if n := strings.Count(";"+got.Get(otKey), ";th:"); n > 1 || len(got.Get(otKey)) > maxOTLength {
			t.Errorf("%q became %q", in, got)
		}
	})
}
