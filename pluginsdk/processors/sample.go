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
	// Name is the name in the delivery accounting. Empty means "sample".
	Name string `yaml:"name"`
	// Ratio is the share of traces to keep, from 0 to 1. Zero keeps only the spans of Keep. A
	// plugin's configuration must contain a ratio.
	Ratio float64 `yaml:"ratio"`
	// Keep describes spans that are kept at every ratio.
	Keep KeepConfig `yaml:"keep"`
}

// KeepConfig describes spans to keep. A span is kept if at least one rule applies to it.
// The zero value has no rule.
type KeepConfig struct {
	// Errors keeps spans with status error.
	Errors bool `yaml:"errors"`
	// SlowerThan keeps spans with a longer duration. Zero disables the rule.
	SlowerThan time.Duration `yaml:"slower_than"`
}

// Validate returns all errors joined, each a [*pluginsdk.ConfigError].
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

// Sample keeps a share of the traces and drops the spans of all other traces. It
// follows OpenTelemetry's consistent probability sampling. The randomness of a trace is
// the last 56 bits of its id, or "rv" in the entry "ot" of its tracestate. The trace is
// kept if its randomness is at least (1 - ratio) * 2^56.
//
// So processes with the same ratio keep the same traces, and a process with a smaller
// ratio keeps a part of them. The ratio is a share of all traces, not of the arriving
// traces. Services of this runtime sample by the same rule. If a service samples at
// ratio 0.1, Sample keeps all its traces at ratio 0.1 or more, and half of them at 0.05.
// The samplers of OpenTelemetry's SDK for Go (v1.47) use other bits, so the service's
// ratio and this ratio multiply.
//
// Sample decides for each span, because the spans of a trace arrive in several batches
// and processes. So the rules of [KeepConfig] can break a trace: they may keep a span
// and drop its parent. For whole traces with errors, deliver everything and sample in
// the back end. Sample does not edit the tracestate, so a back end that extrapolates
// needs the ratio in its own configuration.
//
// Sample allocates nothing for a span without a tracestate.
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

// randomBits is the number of random bits in a trace id (W3C, level 2).
const randomBits = 56

// threshold returns the lowest randomness of the traces to keep, rounded as in the
// Collector.
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

// randomness returns the randomness of the trace, as OpenTelemetry's specification defines
// it.
func randomness(span pluginsdk.Span) uint64 {
	if state := span.TraceState(); state.Len() > 0 {
		if r, ok := explicitRandomness(state.Get("ot")); ok {
			return r
		}
	}
	id := span.TraceID()
	return binary.BigEndian.Uint64(id[8:]) & (1<<randomBits - 1)
}

// explicitRandomness returns the number after "rv:" in OpenTelemetry's entry of a
// tracestate, such as "th:c;rv:0123456789abcd". The number must have 14 lower-case
// hexadecimal digits.
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
