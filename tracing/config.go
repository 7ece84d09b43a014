package tracing

import (
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

// Sampler names how the first span of a trace is decided, in the words of
// OTEL_TRACES_SAMPLER.
type Sampler string

// The samplers. Those without "parentbased" decide again at every span, by
// the trace's id alone, so that the answer within a trace is still one.
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

// Config holds an operator's settings of tracing. Start from DefaultConfig or
// ConfigFromEnv: the zero Config samples nothing and does not validate.
type Config struct {
	// DisabledBy is the setting that switched tracing off, as
	// "OTEL_SDK_DISABLED=true". Default and zero: empty, tracing is on if
	// there is a span processor.
	DisabledBy string
	// Sampler decides the first span of a trace. Default:
	// ParentBasedTraceIDRatio.
	Sampler Sampler
	// Ratio is the share of traces that the two ratio samplers take, from 0
	// (none, the zero value) to 1 (all, the default). They decide by
	// OpenTelemetry's rule of consistent probability and, at ratios between 0 and
	// 1, write the threshold into the trace state ("ot=th:…").
	Ratio float64
	// TrustInbound says whether the sampled flag of an inbound context is
	// believed. Where it is not, the sampler decides by the inbound trace id,
	// or its explicit randomness, which the caller chose too: a guard against
	// careless callers, not against hostile ones. Default: true.
	TrustInbound bool
	// Semconv is the mode of attribute names: SemconvRay (the default),
	// SemconvStable or SemconvDup.
	Semconv string
	// SemconvHTTP and SemconvRPC are the modes of the attributes of HTTP and of
	// RPC, gRPC and calls by handle. Default and zero: empty, as Semconv says.
	SemconvHTTP, SemconvRPC string
	// Propagators are the formats read and written at the edge, in order, in
	// the words of OTEL_PROPAGATORS; "none" among them means no format at all.
	// Default: tracecontext, baggage. Empty means none.
	Propagators []string
	// Limits bounds what a span holds; a negative limit is no limit, and a zero
	// limit means none of it. Default: the specification's (128 attributes,
	// events and links).
	Limits sdktrace.SpanLimits
	// Resource are attributes of the process, over those found out about it
	// (service.name, service.instance.id, host.name, process.pid); the last of
	// a key wins. Default: none.
	Resource []attribute.KeyValue
	// JobID is Ray's job id, 8 lower-case hexadecimal digits, part of every
	// serve.task_id. Default: drawn at random.
	JobID string
	// Warnings are settings that were seen and not used, one sentence each, for
	// the log. ConfigFromEnv fills it; nothing else reads it.
	Warnings []string
}

// DefaultConfig returns the settings of an empty environment, with a job id
// drawn at random.
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

// Validate reports every fault of c at once, joined, or nil.
func (c Config) Validate() error {
	var faults []error
	if !slices.Contains(samplers, c.Sampler) {
		faults = append(faults, fmt.Errorf("sampler %q is not one of %s", c.Sampler, joinSamplers()))
	}
	if math.IsNaN(c.Ratio) || c.Ratio < 0 || c.Ratio > 1 {
		faults = append(faults, fmt.Errorf("sampling ratio %v is not a number from 0 to 1", c.Ratio))
	}
	faults = append(faults, c.semconvFaults()...)
	if _, err := newPropagator(c.Propagators); err != nil {
		faults = append(faults, err)
	}
	if !isHex(c.JobID, jobIDBytes) {
		faults = append(faults, fmt.Errorf("job id %q is not 8 lower-case hexadecimal digits", c.JobID))
	}
	return errors.Join(faults...)
}

// ServiceName returns the service.name of the spans' resource: the user's where
// Resource has one, else that of the executable, "unknown_service:NAME".
func (c Config) ServiceName() string {
	for _, kv := range slices.Backward(c.Resource) {
		if kv.Key == semconv.ServiceName {
			return kv.Value.AsString()
		}
	}
	return defaultServiceName()
}

// parentBased says whether a span with a valid parent takes the parent's
// decision.
func (c Config) parentBased() bool {
	return strings.HasPrefix(string(c.Sampler), "parentbased_")
}

// RootRatio returns the share of root traces that the sampler keeps, from 0 to 1.
func (c Config) RootRatio() float64 {
	switch c.Sampler {
	case AlwaysOn, ParentBasedAlwaysOn:
		return 1
	case AlwaysOff, ParentBasedAlwaysOff:
		return 0
	}
	return c.Ratio
}

// newSampler returns the sampler. AlwaysOn and AlwaysOff are its shares 1 and 0: they
// remove the threshold of a decision that does not count, too.
func (c Config) newSampler() sdktrace.Sampler {
	root := newConsistentSampler(c.RootRatio())
	if !c.parentBased() {
		return root
	}
	if c.TrustInbound {
		return sdktrace.ParentBased(root)
	}
	return sdktrace.ParentBased(root,
		sdktrace.WithRemoteParentSampled(root),
		sdktrace.WithRemoteParentNotSampled(root))
}

// newPropagator composes the named propagators.
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

// isHex says whether s is n bytes in lower-case hexadecimal digits.
func isHex(s string, n int) bool {
	if len(s) != 2*n {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
