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
	// Name is the processor's name in the delivery accounting, in which the host counts
	// dropped spans. Empty means "sample".
	Name string `yaml:"name"`
	// Ratio is the share of traces to keep, from 0 to 1. Zero keeps only the spans that Keep
	// describes. In a plugin's configuration the ratio is required.
	Ratio float64 `yaml:"ratio"`
	// Keep describes spans that are kept whatever the ratio is.
	Keep KeepConfig `yaml:"keep"`
}

// KeepConfig describes spans to keep. A span is kept if at least one field applies to it.
// The zero value applies to no span.
type KeepConfig struct {
	// Errors keeps spans with the status error.
	Errors bool `yaml:"errors"`
	// SlowerThan keeps spans with a longer duration. If it is zero, no span is kept because
	// of its duration.
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

// Sample returns the constructor of a processor that keeps a share of the traces, and
// drops the spans of all other traces. It follows OpenTelemetry's consistent probability
// sampling. The randomness of a trace is the last 56 bits of its id, or the value "rv" in
// the entry "ot" of its tracestate. A trace is kept if its randomness is at least (1 -
// ratio) * 2^56.
//
// So all processes with the same ratio keep the same traces, and a process with a smaller
// ratio keeps some of these traces. The ratio is a share of all traces, not of the traces
// that arrive. Services of this runtime sample by the same rule: if a service samples at
// ratio 0.1, Sample keeps all its traces at ratio 0.1 or more, and half of them at 0.05.
// The samplers of OpenTelemetry's SDK for Go (v1.47) use other bits. With these, the kept
// share is the product of both ratios.
//
// Sample decides for each span by itself, because the spans of a trace arrive in several
// batches and processes. So [KeepConfig] can leave gaps in a trace, if it keeps a span
// but not its parent. To keep whole traces with errors, deliver everything and sample in
// the back end. Sample does not edit the tracestate, so a back end that estimates totals
// needs the ratio in its own configuration.
//
// Sample allocates no memory for a span without a tracestate.
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

// randomBits is the number of random bits in a trace id, as defined by W3C Trace Context,
// level 2.
const randomBits = 56

// threshold returns the smallest randomness with which a trace is kept. It is rounded as
// in the OpenTelemetry Collector.
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

// randomness returns the randomness of a span's trace, a number of 56 bits, as
// OpenTelemetry's specification defines it.
func randomness(span pluginsdk.Span) uint64 {
	if state := span.TraceState(); state.Len() > 0 {
		if r, ok := explicitRandomness(state.Get("ot")); ok {
			return r
		}
	}
	id := span.TraceID()
	return binary.BigEndian.Uint64(id[8:]) & (1<<randomBits - 1)
}

// explicitRandomness returns the number after "rv:" in the entry "ot" of a tracestate,
// such as "th:c;rv:0123456789abcd". It returns false if there is no such number, or if it
// does not have 14 lower-case hexadecimal digits.
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
