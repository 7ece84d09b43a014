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
	// otKey is the key of OpenTelemetry's member of a trace state.
	otKey = "ot"
	// maxOTLength is the largest length of the value of OpenTelemetry's member.
	maxOTLength = 256
)

// consistentSampler samples a share of the traces by OpenTelemetry's rule of consistent
// probability. It samples a trace if the randomness of the trace is not below a
// threshold. The randomness is the explicit value "rv", or else the last 56 bits of the
// trace id. All samplers with this rule and the same share sample the same traces. If the
// sampler is parent based, a span inherits the decision of its parent, as with
// [sdktrace.ParentBased].
//
// At shares between 0 and 1 it writes the threshold as "th" into the "ot" member of the
// trace state. Back ends use it to compute how many traces a sampled trace represents.
// At any share it removes an inbound "th", because that belongs to the decision of
// another sampler. It keeps the other parts of the member.
//
// Source:
// https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/
type consistentSampler struct {
	parentBased  bool // a span inherits the decision of its parent
	trustInbound bool // a span also inherits the decision of a parent in another process

	threshold   uint64           // a trace is sampled if its randomness is not below this number
	th          string           // "th:" with the threshold; empty at shares 0 and 1
	alone       trace.TraceState // the trace state of a trace that has no other members and is sampled
	description string           // the result of Description
}

var _ sdktrace.Sampler = (*consistentSampler)(nil)

// newConsistentSampler returns a sampler for a share from 0 to 1.
func newConsistentSampler(share float64) *consistentSampler {
	s := &consistentSampler{
		threshold:   1<<randomBits - uint64(math.Round(share*(1<<randomBits))),
		description: fmt.Sprintf("ConsistentProbability{%g}", share),
	}
	if s.threshold > 0 && !s.never() {
		s.th = "th:" + strings.TrimRight(fmt.Sprintf("%014x", s.threshold), "0")
		s.alone, _ = s.alone.Insert(otKey, s.th) // cannot fail for this text
	}
	return s
}

// inherits reports whether a span inherits the decision of parent.
func (s *consistentSampler) inherits(parent trace.SpanContext) bool {
	return s.parentBased && parent.IsValid() && (s.trustInbound || !parent.IsRemote())
}

// never reports whether the share is 0, so that a span is sampled only if it inherits the
// decision.
func (s *consistentSampler) never() bool { return s.threshold == 1<<randomBits }

// ShouldSample implements [sdktrace.Sampler].
func (s *consistentSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	state := parent.TraceState()
	if s.inherits(parent) {
		if parent.IsSampled() {
			return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample, Tracestate: state}
		}
		return sdktrace.SamplingResult{Decision: sdktrace.Drop, Tracestate: state}
	}
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

// explicitRandomness returns the randomness in ot, the value of OpenTelemetry's member of a
// trace state. ok is false if ot has no part "rv:" with 14 lower-case hexadecimal digits.
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

// withThreshold returns the trace state with th as the threshold of the sampler. ot is the
// value of OpenTelemetry's member of state. A threshold in ot is removed, and th is added
// unless it is empty or the value would become too long. If the state is full, its last
// member is dropped.
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
	if err != nil { // cannot happen: the parts were valid before, and th is valid
		return state.Delete(otKey)
	}
	return changed
}
