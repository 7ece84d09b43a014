package host

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// When the drain worker is woken before the timer: early, for spans that have
// left the processor's cache cost twice as much to encode.
const (
	wakeSpans = 512
	wakeBytes = 512 << 10 // of estimated heap
)

// maxShards bounds the shards: more would only make draining slower.
const maxShards = 64

// Shards deal with the account, and with what wakes the worker, by the ration and
// not by the span, so that processors that end spans seldom meet there. A shard
// draws bytes from the account in advance, and reports what has come in when it
// is so many spans or bytes.
const (
	wakeRations = 16
	rationSpans = wakeSpans / wakeRations
	rationBytes = wakeBytes / wakeRations
	// rationShare is the most that all shards together may have drawn and not
	// used, as a part of the account.
	rationShare = 1.0 / 16
)

// intake is where spans end up when they end: a few lists, each with its own
// lock. Safe for concurrent use.
type intake struct {
	mem          *memory
	maxSpanBytes int64
	shards       []shard
	// near gives each processor a shard that mostly no other has, for a lock and a
	// list that are in another processor's cache cost more than all the rest.
	near sync.Pool
	next atomic.Uint32 // shards given to near so far

	rationSpans int   // reported at a time
	rationBytes int64 // drawn at a time
	wakeRations int64
	reported    atomic.Int64 // rations, since the last cycle began

	wake  chan struct{} // capacity 1: wakeRations have been reported
	tick  chan struct{} // capacity 1: the oldest span has waited long enough
	timer *time.Timer   // sends on tick
	age   time.Duration
	armed atomic.Bool // the timer runs, or its tick is on the way
}

// shard is one list. The padding keeps two shards off one cache line.
type shard struct {
	mu       sync.Mutex
	spans    []sdktrace.ReadOnlySpan
	bytes    int64 // drawn from the account, for spans and in advance
	unused   int64 // of bytes
	newSpans int   // not reported yet
	newBytes int64 // of those
	closed   bool
	ended    uint64
	accepted uint64
	refused  [reasonCount]uint64
	_        [64]byte
}

func newIntake(cfg Config, mem *memory) *intake {
	n := min(runtime.GOMAXPROCS(0), maxShards)
	in := &intake{
		mem:          mem,
		maxSpanBytes: int64(cfg.MaxSpanBytes),
		shards:       make([]shard, n),
		rationSpans:  max(1, min(rationSpans, cfg.BatchSpans/wakeRations)),
		rationBytes:  min(rationBytes, int64(float64(mem.limit)*rationShare)/int64(n)),
		wakeRations:  int64(min(wakeRations, cfg.BatchSpans)),
		wake:         make(chan struct{}, 1),
		tick:         make(chan struct{}, 1),
		age:          cfg.BatchAge,
	}
	in.near.New = func() any { return &in.shards[int(in.next.Add(1))%n] }
	in.timer = time.AfterFunc(time.Hour, func() { signal(in.tick) })
	in.timer.Stop()
	return in
}

// signal wakes whoever waits on c, once, and never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add takes a span in or refuses it. It never blocks, and allocates nothing
// once the lists have grown to their usual length.
func (in *intake) add(s sdktrace.ReadOnlySpan, g sdkspan.Gist) {
	size := int64(g.Heap)
	sh := in.near.Get().(*shard)
	wake := false
	sh.mu.Lock()
	sh.ended++
	closed := sh.closed
	switch {
	case closed:
		sh.refused[reasonShutdown]++
	case size > in.maxSpanBytes:
		sh.refused[reasonTooLarge]++
	case sh.unused < size && !in.drawLocked(sh, size, g.Failed):
		sh.refused[reasonQueueFull]++
	default:
		sh.accepted++
		sh.spans = append(sh.spans, s)
		sh.unused -= size
		wake = in.reportLocked(sh, size)
	}
	sh.mu.Unlock()
	in.near.Put(sh)
	if !closed {
		in.noticed(wake)
	}
}

// drawLocked draws bytes for a span of that size and some in advance; where the
// account has not so many, for that span alone, or none.
func (in *intake) drawLocked(sh *shard, size int64, urgent bool) bool {
	n := size - sh.unused
	switch {
	case in.mem.admit(n+in.rationBytes, false):
		n += in.rationBytes
	case !in.mem.admit(n, urgent):
		return false
	}
	sh.bytes += n
	sh.unused += n
	return true
}

// reportLocked notes a span that has come in, and tells whether the worker is to
// be woken.
func (in *intake) reportLocked(sh *shard, size int64) (wake bool) {
	sh.newSpans++
	sh.newBytes += size
	if sh.newSpans < in.rationSpans && sh.newBytes < rationBytes {
		return false
	}
	rations := max(1, sh.newBytes/rationBytes)
	sh.newSpans, sh.newBytes = 0, 0
	return in.reported.Add(rations) >= in.wakeRations
}

// noticed sees to it that somebody comes for a span that was taken in, or tells
// of one that was not.
func (in *intake) noticed(wake bool) {
	if wake {
		signal(in.wake)
	}
	if !in.armed.Load() && in.armed.CompareAndSwap(false, true) {
		in.timer.Reset(in.age)
	}
}

// disarm lets the next span start the timer again. It must come before the
// lists are taken: a span that is added in between then starts it. The timer is
// stopped first, for after armed is false a span may have started it anew.
func (in *intake) disarm() {
	in.timer.Stop()
	in.armed.Store(false)
}

// take empties a shard and leaves it spare, an empty list, instead. The bytes are
// all that the shard has drawn, for the caller to give back to the account.
func (sh *shard) take(spare []sdktrace.ReadOnlySpan) (spans []sdktrace.ReadOnlySpan, bytes int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	spans, bytes = sh.spans, sh.bytes
	sh.spans, sh.bytes, sh.unused, sh.newSpans, sh.newBytes = spare, 0, 0, 0, 0
	return spans, bytes
}

// close refuses all spans from here on.
func (in *intake) close() {
	for i := range in.shards {
		sh := &in.shards[i]
		sh.mu.Lock()
		sh.closed = true
		sh.mu.Unlock()
	}
}

// lock and unlock stop all shards at once, for a consistent look at the books.
func (in *intake) lock() {
	for i := range in.shards {
		in.shards[i].mu.Lock()
	}
}

func (in *intake) unlock() {
	for i := range in.shards {
		in.shards[i].mu.Unlock()
	}
}
