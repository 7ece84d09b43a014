package spanpath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/host"
)

// SoakResult is the result of a soak.
type SoakResult struct {
	// samples are of the second half of the outage. The queue fills in the first half.
	samples []soakSample
	// account is the host's delivery accounting after its shutdown, and taken the sink's count.
	// atReturn is the sink's count at the end of the outage.
	account         host.Stats
	taken, atReturn uint64
}

// soakSample is one reading of memory, in bytes, by the names of soakBounds, and of the
// number of goroutines.
type soakSample map[string]float64

const mib = 1 << 20

// The kinds of memory. The live heap is of the last collection.
const (
	soakQueue      = "host, queue (delivery accounting)"
	soakHeap       = "host, live heap"
	soakHost       = "host, RSS"
	soakPlugin     = "plugin, RSS"
	soakGoroutines = "host, goroutines"
)

// soakBounds bound a kind of memory, and its growth. The setting of the queue is 32 MiB,
// grpc may have 16 MiB of its own, and a heap of Go may be twice the live heap, with
// stacks, code and the runtime. The growth allows for the memory between two
// collections, and for memory that the allocator has not returned yet.
var soakBounds = []struct {
	name          string
	unit          float64
	bound, growth float64
}{
	{soakQueue, mib, 32, 1},
	{soakHeap, mib, 48, 2},
	{soakHost, mib, 128, 6},
	{soakPlugin, mib, 32, 2},
	{soakGoroutines, 1, 1000, 8}, // some come and go
}

// soakRate is the number of spans in a second.
const soakRate = 5000

// Soak makes spans with our host and plugins/otlp for a time, while the sink is down for
// the middle 80 % of the time. The sink must get no other spans. It
// returns an error only if there is no result.
func Soak(ctx context.Context, env *suite.Env, length time.Duration) (r *SoakResult, err error) {
	w, err := ours(pluginOTLP)(ctx, order{Bin: env.Bin, Sink: env.Sink.Addresses})
	if err != nil {
		return nil, err
	}
	r = &SoakResult{}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, w.close(stop))
		r.account = w.host.Stats()
		if err == nil {
			r.taken, err = env.Sink.Spans(ctx)
		}
	}()
	producing, cancel := context.WithCancel(ctx)
	var producer sync.WaitGroup
	producer.Go(func() {
		for drive := paced(1, soakRate); producing.Err() == nil; {
			drive(w, time.Second)
		}
	})
	defer producer.Wait()
	defer cancel()
	return r, r.phases(ctx, env.Sink, w, length)
}

// recoverTime is longer than the longest pause between attempts.
const recoverTime = 45 * time.Second

// phases takes samples while the sink closes and opens.
func (r *SoakResult) phases(ctx context.Context, to *sink.Sink, w *way, length time.Duration) error {
	begins, outage := length/10, length*8/10
	if err := pause(ctx, begins); err != nil {
		return err
	}
	if err := errors.Join(to.Shut(ctx), pause(ctx, outage/2)); err != nil {
		return err
	}
	for end := time.Now().Add(outage / 2); time.Now().Before(end); {
		sample, err := w.soakSample()
		if err := errors.Join(err, pause(ctx, length/600)); err != nil {
			return err
		}
		r.samples = append(r.samples, sample)
	}
	var err error
	if r.atReturn, err = to.Spans(ctx); err != nil {
		return err
	}
	return errors.Join(to.Open(ctx), pause(ctx, max(begins, recoverTime)))
}

func (w *way) soakSample() (soakSample, error) {
	stats := w.host.Stats()
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	own, err1 := measure.Memory(os.Getpid())
	plugin, err2 := measure.Memory(stats.Exporters[0].PID)
	return soakSample{
		soakQueue: float64(stats.Bytes), soakHeap: float64(heap[0].Value.Uint64()), soakHost: float64(own.VmRSS), soakPlugin: float64(plugin.VmRSS),
		soakGoroutines: float64(runtime.NumGoroutine()),
	}, errors.Join(stats.Check(), err1, err2)
}

// pause waits for d, or returns the cause of ctx's end.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Report returns the findings as text, and whether all checks have succeeded.
func (r *SoakResult) Report() (text string, ok bool) {
	text, ok = "# Soak: the sink was down for 80 % of the time\n\n| | | |\n| --- | --- | --- |\n", true
	add := func(name string, good bool, format string, args ...any) {
		verdict := "ok"
		if !good {
			verdict, ok = "**FAILED**", false
		}
		text += fmt.Sprintf("| %s | %s | %s |\n", name, fmt.Sprintf(format, args...), verdict)
	}
	quarter := len(r.samples) / 4
	if quarter == 0 {
		add("samples", false, "%d, too few", len(r.samples))
		return text, ok
	}
	for _, b := range soakBounds {
		var values []float64
		for _, s := range r.samples {
			values = append(values, s[b.name]/b.unit)
		}
		most := slices.Max(values)
		growth := measure.Summarize(values[len(values)-quarter:]).Middle - measure.Summarize(values[:quarter]).Middle
		add(b.name+", sink down", most <= b.bound && growth <= b.growth, "at most %.1f (bound %g), growth %+.2f (bound %g) from the first quarter to the last", most, b.bound, growth, b.growth)
	}
	x, err := r.account.Exporters[0], r.account.Check()
	add("the delivery accounting at the end", err == nil && x.Waiting == 0, "%d ended, refused %v, %d accepted: %d delivered, dropped %v, rejected %v, %d waiting, error %v",
		r.account.Ended, r.account.Refused, r.account.Accepted, x.Delivered, x.Dropped, x.Rejected, x.Waiting, err)
	add("the sink's count", r.taken == x.Delivered, "%d received, %d counted as delivered", r.taken, x.Delivered)
	add("delivered again once the sink is up", r.taken > r.atReturn, "%d spans", r.taken-r.atReturn)
	add("the plugin", x.Starts == 1 && x.Crashes == 0, "%d starts, %d crashes", x.Starts, x.Crashes)
	return text, ok
}
