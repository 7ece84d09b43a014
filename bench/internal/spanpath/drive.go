package spanpath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
)

// drive makes spans for a time, and returns their number.
type drive func(ctx context.Context, d *driver, length time.Duration) (made uint64)

// driver makes spans.
type driver struct {
	way *way
	// made counts spans before they are made, and answered the spans that did not wait
	// in our host at the last look of a producer. Other rows do not use them.
	made, answered atomic.Uint64
	// onEnds are the times of the processor's OnEnd, if the shape is timed: the mean of
	// each burst. inOnEnd is the sum of the current burst.
	onEnds  *hdrhistogram.Histogram
	inOnEnd time.Duration

	mu    sync.Mutex
	calls *hdrhistogram.Histogram // times of one span, from Start to the return of End
	err   error                   // of the drive
}

func newDriver(w *way) *driver {
	return &driver{way: w, onEnds: measure.NewHistogram(), calls: measure.NewHistogram()}
}

// timed adds the time of each OnEnd to sum. It is for one producer. The spans end in
// the program, so that they are still in the processor's cache.
type timed struct {
	sdktrace.SpanProcessor

	sum *time.Duration
}

func (t timed) OnEnd(s sdktrace.ReadOnlySpan) {
	from := time.Now()
	t.SpanProcessor.OnEnd(s)
	*t.sum += time.Since(from)
}

// record adds a time. No span takes as long as the histogram's limit.
func record(h *hdrhistogram.Histogram, d time.Duration) { _ = h.RecordValue(int64(d)) }

// each runs n producers, each with its own histogram, and returns the number of their
// spans.
func (d *driver) each(n int, produce func(h *hdrhistogram.Histogram) (made uint64)) uint64 {
	var all sync.WaitGroup
	var made atomic.Uint64
	for range n {
		all.Go(func() {
			h := measure.NewHistogram()
			made.Add(produce(h))
			d.mu.Lock()
			defer d.mu.Unlock()
			d.calls.Merge(h)
		})
	}
	all.Wait()
	return made.Load()
}

// chunk is the number of spans between two looks of an unpaced producer at the clock
// and at the waiting spans. One span of each chunk is timed.
const chunk = 64

// mostWaiting bounds the spans that a load leaves waiting in our host, which never
// blocks and drops spans beyond 32 MiB. This is half of it.
const mostWaiting = 1 << 14

// fullPause is the pause of a producer at this bound. Half a queue does not become
// empty in this time.
const fullPause = time.Millisecond

// await returns when there is room for n more spans, and counts them. It reads the
// statistics of our host only if the last reading leaves no room.
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

// saturate returns a drive with two producers that do not pause.
func saturate() drive {
	const producers = 2
	return func(_ context.Context, d *driver, length time.Duration) uint64 {
		end := time.Now().Add(length)
		return d.each(producers, func(h *hdrhistogram.Histogram) (made uint64) {
			span := d.way.produce()
			for {
				d.await(chunk)
				began := time.Now()
				if began.After(end) {
					return made
				}
				span(int(made))
				record(h, time.Since(began))
				for i := 1; i < chunk; i++ {
					span(int(made) + i)
				}
				made += chunk
			}
		})
	}
}

// paced returns a drive with producers that together make rate spans in a second, in
// a small burst each millisecond, or one by one if they are fewer. A late producer
// catches up. Each span is timed.
func paced(producers, rate int) drive {
	pause := max(time.Millisecond, time.Second*time.Duration(producers)/time.Duration(rate))
	return func(_ context.Context, d *driver, length time.Duration) uint64 {
		began := time.Now()
		return d.each(producers, func(h *hdrhistogram.Histogram) (made uint64) {
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
					record(h, time.Since(from))
				}
			}
		})
	}
}

// bursts returns a drive with one producer that makes size spans and then pauses.
// Each span is timed.
func bursts(size int, pause time.Duration) drive {
	return func(_ context.Context, d *driver, length time.Duration) uint64 {
		end := time.Now().Add(length)
		return d.each(1, func(h *hdrhistogram.Histogram) (made uint64) {
			span := d.way.produce()
			for time.Now().Before(end) {
				d.await(size)
				for range size {
					from := time.Now()
					span(int(made))
					record(h, time.Since(from))
					made++
				}
				time.Sleep(pause)
			}
			return made
		})
	}
}

// pulsed returns a drive with one producer that makes size spans at each byte of
// another process, like a server at each request. All goroutines sleep between the
// bytes. Each span is timed.
func pulsed(size int, period time.Duration) drive {
	return func(ctx context.Context, d *driver, length time.Duration) uint64 {
		return d.each(1, func(h *hdrhistogram.Histogram) (made uint64) {
			span := d.way.produce()
			d.err = pulses(ctx, period, length, func() {
				d.inOnEnd = 0
				for range size {
					from := time.Now()
					span(int(made))
					record(h, time.Since(from))
					made++
				}
				if d.inOnEnd > 0 {
					record(d.onEnds, d.inOnEnd/time.Duration(size))
				}
			})
			return made
		})
	}
}

// rolePulse is the role of the process that sends pulses.
const rolePulse = "pulse"

// pulses calls f for each byte of another process, which sends one each period. A
// byte that comes while f runs is not lost.
func pulses(ctx context.Context, period, length time.Duration, f func()) error {
	cmd, err := child.Command(ctx, rolePulse, period.String(), length.String())
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe() // the scheduler polls it, like a socket
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("pulses: %w", err)
	}
	var one [1]byte
	for {
		if _, err := io.ReadFull(out, one[:]); err != nil {
			break // the process has ended
		}
		f()
	}
	return cmd.Wait()
}

// pulse is the process that sends pulses. Its arguments are period and length. Its
// thread sleeps in the kernel, whose clock is finer than the clock of Go's scheduler.
func pulse(_ context.Context, args []string, _ io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("pulses: %d arguments, want period and length", len(args))
	}
	period, err1 := time.ParseDuration(args[0])
	length, err2 := time.ParseDuration(args[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	began := time.Now()
	for due := period; due <= length; due += period {
		if rest := due - time.Since(began); rest > 0 {
			ts := unix.NsecToTimespec(int64(rest))
			_ = unix.Nanosleep(&ts, nil) // after a signal, the next pulse is early
		}
		if _, err := out.Write([]byte(".")); err != nil {
			return err
		}
	}
	return nil
}
