package processors

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/servetrace/servetrace/pluginsdk"
)

// SampleConfig configures [Sample].
type SampleConfig struct {
	// Name in the span account. Empty: "sample".
	Name string `yaml:"name"`
	// Ratio is the share of traces that is kept, from 0 to 1. Zero keeps only
	// the spans of Keep. In a document it must be given.
	Ratio float64 `yaml:"ratio"`
	// Keep names spans that are kept at every ratio.
	Keep KeepConfig `yaml:"keep"`
}

// KeepConfig names spans to keep; one of the rules is enough. The zero value
// names none.
type KeepConfig struct {
	// Errors keeps spans with status error.
	Errors bool `yaml:"errors"`
	// SlowerThan keeps spans that took longer. Zero: no such rule.
	SlowerThan time.Duration `yaml:"slower_than"`
}

// Validate names all faults, each a [*pluginsdk.ConfigError].
func (c SampleConfig) Validate() error {
	var f faults
	f.checkName(c.Name)
	if math.IsNaN(c.Ratio) || c.Ratio < 0 || c.Ratio > 1 {
		f.add("ratio", "%v is not a number from 0 to 1", c.Ratio)
	}
	if c.Keep.SlowerThan < 0 {
		f.add("keep.slower_than", "%v is negative: give a duration such as 1s, or 0 for no such rule", c.Keep.SlowerThan)
	}
	return f.err()
}

// Sample keeps a share of the traces and drops the spans of all others, by
// OpenTelemetry's rule of consistent probability: a trace is kept if its
// randomness, the last 56 bits of the trace id or "rv" of the tracestate's "ot"
// entry, is not below (1 - ratio) * 2^56. So every process that follows the
// rule with the same ratio keeps the same traces, and with a smaller ratio a part
// of the same traces; the ratio is of all traces, not of the arriving ones.
// Services of this runtime sample by the same rule: of the traces that they send
// at ratio 0.1, Sample keeps all at 0.1 or more and half at 0.05. OpenTelemetry's SDK for
// Go (v1.47) chooses by other bits: there the two ratios multiply.
//
// It decides for each span by itself, and a plugin sees the spans of a trace in
// several batches, in several processes: a span kept by [KeepConfig] stands
// alone where its trace was not taken. Keep rules cut traces. If you want
// whole traces of errors, deliver everything and sample in the back end. Sample
// does not edit the tracestate, so a back end that extrapolates needs the ratio
// in its own configuration.
//
// It allocates nothing for a span without a tracestate.
//
// Source: https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/
func Sample(c SampleConfig) pluginsdk.NewProcessor {
	return constructor(kindSample, c.Name, func(pluginsdk.Setup) (func(*pluginsdk.Batch), error) {
		least := threshold(c.Ratio)
		return func(b *pluginsdk.Batch) {
			for span := range b.Spans() {
				if randomness(span) < least && !c.Keep.keeps(span) {
					span.Drop()
				}
			}
		}, c.Validate()
	})
}

// randomBits is how many bits of a trace id are random by W3C Trace Context,
// level 2.
const randomBits = 56

// threshold is the least randomness that is kept, rounded as the Collector
// does.
func threshold(ratio float64) uint64 {
	return 1<<randomBits - uint64(math.Round(ratio*(1<<randomBits)))
}

func (c KeepConfig) keeps(span pluginsdk.Span) bool {
	if c.SlowerThan > 0 && span.EndTime().Sub(span.StartTime()) > c.SlowerThan {
		return true
	}
	if !c.Errors {
		return false
	}
	code, _ := span.Status()
	return code == codes.Error
}

// randomness returns the number that every sampler of the trace derives from it.
func randomness(span pluginsdk.Span) uint64 {
	if state := span.TraceState(); state.Len() > 0 {
		if r, ok := explicitRandomness(state.Get("ot")); ok {
			return r
		}
	}
	id := span.TraceID()
	return binary.BigEndian.Uint64(id[8:]) & (1<<randomBits - 1)
}

// explicitRandomness reads "rv:" and 14 hexadecimal digits out of OpenTelemetry's
// entry of a tracestate: "th:c;rv:0123456789abcd".
func explicitRandomness(entry string) (uint64, bool) {
	const digits = randomBits / 4
	for member := range strings.SplitSeq(entry, ";") {
		value, ok := strings.CutPrefix(member, "rv:")
		if !ok {
			continue
		}
		if len(value) != digits || strings.ContainsAny(value, "ABCDEF+_") {
			return 0, false
		}
		r, err := strconv.ParseUint(value, 16, 64)
		return r, err == nil
	}
	return 0, false
}
