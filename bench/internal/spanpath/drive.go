package spanpath

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// driver makes spans come in some way.
type driver struct {
	way *way
	// made counts spans before they are made, and answered the spans that did not
	// wait in our host when a producer last looked. Other rows do not use them.
	made, answered atomic.Uint64
	// onEnds is what the processor's OnEnd took, in shapes that time it: the mean
	// of each burst. inOnEnd is the sum of the one under way.
	onEnds  measure.Histogram
	inOnEnd time.Duration

	mu    sync.Mutex
	calls measure.Histogram // what one span took, from Start to the return of End
	err   error             // of the driving itself
}

// fail keeps what went wrong while driving; the counts of a case are worth
// nothing then.
func (d *driver) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = errors.Join(d.err, err)
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

// chunk is after how many spans a producer that does not pause looks at the
// clock and at the spans that wait; one span of each chunk is timed.
const chunk = 64

// mostWaiting is how many spans a load lets wait in our host, which never
// blocks and would drop the next ones in the end: half of its 32 MiB, as it
// counts a waiting span of ours.
const mostWaiting = 1 << 14

// fullPause is how long a producer waits then: less than it takes to empty half
// a queue.
const fullPause = time.Millisecond

// await returns when there is room for n more spans, and counts them. It reads
// the statistics of our host only if the last ones leave no room.
func (d *driver) await(n int) {
	made := d.made.Add(uint64(n))
	for d.way.host != nil && made > d.answered.Load()+mostWaiting {
		s := d.way.host.Stats()
		waiting := uint64(0)
		for _, x := range s.Exporters {
			waiting = max(waiting, x.Waiting)
		}
		if d.answered.Store(s.Ended - waiting); made > s.Ended-waiting+mostWaiting {
			time.Sleep(fullPause)
		}
	}
}

// saturate has two producers make spans as fast as they can.
func saturate() drive {
	const producers = 2
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
// each millisecond, or one by one where they are fewer; each is timed. One that
// has fallen behind catches up.
func paced(producers, rate int) drive {
	pause := max(time.Millisecond, time.Second*time.Duration(producers)/time.Duration(rate))
	return func(_ context.Context, d *driver, length time.Duration) uint64 {
		began := time.Now()
		return d.each(producers, func(_ int, h *measure.Histogram) (made uint64) {
			span := d.way.produce()
			for next := began; ; {
				next = next.Add(pause)
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

// pulsed has one producer make so many spans whenever a byte comes from another
// process, as a server would for a request that comes: it sleeps in between, and
// so does everybody else. Each span is timed.
func pulsed(size int, period time.Duration) drive {
	return func(ctx context.Context, d *driver, length time.Duration) uint64 {
		return d.each(1, func(_ int, h *measure.Histogram) (made uint64) {
			span := d.way.produce()
			err := pulses(ctx, period, length, func() {
				d.inOnEnd = 0
				for range size {
					from := time.Now()
					span(int(made))
					h.Add(time.Since(from))
					made++
				}
				if d.inOnEnd > 0 {
					d.onEnds.Add(d.inOnEnd / time.Duration(size))
				}
			})
			if err != nil {
				d.fail(err)
			}
			return made
		})
	}
}

// drive makes spans for a time and gives how many.
type drive func(ctx context.Context, d *driver, length time.Duration) (made uint64)
