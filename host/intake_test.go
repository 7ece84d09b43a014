package host

import (
	"sync"
	"testing"
	"time"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// A span that ends while the worker disarms the timer must find, or leave, a
// timer that runs; else all later ones wait for a flush.
func TestTimerIsNotLostConcurrentSafe(t *testing.T) {
	in := newIntake(Config{BatchAge: time.Hour, BatchSpans: 1}, newMemory(1<<20))
	for round := range 100_000 {
		var both sync.WaitGroup
		in.noticed(false)
		both.Go(in.disarm)
		both.Go(func() { in.noticed(false) })
		both.Wait()
		if armed, running := in.armed.Load(), in.timer.Stop(); armed && !running {
			t.Fatalf("round %d: the timer counts as armed and does not run", round)
		}
		in.armed.Store(false)
	}
}

// gistOf is that of a span of so many bytes.
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

// The worker is woken when about so much has come in, wherever it ended.
func TestWorkerIsWoken(t *testing.T) {
	for _, tt := range []struct {
		name                       string
		batch, size, atLeast, most int
	}{
		{"many", 2048, 100, wakeSpans, wakeSpans + maxShards*rationSpans},
		{"large", 2048, 200 << 10, 3, 8 + maxShards},
		{"each", 1, 100, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := newIntake(Config{BatchAge: time.Hour, BatchSpans: tt.batch, MaxSpanBytes: 1 << 20}, newMemory(1<<30))
			defer in.disarm()
			if n := endedUntilWake(in, tt.size, 10_000); n < tt.atLeast || n > tt.most {
				t.Errorf("woken after %d spans, want %d to %d", n, tt.atLeast, tt.most)
			}
		})
	}
}

// What shards have drawn in advance is little, and is there for nobody else; but
// no span that there is room for is refused for it by its own shard.
func TestAccountIsUsedUp(t *testing.T) {
	const size = 1000
	mem := newMemory(1 << 20)
	in := newIntake(Config{BatchAge: time.Hour, BatchSpans: 2048, MaxSpanBytes: 1 << 20}, mem)
	defer in.disarm()
	for range 2 << 20 / size {
		in.add(nil, gistOf(size))
	}
	spans, unused, drawn := 0, int64(0), int64(0)
	for i := range in.shards {
		sh := &in.shards[i]
		spans += len(sh.spans)
		unused += sh.unused
		drawn += sh.bytes
	}
	if used := mem.used.Load(); used != drawn || used != int64(spans*size)+unused || used > mem.normal {
		t.Errorf("%d bytes on the account of %d, %d drawn for %d spans and %d in advance", used, mem.normal, drawn, spans, unused)
	}
	if most := int64(rationShare * float64(mem.limit)); unused > most || mem.normal-drawn > size {
		t.Errorf("%d bytes are unused, want at most %d; %d of the account are left", unused, most, mem.normal-drawn)
	}
	for i := range in.shards {
		_, bytes := in.shards[i].take(nil)
		mem.charge(-bytes)
	}
	if used := mem.used.Load(); used != 0 {
		t.Errorf("%d bytes on the account of nothing", used)
	}
}
