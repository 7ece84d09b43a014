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

var datadogRows = []row{
	{name: rowDatadog, doc: "Datadog's own tracer, in process: the same span by its API", open: openDatadog(func(trace.TracerProvider) func(int) { return produceDatadog })},
	{name: rowDDOTel, doc: "the same tracer behind OpenTelemetry's API, so that the program is that of the other rows", open: openDatadog(produceWith)},
	{name: rowOursDD, doc: "our host and plugins/datadog, without Ray's ids", open: ours("datadog", "SERVE_RAY_CONTEXT=off")},
}

// openDatadog starts the tracer with its defaults, statistics included. The way's
// spans come from produce, which is given the tracer behind OpenTelemetry's API.
func openDatadog(produce func(trace.TracerProvider) func(i int)) func(context.Context, rig) (*way, error) {
	return func(ctx context.Context, r rig) (*way, error) {
		before, err := r.sink.Counts(ctx)
		if err != nil {
			return nil, err
		}
		provider := ddotel.NewTracerProvider(tracer.WithAgentURL("http://"+r.sink.Datadog), tracer.WithService("bench"),
			tracer.WithLogStartup(false), tracer.WithLogger(silent{}))
		var made atomic.Uint64 // and what others had sent before
		made.Store(before.Spans)
		return &way{
			produce: func() func(int) {
				one := produce(provider)
				return func(i int) {
					one(i)
					made.Add(1)
				}
			},
			flush: func(ctx context.Context) error { return flushDatadog(ctx, r.sink, &made) },
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

// flushPause is how long the tracer's worker is left alone between two flushes.
const flushPause = 5 * time.Millisecond

// flushDatadog flushes until the agent has all spans: one flush may overtake
// what is still on its way to the tracer's worker. What its queue has dropped
// never comes.
func flushDatadog(ctx context.Context, to sink.Addresses, made *atomic.Uint64) error {
	for last, same := uint64(0), 0; ; {
		tracer.Flush()
		taken, err := to.Counts(ctx)
		if err != nil || taken.Spans >= made.Load() {
			return err
		}
		if same++; taken.Spans != last {
			last, same = taken.Spans, 0
		}
		if time.Duration(same)*flushPause > sinkPatience {
			return fmt.Errorf("the tracer has lost %d spans", made.Load()-taken.Spans)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(flushPause):
		}
	}
}
