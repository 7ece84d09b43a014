package tracing

import (
	"context"
	"errors"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/ended"
)

// pipeline is the one processor that the SDK knows: it stamps spans, and passes
// them on to the processors that the provider was given, in order.
type pipeline struct {
	next   []sdktrace.SpanProcessor
	starts []sdktrace.SpanProcessor // those of next that are told of starts
	over   atomic.Bool              // they have been shut down, and are told nothing more
}

func newPipeline(processors []sdktrace.SpanProcessor) *pipeline {
	p := &pipeline{}
	for _, sp := range processors {
		if only, is := sp.(ended.Only); is {
			sp = only.SpanProcessor
		} else {
			p.starts = append(p.starts, sp)
		}
		p.next = append(p.next, sp)
	}
	return p
}

var _ sdktrace.SpanProcessor = (*pipeline)(nil)

// OnStart puts the identity of the request on every recording span that starts
// inside one, so that a plugin can enrich it knowing nothing of this process.
func (p *pipeline) OnStart(parent context.Context, s sdktrace.ReadWriteSpan) {
	if r := RequestFromContext(parent); r != nil {
		s.SetAttributes(r.attributes()...)
	}
	if of, is := trace.SpanFromContext(parent).(*span); is {
		of.addChild()
	}
	p.onStart(parent, s)
}

// onStart is OnStart for the spans of this package, which stamp themselves, with
// their own attributes at once, and know their parents.
func (p *pipeline) onStart(parent context.Context, s sdktrace.ReadWriteSpan) {
	if len(p.starts) == 0 || p.over.Load() {
		return
	}
	for _, sp := range p.starts {
		sp.OnStart(parent, s)
	}
}

// OnEnd implements [sdktrace.SpanProcessor].
func (p *pipeline) OnEnd(s sdktrace.ReadOnlySpan) {
	if p.over.Load() {
		return
	}
	for _, sp := range p.next {
		sp.OnEnd(s)
	}
}

func (p *pipeline) ForceFlush(ctx context.Context) error {
	var errs []error
	for _, sp := range p.next {
		errs = append(errs, sp.ForceFlush(ctx))
	}
	return errors.Join(errs...)
}

// Shutdown does nothing: the SDK does not call it where ctx has ended, which is
// when a processor's plugins most need to be ended. Provider.Shutdown calls
// those behind it itself.
func (p *pipeline) Shutdown(context.Context) error { return nil }

func (p *pipeline) shutdown(ctx context.Context) error {
	var errs []error
	for _, sp := range p.next {
		errs = append(errs, sp.Shutdown(ctx))
	}
	p.over.Store(true)
	return errors.Join(errs...)
}
