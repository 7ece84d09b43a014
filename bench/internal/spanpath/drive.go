package spanpath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/sink"
)

// drive makes spans for a time, and returns their number.
type drive func(w *way, length time.Duration) (made uint64)

// producers runs n producers, and returns the number of their spans.
func producers(n int, produce func() (made uint64)) uint64 {
	var all sync.WaitGroup
	var made atomic.Uint64
	for range n {
		all.Go(func() { made.Add(produce()) })
	}
	all.Wait()
	return made.Load()
}

// chunk is the number of spans between two looks of a producer at the clock and at the
// waiting spans.
const chunk = 1 << 10

// mostWaiting bounds the spans that a load leaves waiting in our host, which never
// blocks and drops spans beyond 32 MiB. This is half of it.
const mostWaiting = 1 << 14

// awaitRoom waits while too many spans wait in our host.
func (w *way) awaitRoom() {
	for {
		waiting := uint64(0)
		for _, x := range w.plugins() {
			waiting = max(waiting, x.Waiting)
		}
		if waiting <= mostWaiting {
			return
		}
		time.Sleep(time.Millisecond) // half a queue does not become empty in this time
	}
}

// awaitSink flushes until the sink has taken this number of spans.
func awaitSink(ctx context.Context, to sink.Addresses, wanted uint64, flush func()) error {
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(time.Millisecond) {
		flush()
		taken, err := to.Spans(ctx)
		switch {
		case err != nil || taken >= wanted:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%d spans are lost", wanted-taken)
		}
	}
}

// saturate makes spans with two producers that do not pause.
func saturate(w *way, length time.Duration) uint64 {
	end := time.Now().Add(length)
	return producers(2, func() (made uint64) {
		for span := w.produce(); time.Now().Before(end); {
			w.awaitRoom()
			for range chunk {
				span(int(made))
				made++
			}
		}
		return made
	})
}

// paced returns a drive with n producers that together make rate spans in a second, in
// a small burst each millisecond. A late producer catches up.
func paced(n, rate int) drive {
	return func(w *way, length time.Duration) uint64 {
		began := time.Now()
		return producers(n, func() (made uint64) {
			span := w.produce()
			for since := time.Duration(0); since < length; since = time.Since(began) {
				for due := 1 + uint64(since.Seconds()*float64(rate)/float64(n)); made < due; made++ {
					span(int(made))
				}
				time.Sleep(time.Millisecond)
			}
			return made
		})
	}
}

// bursts returns a drive with one producer that makes size spans and then pauses.
func bursts(size int, pause time.Duration) drive {
	return func(w *way, length time.Duration) uint64 {
		end := time.Now().Add(length)
		return producers(1, func() (made uint64) {
			for span := w.produce(); time.Now().Before(end); time.Sleep(pause) {
				for range size {
					span(int(made))
					made++
				}
			}
			return made
		})
	}
}

// rolePulse is the role of the process that sends pulses.
const rolePulse = "pulse"

// pulsed returns a drive that makes a span at each pulse of another process, like a
// server at each request. All goroutines sleep between the pulses.
func pulsed(period time.Duration) drive {
	return func(w *way, length time.Duration) (made uint64) {
		c, err := child.Start(context.Background(), nil, rolePulse, period.String(), length.String())
		if err != nil {
			return 0 // an error of the measurement
		}
		span := w.produce()
		for c.Read(new(int)) == nil {
			span(int(made))
			made++
		}
		if c.Stop(nil) != nil {
			return 0
		}
		return made
	}
}

// pulse is the process that sends pulses. Its arguments are period and length. Its
// thread sleeps in the kernel, whose clock is finer than the clock of Go's scheduler.
func pulse(args []string, _ io.Reader, out io.Writer) error {
	period, err1 := time.ParseDuration(args[0])
	length, err2 := time.ParseDuration(args[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	began, enc := time.Now(), json.NewEncoder(out)
	for due := period; due <= length; due += period {
		if rest := due - time.Since(began); rest > 0 {
			ts := unix.NsecToTimespec(int64(rest))
			_ = unix.Nanosleep(&ts, nil) // after a signal, the next pulse is early
		}
		if err := enc.Encode(0); err != nil {
			return err
		}
	}
	return nil
}
