package tracing

import (
	"context"
	"encoding/hex"
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

// The thresholds of the specification's table, in full precision. Randomness at or above
// them is sampled.
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

// FuzzConsistentTracestate: for any input, the output can be parsed again and has at most
// one threshold.
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

// A parent-based sampler inherits the same decisions as the SDK's.
func TestParentBasedAsTheSDK(t *testing.T) {
	parent := func(flags trace.TraceFlags, remote bool) trace.SpanContext {
		state, err := trace.ParseTraceState("vendor=1,ot=th:8;rv:" + strings.Repeat("7", 14))
		if err != nil {
			t.Fatal(err)
		}
		return trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: flags, TraceState: state, Remote: remote,
		})
	}
	for _, share := range []float64{0, 0.5, 1} {
		root := newConsistentSampler(share)
		distrusting := sdktrace.ParentBased(root, sdktrace.WithRemoteParentSampled(root), sdktrace.WithRemoteParentNotSampled(root))
		for trust, sdk := range map[bool]sdktrace.Sampler{true: sdktrace.ParentBased(root), false: distrusting} {
			ours := Config{Sampler: ParentBasedTraceIDRatio, Ratio: share, TrustInbound: trust}.newSampler()
			for _, sc := range []trace.SpanContext{
				{}, parent(0, false), parent(0, true), parent(trace.FlagsSampled, false), parent(trace.FlagsSampled, true),
			} {
				p := sdktrace.SamplingParameters{ParentContext: trace.ContextWithSpanContext(t.Context(), sc), TraceID: trace.TraceID{1}}
				got, want := ours.ShouldSample(p), sdk.ShouldSample(p)
				if got.Decision != want.Decision || got.Tracestate.String() != want.Tracestate.String() {
					t.Errorf("share %v, trust %t, below %v: %+v, want %+v", share, trust, sc, got, want)
				}
			}
		}
	}
}
