package tracing

import (
	"context"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
)

// stamp stamps every recording span that starts inside a request with the
// request's serve.request_id, serve.task_id and serve.replica_id, so that a plugin
// can enrich the span and needs to know nothing of this process.
type stamp struct{}

var _ sdktrace.SpanProcessor = stamp{}

// OnStart implements [sdktrace.SpanProcessor].
func (stamp) OnStart(parent context.Context, s sdktrace.ReadWriteSpan) {
	if r := identity.RequestFromContext(parent); r != nil {
		s.SetAttributes(r.Stamp()...)
	}
}

// OnEnd implements [sdktrace.SpanProcessor].
func (stamp) OnEnd(sdktrace.ReadOnlySpan) {}

// ForceFlush implements [sdktrace.SpanProcessor].
func (stamp) ForceFlush(context.Context) error { return nil }

// Shutdown implements [sdktrace.SpanProcessor].
func (stamp) Shutdown(context.Context) error { return nil }

// owned is a processor that Provider.Shutdown shuts down itself: the SDK does not
// shut processors down after the context has ended, and an ended context is when a
// host most needs to end its plugins. A processor that has been shut down hears of
// no further span.
type owned struct {
	sdktrace.SpanProcessor

	over atomic.Bool
}

// OnStart implements [sdktrace.SpanProcessor].
func (o *owned) OnStart(parent context.Context, s sdktrace.ReadWriteSpan) {
	if !o.over.Load() {
		o.SpanProcessor.OnStart(parent, s)
	}
}

// OnEnd implements [sdktrace.SpanProcessor].
func (o *owned) OnEnd(s sdktrace.ReadOnlySpan) {
	if !o.over.Load() {
		o.SpanProcessor.OnEnd(s)
	}
}

// Shutdown does nothing: see shutdown.
func (o *owned) Shutdown(context.Context) error { return nil }

func (o *owned) shutdown(ctx context.Context) error {
	err := o.SpanProcessor.Shutdown(ctx)
	o.over.Store(true)
	return err
}
