package tracing

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// ScopeName is the instrumentation scope of all spans that the
// runtime makes: the import path of this package.
const ScopeName = "github.com/servetrace/servetrace/tracing"

// Provider makes spans by the OpenTelemetry SDK and carries their context. It is safe
// for concurrent use.
type Provider struct {
	cfg        Config
	sdk        *sdktrace.TracerProvider // nil when off
	processors []*owned
	propagator propagation.TextMapPropagator
	w3c        bool // it is readsW3C
	// inherits: a span whose parent is valid takes the parent's decision.
	inherits bool
	// never: a span that does not take a parent's decision is not sampled.
	never bool

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
	p := &Provider{cfg: cfg, propagator: propagator, w3c: readsW3C(propagator)}
	if cfg.DisabledBy != "" || len(processors) == 0 {
		return p, nil
	}
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithSampler(cfg.newSampler()),
		sdktrace.WithRawSpanLimits(cfg.Limits),
		sdktrace.WithResource(newResource(cfg.Resource)),
		sdktrace.WithSpanProcessor(stamp{}),
	}
	for _, sp := range processors {
		o := &owned{SpanProcessor: sp}
		p.processors = append(p.processors, o)
		opts = append(opts, sdktrace.WithSpanProcessor(o))
	}
	p.sdk = sdktrace.NewTracerProvider(opts...)
	p.inherits, p.never = cfg.parentBased(), cfg.RootRatio() <= 0
	return p, nil
}

// Off returns a provider with default settings that makes no spans and
// propagates W3C trace context and baggage.
func Off() *Provider {
	propagator := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	return &Provider{cfg: DefaultConfig(), propagator: propagator, w3c: true}
}

// Enabled says whether the provider makes spans.
func (p *Provider) Enabled() bool { return p.sdk != nil }

// Config returns the settings that the provider was built with.
func (p *Provider) Config() Config { return p.cfg }

// Drops reports whether a span with this parent is certainly not sampled, so that its
// attributes need not be put together.
func (p *Provider) Drops(parent trace.SpanContext) bool {
	if p.inherits && parent.IsValid() && (p.cfg.TrustInbound || !parent.IsRemote()) {
		return !parent.IsSampled()
	}
	return p.never
}

// TracerProvider returns what user code gets its tracers from; never nil. When
// off, its spans do nothing and keep the span context of their parent.
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
		var errs []error
		for _, o := range p.processors {
			errs = append(errs, o.shutdown(ctx))
		}
		_ = p.sdk.Shutdown(ctx) // says that ctx has ended, or what a processor of user code says
		p.shutErr = errors.Join(errs...)
	})
	return p.shutErr
}
