package spanpath

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/ext"
	ddotel "github.com/DataDog/dd-trace-go/v2/ddtrace/opentelemetry"
	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/bench/internal/sink"
)

// openDatadog starts Datadog's tracer with its defaults, statistics included. newSpans
// returns the function that makes spans. Its argument is the tracer behind
// OpenTelemetry's API.
func openDatadog(newSpans func(trace.TracerProvider) func(i int)) opener {
	return func(ctx context.Context, o order) (*way, error) {
		before, err := o.Sink.Spans(ctx)
		if err != nil {
			return nil, err
		}
		provider := ddotel.NewTracerProvider(tracer.WithAgentURL("http://"+o.Sink.HTTP), tracer.WithService("bench"),
			tracer.WithLogStartup(false), tracer.WithLogger(silent{}))
		var made atomic.Uint64 // with the earlier spans of the sink
		made.Store(before)
		return &way{
			produce: func() func(int) {
				one := newSpans(provider)
				return func(i int) {
					one(i)
					made.Add(1)
				}
			},
			begin: made.Store,
			flush: func(ctx context.Context) error { return flushDatadog(ctx, o.Sink, &made) },
			close: func(context.Context) error { return provider.Shutdown() },
		}, nil
	}
}

type silent struct{}

func (silent) Log(string) {}

// produceDatadog makes the span of produceWith.
func produceDatadog(i int) {
	span := tracer.StartSpan("http.server.request", tracer.ResourceName("GET /api/{id}"),
		tracer.SpanType(ext.SpanTypeWeb), tracer.Tag(ext.SpanKind, ext.SpanKindServer))
	span.SetTag("http.method", "GET")
	span.SetTag("http.route", "/api/{id}")
	span.SetTag("serve.request_id", "1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8")
	span.SetTag("serve.deployment", "HelloWorld")
	span.SetTag("http.status_code", 200)
	span.SetTag("serve.queue_wait_ms", i)
	span.Finish()
}

// flushDatadog flushes until the agent has all spans, because a flush may overtake
// spans on their way to the tracer's worker. Spans that its queue has dropped never
// arrive, and are an error.
func flushDatadog(ctx context.Context, to sink.Addresses, made *atomic.Uint64) error {
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		tracer.Flush()
		taken, err := to.Spans(ctx)
		switch {
		case err != nil || taken >= made.Load():
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("the tracer has lost %d spans", made.Load()-taken)
		}
	}
}
