package serving

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// watch finds the clients that hold up a gRPC call: those that neither send the
// message for which its handler waits nor take what it sends. grpc-go has no deadlines
// for streams. It looks once a beat, so that a call costs neither a timer nor a look
// at the clock.
type watch struct {
	limit time.Duration // none if not positive
	beat  atomic.Int64  // counts up from 1
	end   context.CancelFunc
	ended sync.WaitGroup

	mu    sync.Mutex
	first *watched
}

// beatsPerLimit is how finely the limit is measured: what stalls is found after
// one to one and an eighth times the limit.
const beatsPerLimit = 8

// stallKind is what a client holds up.
type stallKind int

const (
	noStall stallKind = iota
	readStall
	writeStall
	cutShort // by a server that drains no longer, not by the client
)

// outcome is what a request's proxy hears of its handler: that it has returned
// with err, or, from the watch, that it is stalled, or that it is cut short.
type outcome struct {
	err   error
	stall stallKind
}

// watched is a request as the watch sees it.
type watched struct {
	reading, writing atomic.Int64 // the beat in which the operation under way began, or 0

	watch *watch // nil: nobody looks
	tell  chan<- outcome

	prev, next *watched // guarded by watch.mu
}

func newWatch(limit time.Duration) *watch {
	w := &watch{limit: limit, end: func() {}}
	w.beat.Store(1)
	return w
}

// start has it look until stop. Call it once.
func (w *watch) start() {
	if w.limit <= 0 {
		return
	}
	var ctx context.Context
	ctx, w.end = context.WithCancel(context.Background())
	w.ended.Go(func() {
		tick := time.NewTicker(max(w.limit/beatsPerLimit, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.look()
			case <-ctx.Done():
				return
			}
		}
	})
}

// stop waits until it looks no more.
func (w *watch) stop() {
	w.end()
	w.ended.Wait()
}

func (w *watch) look() {
	now := w.beat.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := w.first; x != nil; x = x.next {
		if late(&x.reading, now) {
			x.reportLocked(readStall)
		}
		if late(&x.writing, now) {
			x.reportLocked(writeStall)
		}
	}
}

// late reports whether what began in the beat at since has taken too long, and
// then counts anew.
func late(since *atomic.Int64, now int64) bool {
	began := since.Load()
	return overdue(began, now) && since.CompareAndSwap(began, now)
}

// overdue reports whether what began in a beat, 0 for nothing, has taken too long.
func overdue(began, now int64) bool { return began != 0 && now-began > beatsPerLimit }

// reportLocked tells the proxy, unless it has something to read already. So
// there is always space left for the handler's end: see add.
func (x *watched) reportLocked(s stallKind) {
	if len(x.tell) == 0 {
		x.tell <- outcome{stall: s}
	}
}

// add has x looked at until remove. tell has space for two.
func (w *watch) add(x *watched, tell chan<- outcome) {
	if w.limit <= 0 {
		return
	}
	x.watch, x.tell = w, tell
	w.mu.Lock()
	defer w.mu.Unlock()
	x.next = w.first
	if x.next != nil {
		x.next.prev = x
	}
	w.first = x
}

func (w *watch) remove(x *watched) {
	if w.limit <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.next != nil {
		x.next.prev = x.prev
	}
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		w.first = x.next
	}
	x.prev, x.next = nil, nil
}

// now is the beat, or any but 0 if nobody looks.
func (x *watched) now() int64 {
	if x.watch == nil {
		return 1
	}
	return x.watch.beat.Load()
}
