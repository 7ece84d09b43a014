package tracing

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/servetrace/servetrace/internal/ended"
	"github.com/servetrace/servetrace/semconv"
)

// ScopeName is the instrumentation scope of the proxy, router and replica
// spans: this package's import path.
const ScopeName = "github.com/servetrace/servetrace/tracing"

// Provider starts the spans of a runtime and carries its context. It is safe for
// concurrent use.
type Provider struct {
	sdk        *sdktrace.TracerProvider // of user code; nil when off
	own        *sdktrace.TracerProvider // of tracer; it has no processors: see span
	tracer     trace.Tracer             // of what the SDK does for our spans; nil when off
	sampler    sdktrace.Sampler
	origin     ended.Origin // of our spans
	families   families
	unrecorded unrecorded
	pipeline   *pipeline // nil when off
	propagator propagation.TextMapPropagator
	w3c        bool // it is readsW3C
	jobID      string
	naming     naming // zero when off
	shapes     spanShapes
	// inherits: a span whose parent is valid and not sampled is not sampled,
	// without asking the sampler.
	inherits bool
	// known: any other is as decision says, without asking either.
	known    bool
	decision sdktrace.SamplingDecision
	trust    bool
	// roomy: no limit on attributes that those of our spans could pass alone.
	roomy bool
	// heavy: each of our spans has one of the SDK's from the start.
	heavy          bool
	attributeLimit int // of a span; negative: none

	shut    sync.Once
	shutErr error // written in shut
}

// NewProvider builds a provider whose ended spans go to the processors, in the
// given order, after a processor of its own that stamps the request's identity.
// It starts nothing and does not block. It owns the processors: Shutdown shuts
// them down.
//
// The provider is off if cfg is disabled or there is no processor: it makes no
// spans and still propagates context. Processors given to a disabled provider
// are not used and not owned. The error is that of Config.Validate.
func NewProvider(cfg Config, processors ...sdktrace.SpanProcessor) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("tracing settings: %w", err)
	}
	propagator, err := newPropagator(cfg.Propagators)
	if err != nil {
		return nil, fmt.Errorf("tracing settings: %w", err)
	}
	p := &Provider{propagator: propagator, w3c: readsW3C(propagator), jobID: cfg.JobID, trust: cfg.TrustInbound}
	if cfg.DisabledBy != "" || len(processors) == 0 {
		return p, nil
	}
	p.unrecorded.provider = p
	p.pipeline = newPipeline(processors)
	p.sampler = cfg.newSampler()
	opts := []sdktrace.TracerProviderOption{sdktrace.WithRawSpanLimits(cfg.Limits), sdktrace.WithResource(newResource(cfg.Resource))}
	p.own = sdktrace.NewTracerProvider(append(slices.Clip(opts), sdktrace.WithSampler(asDecided{}), sdktrace.WithIDGenerator(asDecided{}))...)
	p.sdk = sdktrace.NewTracerProvider(append(slices.Clip(opts), sdktrace.WithSampler(p.sampler), sdktrace.WithSpanProcessor(p.pipeline))...)
	p.naming = cfg.newNaming()
	p.attributeLimit = cfg.Limits.AttributeCountLimit
	p.roomy = (p.attributeLimit < 0 || p.attributeLimit >= sdktrace.DefaultAttributeCountLimit) && cfg.Limits.AttributeValueLengthLimit < 0
	var schema []trace.TracerOption
	if p.naming.current() {
		schema = append(schema, trace.WithSchemaURL(semconv.SchemaURL))
	}
	p.tracer = p.own.Tracer(ScopeName, schema...)
	p.inherits = cfg.parentBased()
	p.decision, p.known = cfg.decision()
	p.heavy = !p.roomy || observed()
	p.readConstants()
	p.families = newFamilies(&p.origin)
	return p, nil
}

// readConstants finds out what the SDK's spans have in common.
func (p *Provider) readConstants() {
	sample := sdktrace.SamplingResult{Decision: sdktrace.RecordOnly}
	_, span := p.tracer.Start(decided{Context: context.Background(), result: sample}, "")
	if s, is := span.(sdktrace.ReadOnlySpan); is {
		p.origin = ended.Origin{Resource: s.Resource(), Scope: s.InstrumentationScope()}
	}
	span.End()
}

// Off returns a provider with default settings that makes no spans and
// propagates W3C trace context and baggage.
func Off() *Provider {
	propagator := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	return &Provider{propagator: propagator, w3c: true, jobID: drawHex(jobIDBytes), trust: true}
}

// Enabled says whether the provider makes spans.
func (p *Provider) Enabled() bool { return p.sdk != nil }

// TracerProvider returns what user code gets its tracers from; never nil. When
// off, its spans do nothing and keep the span context of their parent. A processor
// that is registered with it, rather than given to NewProvider, sees user code's
// spans alone.
func (p *Provider) TracerProvider() trace.TracerProvider {
	if p.sdk == nil {
		return noop.NewTracerProvider()
	}
	return p.sdk
}

// Propagator returns the propagator for user code, in the formats of
// Config.Propagators; never nil. It injects as Inject does, and extracts as any
// other, with one exception: inside a request, a carrier that holds just the
// context that the request came in with leaves ctx at its own span. So otelhttp
// and otelgrpc around a handler, which extract from the request's headers,
// make children of the replica span. In that case ctx keeps its baggage too,
// with what the carrier has beside the baggage that came in.
//
// What counts is the remote span context: trace id, span id, flags and
// tracestate, whichever format it came in. A carrier with none leaves ctx at
// its span as well; one with another replaces it.
func (p *Provider) Propagator() propagation.TextMapPropagator { return insider{p.propagator} }

// ForceFlush has every processor deliver what it holds, until ctx ends, and
// joins their errors. It does nothing when off.
func (p *Provider) ForceFlush(ctx context.Context) error {
	if p.sdk == nil {
		return nil
	}
	return p.sdk.ForceFlush(ctx)
}

// Shutdown makes no more spans, and shuts every processor down, in order, until
// ctx ends; also where ctx has ended before, so that each can give up what it
// holds. Call it when no request is left: spans that end later are lost. The
// error joins theirs. Later calls wait for the first and return the same.
func (p *Provider) Shutdown(ctx context.Context) error {
	if p.sdk == nil {
		return nil
	}
	p.shut.Do(func() {
		err := p.pipeline.shutdown(ctx)
		_ = p.sdk.Shutdown(ctx) // its processor does nothing, and ctx is spent
		_ = p.own.Shutdown(ctx) // it has none
		p.shutErr = err
	})
	return p.shutErr
}
