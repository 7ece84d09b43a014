package spanpath

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/servetrace/servetrace/bench/internal/measure"
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

// finishedSpans are n ended spans, to be given to a processor again and again.
// They are few, so that they stay in the cache, as a span is that has just ended.
func finishedSpans(n int) []sdktrace.ReadOnlySpan {
	recorder := tracetest.NewSpanRecorder()
	span := produceWith(newProvider(recorder))
	for i := range n {
		span(i)
	}
	return recorder.Ended()
}

// onEndTight gives the processor as many finished spans as its queue holds, as
// fast as producers can, and flushes. What is timed is the CPU time of the
// producers' threads: on a machine that has no processor to spare the clock would
// tell how long workers and plugin kept them from running.
func onEndTight(producers int) drive {
	const spans = 256
	return func(ctx context.Context, d *driver, length time.Duration) (made uint64) {
		ended := finishedSpans(spans)
		for end := time.Now().Add(length); time.Now().Before(end); {
			var all sync.WaitGroup
			var took atomic.Int64
			for range producers {
				all.Go(func() {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					from := measure.ThreadCPU()
					for i := range deepQueue / producers {
						d.way.processor.OnEnd(ended[i%spans])
					}
					took.Add(int64(measure.ThreadCPU() - from))
				})
			}
			all.Wait()
			const n = deepQueue
			d.onEnds.Add(time.Duration(took.Load() / n))
			made += n
			if err := d.way.flush(ctx); err != nil {
				d.fail(err)
				return made
			}
		}
		return made
	}
}

// deepQueue is how many spans the deep queues hold.
const deepQueue = 1 << 16
