package pipeline

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// These are numbers for all shards together. If so many spans or bytes may be waiting, the
// encoder is woken before the timer fires. An early start is cheaper: encoding costs twice as
// much after the spans have left the CPU's cache.
const (
	wakeSpans = 512
	wakeBytes = 512 << 10 // estimated heap size of the spans
)

// maxShards bounds the number of shards. leastWakeSpans is the lower bound of
// intake.shardWakeSpans, so that many shards do not wake the encoder too often.
const (
	maxShards      = 64
	leastWakeSpans = 32
)

// intake accepts or refuses the spans that end. It has a few lists, the shards, each with its
// own lock. A goroutine that ends a span calls add. wake and tick wake the goroutine of the
// encoder (encode.go), which takes the lists. Safe for concurrent use.
type intake struct {
	mem          *memory
	maxSpanBytes int64
	shards       []shard
	// near gives each CPU a shard that other CPUs rarely use. A lock and a list in the
	// cache of another CPU cost more than everything else in add.
	near sync.Pool
	next atomic.Uint32 // number of shards that were given to near so far

	// These bounds apply to each shard.
	shardWakeSpans int   // upper bound of wakeAt
	shardWakeBytes int64 // number of bytes at which a shard wakes the encoder

	wake  chan struct{} // gets a value when a shard is long enough to be encoded; capacity 1
	tick  chan struct{} // gets a value when the oldest span has waited long enough; capacity 1
	timer *time.Timer   // sends on tick
	age   time.Duration
	armed atomic.Bool // the timer runs, or has fired and the encoder has not read the tick
}

// shard is one list of spans. The padding gives each shard cache lines of its own.
type shard struct {
	mu       sync.Mutex
	spans    []sdktrace.ReadOnlySpan
	bytes    int64 // size of the spans in the memory account
	wakeAt   int   // number of spans at which the shard wakes the encoder, see setWake
	woken    bool  // the shard has woken the encoder since its list was taken
	closed   bool
	ended    uint64
	accepted uint64
	refused  [reasonCount]uint64
	_        [64]byte
}

func newIntake(cfg *Settings, mem *memory) *intake {
	n := min(runtime.GOMAXPROCS(0), maxShards)
	in := &intake{
		mem:            mem,
		maxSpanBytes:   int64(cfg.MaxSpanBytes),
		shards:         make([]shard, n),
		shardWakeSpans: max(wakeSpans/n, leastWakeSpans),
		shardWakeBytes: wakeBytes / int64(n),
		wake:           make(chan struct{}, 1),
		tick:           make(chan struct{}, 1),
		age:            cfg.BatchAge,
	}
	in.near.New = func() any { return &in.shards[int(in.next.Add(1))%n] }
	in.timer = time.AfterFunc(time.Hour, func() { signal(in.tick) })
	in.timer.Stop()
	in.setWake(cfg.BatchSpans)
	return in
}

// add accepts or refuses a span. It never blocks, and does not allocate once the lists
// have grown to their usual length.
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
	case !in.mem.admit(size, g.Failed): // the memory account (memory.go) is full
		sh.refused[reasonQueueFull]++
	default:
		sh.accepted++
		sh.spans = append(sh.spans, s)
		sh.bytes += size
		wake = in.wakesLocked(sh)
	}
	sh.mu.Unlock()
	in.near.Put(sh)
	if !closed {
		in.notify(wake)
	}
}

// wakesLocked reports whether the caller must wake the encoder, because a shard has enough
// spans or bytes. It marks the shard as woken, so it returns true only once until the list is
// taken.
func (in *intake) wakesLocked(sh *shard) bool {
	if sh.woken || len(sh.spans) < sh.wakeAt && sh.bytes < in.shardWakeBytes {
		return false
	}
	sh.woken = true
	return true
}

// notify wakes the encoder at once if wake is true. If the timer that wakes the encoder
// does not run, notify starts it.
func (in *intake) notify(wake bool) {
	if wake {
		signal(in.wake)
	}
	if !in.armed.Load() && in.armed.CompareAndSwap(false, true) {
		in.timer.Reset(in.age)
	}
}

// signal sends on c unless it is full. It never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// setWake sets the number of spans at which a shard wakes the encoder. missing is the
// number of spans that complete the open batch, at least 1. If no shard has enough
// spans to wake the encoder, all shards together have fewer than missing.
func (in *intake) setWake(missing int) {
	at := min(in.shardWakeSpans, (missing-1)/len(in.shards)+1)
	for i := range in.shards {
		sh := &in.shards[i]
		sh.mu.Lock()
		sh.wakeAt = at
		wake := in.wakesLocked(sh)
		sh.mu.Unlock()
		if wake {
			signal(in.wake)
		}
	}
}

// disarm makes the next span start the timer again. The encoder calls it before it
// takes the lists, so that a span that is added meanwhile starts the timer. disarm
// stops the timer first, because a span may start it as soon as armed is false.
func (in *intake) disarm() {
	in.timer.Stop()
	in.armed.Store(false)
}

// take removes the spans of a shard and returns them. The empty list spare becomes the
// new list. The caller must subtract the bytes from the memory account.
func (sh *shard) take(spare []sdktrace.ReadOnlySpan) (spans []sdktrace.ReadOnlySpan, bytes int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	spans, bytes = sh.spans, sh.bytes
	sh.spans, sh.bytes, sh.woken = spare, 0, false
	return spans, bytes
}

// close makes add refuse all further spans.
func (in *intake) close() {
	in.lock()
	defer in.unlock()
	for i := range in.shards {
		in.shards[i].closed = true
	}
}

// lock and unlock lock all shards together, for a consistent snapshot.
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

// statsLocked adds the counts of the shards to s. It returns the number of spans that
// are still in the lists.
func (in *intake) statsLocked(s *Stats) (waiting uint64) {
	for i := range in.shards {
		sh := &in.shards[i]
		s.Ended += sh.ended
		s.Accepted += sh.accepted
		addReasons(s.Refused, &sh.refused)
		waiting += uint64(len(sh.spans))
	}
	return waiting
}
