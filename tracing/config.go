package tracing

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

// Sampler names the rule for the first span of a trace, in the words of
// OTEL_TRACES_SAMPLER.
type Sampler string

// The samplers. Samplers without "parentbased" decide at every span. But they decide by the
// trace id only, so the decision is the same for all spans of a trace.
const (
	AlwaysOn                Sampler = "always_on"
	AlwaysOff               Sampler = "always_off"
	TraceIDRatio            Sampler = "traceidratio"
	ParentBasedAlwaysOn     Sampler = "parentbased_always_on"
	ParentBasedAlwaysOff    Sampler = "parentbased_always_off"
	ParentBasedTraceIDRatio Sampler = "parentbased_traceidratio"
)

// jobIDBytes is the length of Ray's job id.
const jobIDBytes = 4

var samplers = []Sampler{
	AlwaysOn, AlwaysOff, TraceIDRatio,
	ParentBasedAlwaysOn, ParentBasedAlwaysOff, ParentBasedTraceIDRatio,
}

// Config holds the operator's settings of tracing. Start from DefaultConfig or
// ConfigFromEnv: the zero Config samples nothing and is invalid.
type Config struct {
	// DisabledBy is the setting that disabled tracing, such as
	// "OTEL_SDK_DISABLED=true". Default and zero: empty; tracing is on if there is a
	// span processor.
	DisabledBy string
	// Sampler decides whether the first span of a trace is sampled. Default:
	// ParentBasedTraceIDRatio.
	Sampler Sampler
	// Ratio is the share of traces that the two ratio samplers sample, from 0 (none,
	// the zero value) to 1 (all, the default). They follow OpenTelemetry's rule of
	// consistent probability. At ratios between 0 and 1 they write the threshold into
	// the trace state ("ot=th:…").
	Ratio float64
	// TrustInbound makes the sampler follow the sampled flag of an inbound context. If
	// false, the sampler decides by the inbound trace id, or its explicit randomness.
	// The caller chooses these, too, so this protects against careless callers but not
	// against hostile callers. Default: true.
	TrustInbound bool
	// Semconv is the mode of attribute names: SemconvRay (the default), SemconvStable
	// or SemconvDup.
	Semconv string
	// SemconvHTTP and SemconvRPC are the modes for attributes of HTTP, and of RPC (gRPC
	// and calls by handle). Default and zero: empty, which means the value of Semconv.
	SemconvHTTP, SemconvRPC string
	// Propagators are the formats read and written at the edge, in order, in the words
	// of OTEL_PROPAGATORS. If "none" is in the list, there is no format at all.
	// Default: tracecontext, baggage. Empty means none.
	Propagators []string
	// Limits bounds the contents of a span. A negative limit means no limit; a zero
	// limit allows nothing. Default: the specification's (128 attributes, events and
	// links).
	Limits sdktrace.SpanLimits
	// Resource adds attributes of the process. They override detected attributes
	// (service.name, service.instance.id, host.name, process.pid); the last value of a
	// key wins. Default: none.
	Resource []attribute.KeyValue
	// JobID is Ray's job id, 8 lower-case hexadecimal digits, part of every
	// serve.task_id. Default: random.
	JobID string
	// Warnings describe settings that were set but not used, in a sentence each, for
	// the log. ConfigFromEnv sets it.
	Warnings []string
}

// DefaultConfig returns the settings of an empty environment, with a random job id.
func DefaultConfig() Config {
	return Config{
		Sampler:      ParentBasedTraceIDRatio,
		Ratio:        1,
		TrustInbound: true,
		Semconv:      SemconvRay,
		Propagators:  []string{"tracecontext", "baggage"},
		Limits:       defaultLimits(),
		JobID:        identity.NewJobID(),
	}
}

func defaultLimits() sdktrace.SpanLimits {
	return sdktrace.SpanLimits{
		AttributeValueLengthLimit:   sdktrace.DefaultAttributeValueLengthLimit,
		AttributeValueDepthLimit:    sdktrace.DefaultAttributeValueDepthLimit,
		AttributeCountLimit:         sdktrace.DefaultAttributeCountLimit,
		EventCountLimit:             sdktrace.DefaultEventCountLimit,
		LinkCountLimit:              sdktrace.DefaultLinkCountLimit,
		AttributePerEventCountLimit: sdktrace.DefaultAttributePerEventCountLimit,
		AttributePerLinkCountLimit:  sdktrace.DefaultAttributePerLinkCountLimit,
	}
}

// Validate returns all errors of c, joined, or nil.
func (c Config) Validate() error {
	var faults []error
	if !slices.Contains(samplers, c.Sampler) {
		faults = append(faults, fmt.Errorf("sampler %q is not one of %s", c.Sampler, joinSamplers()))
	}
	if math.IsNaN(c.Ratio) || c.Ratio < 0 || c.Ratio > 1 {
		faults = append(faults, fmt.Errorf("sampling ratio %v is not a number from 0 to 1", c.Ratio))
	}
	faults = append(faults, c.semconvErrors()...)
	if _, err := newPropagator(c.Propagators); err != nil {
		faults = append(faults, err)
	}
	if !isHex(c.JobID, jobIDBytes) {
		faults = append(faults, fmt.Errorf("job id %q is not 8 lower-case hexadecimal digits", c.JobID))
	}
	return errors.Join(faults...)
}

// ServiceName returns the service.name of the spans' resource: the value in Resource,
// or "unknown_service:NAME" with the name of the executable.
func (c Config) ServiceName() string {
	for _, kv := range slices.Backward(c.Resource) {
		if kv.Key == semconv.ServiceName {
			return kv.Value.AsString()
		}
	}
	return defaultServiceName()
}

// RootRatio returns the share of root traces that the sampler samples, from 0 to 1.
func (c Config) RootRatio() float64 {
	switch c.Sampler {
	case AlwaysOn, ParentBasedAlwaysOn:
		return 1
	case AlwaysOff, ParentBasedAlwaysOff:
		return 0
	}
	return c.Ratio
}

// newSampler returns the sampler. AlwaysOn and AlwaysOff have the shares 1 and 0, because
// they must also remove an inbound threshold, which no longer applies.
func (c Config) newSampler() *consistentSampler {
	s := newConsistentSampler(c.RootRatio())
	s.parentBased = strings.HasPrefix(string(c.Sampler), "parentbased_")
	s.trustInbound = c.TrustInbound
	return s
}

func newPropagator(names []string) (propagation.TextMapPropagator, error) {
	p, err := autoprop.TextMapPropagator(names...)
	if err != nil {
		return nil, fmt.Errorf("propagators %q: %w (known: tracecontext, baggage, b3, b3multi, jaeger, xray, ottrace, none)",
			strings.Join(names, ","), err)
	}
	return p, nil
}

func joinSamplers() string {
	names := make([]string, len(samplers))
	for i, s := range samplers {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// isHex reports whether s is n bytes in lower-case hexadecimal digits.
func isHex(s string, n int) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == n && s == strings.ToLower(s)
}
