package tracing

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// randomBits is the number of random bits at the end of a trace id.
	randomBits = 56
	// otKey is OpenTelemetry's member of a trace state.
	otKey = "ot"
	// maxOTLength is the longest value of that member.
	maxOTLength = 256
)

// consistentSampler takes a share of the traces by OpenTelemetry's rule of
// consistent probability: it samples a trace if the trace's randomness, its explicit
// "rv" or else the last 56 bits of the trace id, is not below a threshold. All who
// follow the rule with the same share take the same traces.
//
// At shares between 0 and 1 it writes the threshold as "th" into the "ot" member of
// the trace state, so that others know how many traces a sampled one stands for. At
// any share it removes a "th" that came in, because it was somebody else's decision,
// and it keeps what else that member holds.
//
// Source: https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/
type consistentSampler struct {
	threshold   uint64
	th          string           // the member's part; empty at shares 0 and 1
	alone       trace.TraceState // th, and nothing else
	description string
}

var _ sdktrace.Sampler = (*consistentSampler)(nil)

// newConsistentSampler returns a sampler that takes a share, from 0 to 1.
func newConsistentSampler(share float64) *consistentSampler {
	s := &consistentSampler{
		threshold:   1<<randomBits - uint64(math.Round(share*(1<<randomBits))),
		description: fmt.Sprintf("ConsistentProbability{%g}", share),
	}
	if s.threshold > 0 && s.threshold < 1<<randomBits {
		s.th = "th:" + strings.TrimRight(fmt.Sprintf("%014x", s.threshold), "0")
		s.alone, _ = s.alone.Insert(otKey, s.th) // the text is valid
	}
	return s
}

// ShouldSample implements [sdktrace.Sampler].
func (s *consistentSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	state := trace.SpanContextFromContext(p.ParentContext).TraceState()
	ot := state.Get(otKey)
	random, explicit := explicitRandomness(ot)
	if !explicit {
		random = binary.BigEndian.Uint64(p.TraceID[8:]) & (1<<randomBits - 1)
	}
	if random < s.threshold {
		return sdktrace.SamplingResult{Decision: sdktrace.Drop, Tracestate: withThreshold(state, ot, "")}
	}
	if state.Len() == 0 {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample, Tracestate: s.alone}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample, Tracestate: withThreshold(state, ot, s.th)}
}

// Description implements [sdktrace.Sampler].
func (s *consistentSampler) Description() string { return s.description }

// explicitRandomness reads "rv:" and 14 lower-case hexadecimal digits in the value of
// an "ot" member.
func explicitRandomness(ot string) (random uint64, ok bool) {
	for part := range strings.SplitSeq(ot, ";") {
		if digits, is := strings.CutPrefix(part, "rv:"); is {
			if !isHex(digits, randomBits/8) {
				return 0, false
			}
			random, err := strconv.ParseUint(digits, 16, randomBits)
			return random, err == nil
		}
	}
	return 0, false
}

// withThreshold returns state with th in the place of what its member ot has of the
// kind, or without any if th is empty. A member that would be too long goes without.
// Of a full state, the last member falls.
func withThreshold(state trace.TraceState, ot, th string) trace.TraceState {
	var kept []string
	for part := range strings.SplitSeq(ot, ";") {
		if part != "" && !strings.HasPrefix(part, "th:") {
			kept = append(kept, part)
		}
	}
	value := strings.Join(kept, ";")
	if with := strings.TrimPrefix(value+";"+th, ";"); th != "" && len(with) <= maxOTLength {
		value = with
	}
	switch value {
	case ot:
		return state
	case "":
		return state.Delete(otKey)
	}
	changed, err := state.Insert(otKey, value)
	if err != nil { // cannot happen: all of it came in, or is th
		return state.Delete(otKey)
	}
	return changed
}
