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

// ScopeName is the name of the instrumentation scope of all spans that the runtime makes. It
// is the import path of this package.
const ScopeName = "github.com/servetrace/servetrace/tracing"

// Provider makes spans with the OpenTelemetry SDK and propagates their context. It is
// safe for concurrent use.
type Provider struct {
	cfg        Config
	sdk        *sdktrace.TracerProvider      // nil if the provider is off
	sampler    *consistentSampler            // nil if the provider is off
	processors []*ownedProcessor             // none if the provider is off
	propagator propagation.TextMapPropagator // of the formats in cfg
	w3c        bool                          // the propagator reads only the headers of W3C

	shut    sync.Once // shuts the processors down
	shutErr error     // result of Shutdown; written before shut.Do returns
}

// NewProvider returns a provider that passes ended spans to the processors, in the
// given order. Its own first processor stamps the request's identity on spans.
// NewProvider starts nothing and does not block. The provider owns the processors:
// Shutdown shuts them down.
//
// The provider is off if tracing is disabled in cfg, or if there is no processor. A provider
// that is off makes no spans, but propagates context. It neither uses nor owns the given
// processors. NewProvider returns the error of Config.Validate.
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
	p.sampler = cfg.newSampler()
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithSampler(p.sampler),
		sdktrace.WithRawSpanLimits(cfg.Limits),
		sdktrace.WithResource(newResource(cfg.Resource)),
		sdktrace.WithSpanProcessor(stamp{}),
	}
	for _, sp := range processors {
		o := &ownedProcessor{SpanProcessor: sp}
		p.processors = append(p.processors, o)
		opts = append(opts, sdktrace.WithSpanProcessor(o))
	}
	p.sdk = sdktrace.NewTracerProvider(opts...)
	return p, nil
}

// Off returns a provider with default settings that makes no spans and propagates W3C
// trace context and baggage.
func Off() *Provider {
	propagator := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	return &Provider{cfg: DefaultConfig(), propagator: propagator, w3c: true}
}

// Enabled reports whether the provider makes spans.
func (p *Provider) Enabled() bool { return p.sdk != nil }

// Config returns the settings of the provider.
func (p *Provider) Config() Config { return p.cfg }

// Drops reports whether a span with this parent is certainly not sampled, so that its caller
// need not compute attributes. It returns false if the provider is off.
func (p *Provider) Drops(parent trace.SpanContext) bool {
	if p.sampler == nil {
		return false
	}
	if p.sampler.inherits(parent) {
		return !parent.IsSampled()
	}
	return p.sampler.never()
}

// TracerProvider returns the tracer provider for user code. It is never nil. If the provider
// is off, its spans record nothing, and have the span context of their parent.
func (p *Provider) TracerProvider() trace.TracerProvider {
	if p.sdk == nil {
		return noop.NewTracerProvider()
	}
	return p.sdk
}

// Propagator returns the propagator for user code, in the formats of Config.Propagators. It
// is never nil. It injects as Inject does, and extracts as any propagator does, with one
// exception. If user code, inside a request, extracts from headers with the span context that
// arrived with this request, the current span stays. So the spans of otelhttp and otelgrpc
// around a handler are children of the replica span. In this case the context also keeps its
// baggage, and gets the members in the headers that differ from the baggage of the request.
//
// The headers have the span context of the request if trace id, span id, flags and tracestate
// are equal, in any format. Headers without a span context do not change the current span,
// either. Headers with another span context replace it.
func (p *Provider) Propagator() propagation.TextMapPropagator { return userPropagator{p.propagator} }

// ForceFlush makes all processors deliver their spans, until ctx ends, and joins their
// errors. It does nothing if the provider is off.
func (p *Provider) ForceFlush(ctx context.Context) error {
	if p.sdk == nil {
		return nil
	}
	return p.sdk.ForceFlush(ctx)
}

// Shutdown stops making spans and shuts every processor down, in order, until ctx ends.
// It shuts them down even if ctx has already ended, so that each processor can release
// its resources. Call it after the last request: spans that end later are lost. The error
// joins the errors of the processors. Later calls wait for the first call and return its
// error.
func (p *Provider) Shutdown(ctx context.Context) error {
	if p.sdk == nil {
		return nil
	}
	p.shut.Do(func() {
		var errs []error
		for _, o := range p.processors {
			errs = append(errs, o.shutdown(ctx))
		}
		_ = p.sdk.Shutdown(ctx) // the owned processors are shut down, so this error does not matter
		p.shutErr = errors.Join(errs...)
	})
	return p.shutErr
}
