package spanpath

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// driver makes spans come in some way.
type driver struct {
	way *way
	// made counts spans by chunk, answered what the watch has last read of our
	// host's books: what lies in between waits. With other rows they are not used.
	made, answered atomic.Uint64
	// spans are finished ones, for shapes that call the processor alone.
	spans finished

	mu    sync.Mutex
	calls measure.Histogram // what one span took, or one of a burst
}

// each runs n producers until all have returned, and gives how many spans they
// have made. Each has a histogram of its own.
func (d *driver) each(n int, produce func(producer int, h *measure.Histogram) (made uint64)) uint64 {
	var all sync.WaitGroup
	var made atomic.Uint64
	for producer := range n {
		all.Go(func() {
			var h measure.Histogram
			made.Add(produce(producer, &h))
			d.mu.Lock()
			defer d.mu.Unlock()
			d.calls.Merge(&h)
		})
	}
	all.Wait()
	return made.Load()
}

// chunk is after how many spans a producer that does not pause looks at clock
// and watch; one span of each is timed.
const chunk = 64

// mostWaiting is how many spans a load lets wait in our host, which never
// blocks and would drop the next ones in the end: half of its 32 MiB, as it
// counts a waiting span of ours.
const mostWaiting = 1 << 14

// fullPause is how long a producer waits then: less than it takes to empty half
// a queue.
const fullPause = time.Millisecond

// await returns when there is room for n more spans, and counts them.
func (d *driver) await(n int) {
	made := d.made.Add(uint64(n))
	for d.way.host != nil && made > d.answered.Load()+mostWaiting {
		time.Sleep(fullPause)
	}
}

// saturate has producers make spans as fast as they can.
func saturate(producers int) drive {
	return func(_ context.Context, d *driver, length time.Duration) uint64 {
		end := time.Now().Add(length)
		return d.each(producers, func(_ int, h *measure.Histogram) (made uint64) {
			span := d.way.produce()
			for {
				d.await(chunk)
				began := time.Now()
				if began.After(end) {
					return made
				}
				span(int(made))
				h.Add(time.Since(began))
				for i := 1; i < chunk; i++ {
					span(int(made) + i)
				}
				made += chunk
			}
		})
	}
}

// paced has producers make spans at a rate of all together, in a small burst
// each millisecond; each is timed. One that has fallen behind catches up.
func paced(producers, rate int) drive {
	return func(_ context.Context, d *driver, length time.Duration) uint64 {
		began := time.Now()
		return d.each(producers, func(_ int, h *measure.Histogram) (made uint64) {
			span := d.way.produce()
			for next := began; ; {
				next = next.Add(time.Millisecond)
				time.Sleep(time.Until(next))
				since := time.Since(began)
				if since > length {
					return made
				}
				due := uint64(since.Seconds() * float64(rate) / float64(producers))
				for ; made < due; made++ {
					from := time.Now()
					span(int(made))
					h.Add(time.Since(from))
				}
			}
		})
	}
}

// bursts has one producer make so many spans at once, and then pause; each is
// timed.
func bursts(size int, pause time.Duration) drive {
	return func(_ context.Context, d *driver, length time.Duration) uint64 {
		end := time.Now().Add(length)
		return d.each(1, func(_ int, h *measure.Histogram) (made uint64) {
			span := d.way.produce()
			for time.Now().Before(end) {
				d.await(size)
				for range size {
					from := time.Now()
					span(int(made))
					h.Add(time.Since(from))
					made++
				}
				time.Sleep(pause)
			}
			return made
		})
	}
}

// onEndBursts gives the processor so many finished spans at once, and then
// pauses; what is timed is a burst, divided by its spans.
func onEndBursts(size int, pause time.Duration) drive {
	return func(_ context.Context, d *driver, length time.Duration) uint64 {
		end := time.Now().Add(length)
		return d.each(1, func(_ int, h *measure.Histogram) (made uint64) {
			for time.Now().Before(end) {
				burst := d.spans.next(int(made), size)
				from := time.Now()
				for _, s := range burst {
					d.way.processor.OnEnd(s)
				}
				h.Add(time.Since(from) / time.Duration(size))
				made += uint64(size)
				time.Sleep(pause)
			}
			return made
		})
	}
}

// onEndTight gives the processor as many finished spans as its queue holds, as
// fast as producers can, and flushes; what is timed is the whole, divided by
// the spans.
func onEndTight(producers int) drive {
	return func(ctx context.Context, d *driver, length time.Duration) (made uint64) {
		share := len(d.spans) / producers
		for end := time.Now().Add(length); time.Now().Before(end); {
			var all sync.WaitGroup
			from := time.Now()
			for p := range producers {
				all.Go(func() {
					for _, s := range d.spans[p*share : (p+1)*share] {
						d.way.processor.OnEnd(s)
					}
				})
			}
			all.Wait()
			n := share * producers
			d.calls.Add(time.Since(from) / time.Duration(n))
			made += uint64(n)
			if d.way.flush(ctx) != nil {
				return made // what is missing is seen by whoever holds the counts together
			}
		}
		return made
	}
}

// drive makes spans for a time and gives how many.
type drive func(ctx context.Context, d *driver, length time.Duration) (made uint64)

// watchEvery is how often the watch looks: at a million spans a second, 2,000.
const watchEvery = 2 * time.Millisecond

// watch reads the books of our host for those who wait, until ctx ends. With
// other rows it ticks and does nothing.
func (d *driver) watch(ctx context.Context) {
	ticks := time.NewTicker(watchEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if d.way.host != nil {
			s := d.way.host.Stats()
			d.answered.Store(s.Ended - s.Exporters[0].Waiting)
		}
	}
}
