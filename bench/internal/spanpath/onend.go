package spanpath

import (
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// timed gives a processor the spans of a program as they end, which is when
// they are still in the processor's cache, and sums up what OnEnd takes. It is
// for one producer.
type timed struct {
	sdktrace.SpanProcessor

	sum *time.Duration
}

func (t timed) OnEnd(s sdktrace.ReadOnlySpan) {
	from := time.Now()
	t.SpanProcessor.OnEnd(s)
	*t.sum += time.Since(from)
}
