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
	wakeBytes = 512 << 10 // of estimated heap, which is about 128 KiB encoded
)

// maxShards bounds the shards: more would only make draining slower.
const maxShards = 64

// intake is where spans end up when they end: a few lists, each with its own
// lock, chosen by a byte of the span id. Safe for concurrent use.
type intake struct {
	mem          *memory
	maxSpanBytes int64
	shards       []shard
	mask         byte
	// wakeSpans and wakeBytes are a shard's share of the thresholds.
	wakeSpans int
	wakeBytes int64

	wake  chan struct{} // capacity 1: a shard has passed its threshold
	tick  chan struct{} // capacity 1: the oldest span has waited long enough
	timer *time.Timer   // sends on tick
	age   time.Duration
	armed atomic.Bool // the timer runs, or its tick is on the way
}

// shard is one list. The padding keeps two shards off one cache line.
type shard struct {
	mu       sync.Mutex
	spans    []sdktrace.ReadOnlySpan
	bytes    int64 // estimated, of spans
	closed   bool
	ended    uint64
	accepted uint64
	refused  [reasonCount]uint64
	_        [64]byte
}

func newIntake(cfg Config, mem *memory) *intake {
	n := 1
	for n < 2*runtime.GOMAXPROCS(0) && n < maxShards {
		n *= 2
	}
	in := &intake{
		mem:          mem,
		maxSpanBytes: int64(cfg.MaxSpanBytes),
		shards:       make([]shard, n),
		mask:         byte(n - 1),
		wakeSpans:    max(1, min(wakeSpans, cfg.BatchSpans)/n),
		wakeBytes:    wakeBytes / int64(n),
		wake:         make(chan struct{}, 1),
		tick:         make(chan struct{}, 1),
		age:          cfg.BatchAge,
	}
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
	sh := &in.shards[g.Dice&in.mask]

	wake := false
	sh.mu.Lock()
	sh.ended++
	closed := sh.closed
	switch {
	case closed:
		sh.refused[reasonShutdown]++
	case size > in.maxSpanBytes:
		sh.refused[reasonTooLarge]++
	case !in.mem.admit(size, g.Failed):
		sh.refused[reasonQueueFull]++
	default:
		sh.accepted++
		sh.spans = append(sh.spans, s)
		before := sh.bytes
		sh.bytes += size
		wake = len(sh.spans) == in.wakeSpans || (before < in.wakeBytes && sh.bytes >= in.wakeBytes)
	}
	sh.mu.Unlock()
	if !closed {
		in.noticed(wake)
	}
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

// take empties a shard and leaves it spare, an empty list, instead.
func (sh *shard) take(spare []sdktrace.ReadOnlySpan) (spans []sdktrace.ReadOnlySpan, bytes int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	spans, bytes = sh.spans, sh.bytes
	sh.spans, sh.bytes = spare, 0
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
