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

// Sampler is the rule by which the sampling decision of a trace is made. Its values are the
// values of OTEL_TRACES_SAMPLER.
type Sampler string

// The samplers. A sampler with "parentbased" decides at the first span of a trace, and the
// other spans inherit the decision. A sampler without it decides at every span, but by the
// trace id only, so the decision is the same for all spans of a trace.
const (
	AlwaysOn                Sampler = "always_on"
	AlwaysOff               Sampler = "always_off"
	TraceIDRatio            Sampler = "traceidratio"
	ParentBasedAlwaysOn     Sampler = "parentbased_always_on"
	ParentBasedAlwaysOff    Sampler = "parentbased_always_off"
	ParentBasedTraceIDRatio Sampler = "parentbased_traceidratio"
)

// jobIDBytes is the length of Ray's job id, in bytes.
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
	// Ratio is the share of traces that the samplers TraceIDRatio and ParentBasedTraceIDRatio
	// sample, from 0 (none, the zero value) to 1 (all, the default). They follow
	// OpenTelemetry's rule of consistent probability. At a ratio between 0 and 1 they write the
	// threshold into the trace state ("ot=th:…").
	Ratio float64
	// TrustInbound makes the sampler follow the sampled flag of the trace context that a client
	// sends. If false, the sampler decides by the client's trace id, or by the explicit
	// randomness in its trace state. A client chooses these, too, so false protects against a
	// careless client and not against a hostile client. Default: true.
	TrustInbound bool
	// Semconv is the mode of attribute names: SemconvRay (the default), SemconvStable
	// or SemconvDup.
	Semconv string
	// SemconvHTTP is the mode for attributes of HTTP, and SemconvRPC the mode for attributes
	// of gRPC and of calls by handle. Default and zero: empty, which means the value of
	// Semconv.
	SemconvHTTP, SemconvRPC string
	// Propagators are the formats of trace context and baggage that are read from requests and
	// written into outgoing calls, in this order. The values are those of OTEL_PROPAGATORS. If
	// "none" is in the list, no format is used. Default: tracecontext, baggage. Empty: none.
	Propagators []string
	// Limits bounds the number and the length of a span's attributes, events and links. A
	// negative limit means no limit; a limit of zero allows nothing. Default: the limits of the
	// specification (128 attributes, events and links).
	Limits sdktrace.SpanLimits
	// Resource has attributes that describe the process. They override the detected attributes
	// service.name, service.instance.id, host.name and process.pid. If a key occurs several
	// times, its last value counts. Default: none.
	Resource []attribute.KeyValue
	// JobID is Ray's job id, 8 lower-case hexadecimal digits, part of every
	// serve.task_id. Default: random.
	JobID string
	// Warnings has a sentence for the log about each setting that was set but is not used.
	// ConfigFromEnv sets it.
	Warnings []string
}

// DefaultConfig returns the default settings, with a random job id.
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

// newSampler returns the sampler for c.Sampler. AlwaysOn and AlwaysOff are ratio samplers with
// the ratios 1 and 0, too, because they must remove the threshold of another sampler from the
// trace state.
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
