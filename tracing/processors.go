package tracing

import (
	"context"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
)

// stamp is a processor that adds serve.request_id, serve.task_id and serve.replica_id
// to every recording span that starts inside a request. So a plugin can enrich the span
// without access to this process.
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

// ownedProcessor is a processor that Provider.Shutdown shuts down, and not the SDK. If the
// context has already ended, the SDK would not shut the processor down, and a host would not
// stop its plugins. After its shutdown, the processor gets no more spans.
type ownedProcessor struct {
	sdktrace.SpanProcessor

	stopped atomic.Bool // the processor was shut down
}

// OnStart implements [sdktrace.SpanProcessor].
func (o *ownedProcessor) OnStart(parent context.Context, s sdktrace.ReadWriteSpan) {
	if !o.stopped.Load() {
		o.SpanProcessor.OnStart(parent, s)
	}
}

// OnEnd implements [sdktrace.SpanProcessor].
func (o *ownedProcessor) OnEnd(s sdktrace.ReadOnlySpan) {
	if !o.stopped.Load() {
		o.SpanProcessor.OnEnd(s)
	}
}

// Shutdown does nothing, because Provider.Shutdown calls the method shutdown.
func (o *ownedProcessor) Shutdown(context.Context) error { return nil }

// shutdown shuts the processor down, even if ctx has ended.
func (o *ownedProcessor) shutdown(ctx context.Context) error {
	err := o.SpanProcessor.Shutdown(ctx)
	o.stopped.Store(true)
	return err
}
