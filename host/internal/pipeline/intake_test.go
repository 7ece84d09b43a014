package pipeline

import (
	"sync"
	"testing"
	"time"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// A span that ends while the worker disarms the timer must find, or leave, a
// timer that runs; else all later ones wait for a flush.
func TestTimerIsNotLostConcurrentSafe(t *testing.T) {
	in := newIntake(&Settings{BatchAge: time.Hour, BatchSpans: 1}, newMemory(1<<20))
	for round := range 100_000 {
		var both sync.WaitGroup
		in.notify(false)
		both.Go(in.disarm)
		both.Go(func() { in.notify(false) })
		both.Wait()
		if armed, running := in.armed.Load(), in.timer.Stop(); armed && !running {
			t.Fatalf("round %d: the timer counts as armed and does not run", round)
		}
		in.armed.Store(false)
	}
}

// gistOf returns the gist of a span of so many bytes.
func gistOf(bytes int) sdkspan.Gist { return sdkspan.Gist{Heap: bytes} }

// endedUntilWake adds spans of a size until the worker is woken.
func endedUntilWake(in *intake, size, most int) int {
	for n := range most {
		if len(in.wake) > 0 {
			return n
		}
		in.add(nil, gistOf(size))
	}
	return most
}

// The encoder is woken when about so many spans or bytes have come in, on any processor.
func TestWorkerIsWoken(t *testing.T) {
	for _, tt := range []struct {
		name                       string
		batch, size, atLeast, most int
	}{
		{"many", 2048, 100, leastWakeSpans, max(wakeSpans, maxShards*leastWakeSpans)},
		{"large", 2048, 200 << 10, 1, 3 + maxShards},
		{"each", 1, 100, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := newIntake(&Settings{BatchAge: time.Hour, BatchSpans: tt.batch, MaxSpanBytes: 1 << 20}, newMemory(1<<30))
			defer in.disarm()
			if n := endedUntilWake(in, tt.size, 10_000); n < tt.atLeast || n > tt.most {
				t.Errorf("woken after %d spans, want %d to %d", n, tt.atLeast, tt.most)
			}
		})
	}
}

// The encoder is woken when the shards together complete the open batch, however the
// spans are spread over them.
func TestWorkerIsWokenForEachFullBatch(t *testing.T) {
	for missing := 1; missing <= 9; missing++ {
		for first := 0; first <= missing; first++ {
			in := newIntake(&Settings{BatchAge: time.Hour, BatchSpans: 9, MaxSpanBytes: 1 << 20}, newMemory(1<<30))
			in.shards = make([]shard, 2)
			in.setWake(missing)
			for n := range missing {
				sh := &in.shards[0]
				if n >= first {
					sh = &in.shards[1]
				}
				in.near = sync.Pool{New: func() any { return sh }}
				in.add(nil, gistOf(100))
			}
			if len(in.wake) == 0 {
				t.Errorf("%d and %d spans complete the batch, and the encoder is not woken", first, missing-first)
			}
			in.disarm()
		}
	}
}

// The account has the bytes of every span that waits, and no span is refused while it has
// room.
func TestAccountIsUsedUp(t *testing.T) {
	const size = 1000
	mem := newMemory(1 << 20)
	in := newIntake(&Settings{BatchAge: time.Hour, BatchSpans: 2048, MaxSpanBytes: 1 << 20}, mem)
	defer in.disarm()
	for range 2 << 20 / size {
		in.add(nil, gistOf(size))
	}
	spans := 0
	for i := range in.shards {
		spans += len(in.shards[i].spans)
	}
	if used := mem.used.Load(); used != int64(spans*size) || used > mem.normal || mem.normal-used > size {
		t.Errorf("%d bytes on the account of %d, for %d spans of %d", used, mem.normal, spans, size)
	}
	for i := range in.shards {
		_, bytes := in.shards[i].take(nil)
		mem.charge(-bytes)
	}
	if used := mem.used.Load(); used != 0 {
		t.Errorf("%d bytes on the account of nothing", used)
	}
}
