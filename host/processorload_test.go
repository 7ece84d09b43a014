package host_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/total"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestProcessorsUnderLoadWithFaults kills, freezes and replaces two processors and three
// exporters under load, and sends a batch to each that crashes it. Each span arrives at each
// exporter or is in a quarantined batch. None arrives with the secret that the processors
// remove. `make chaos` runs it for two minutes.
func TestProcessorsUnderLoadWithFaults(t *testing.T) {
	t.Parallel() // it waits for processes
	var sinks, list []string
	for i := range 3 {
		sinks = append(sinks, installOwn(t, "bytes"))
		list = append(list, fmt.Sprintf("p%d=%s", i, sinks[i]))
	}
	processors := withProcessors(t, nil, "a", "b")
	r := startHost(t, func(c *host.Config) {
		processors(c)
		c.Plugins, c.BatchSpans, c.ExportTimeout, c.StopTimeout, c.MaxAge = strings.Join(list, ","), 50, 2*time.Second, 20*time.Second, 10*time.Minute
	})
	for _, name := range []string{"poison-for+a", "poison-for+b", "venom-" + sinks[0], "venom-" + sinks[1], "venom-" + sinks[2]} {
		r.Seal() // so that each is in a batch of its own
		r.spans(name, 1)
	}
	r.Seal()
	stop, ended := make(chan struct{}), 0
	var load sync.WaitGroup
	load.Go(func() { ended = r.numberedSpans(stop) })
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := cyclesOf(t, 120)
	for round := range rounds {
		t.Logf("round %d of %d", round, rounds) // for make chaos
		r.fault(rng, round)
		r.balanced()
		<-time.After(time.Second)
	}
	close(stop)
	load.Wait()
	r.endFaults()
	stats := r.Stats()
	lost := uint64(0)
	for _, p := range stats.Processors {
		lost += p.Plugin.Dropped["quarantined"]
		if other := total.Of(p.Plugin.Dropped) - p.Plugin.Dropped["quarantined"]; other > 0 || p.Plugin.Dropped["quarantined"] == 0 {
			t.Errorf("processor %s dropped %v, want its poison batch alone", p.Plugin.Name, p.Plugin.Dropped)
		}
	}
	for i, x := range stats.Exporters {
		if x.Dropped["quarantined"] == 0 {
			t.Errorf("exporter %d has its poison batch not in quarantine", i)
		}
		data, err := os.ReadFile(sinks[i] + ".bytes")
		if err != nil || bytes.Contains(data, []byte(canary)) {
			t.Errorf("%v, or exporter %d got the secret in %d bytes", err, i, len(data))
		}
		got, missing := numbersIn(t, data), uint64(0)
		for n := range ended {
			if !got[fmt.Sprintf("s-%d+a+b", n)] {
				missing++
			}
		}
		if most := lost + x.Dropped["quarantined"]; missing > most || total.Of(x.Dropped) != x.Dropped["quarantined"] || total.Of(x.Rejected) > 0 {
			t.Errorf("exporter %d: %d of %d spans are missing, %d are in quarantine; dropped %v, rejected %v", i, missing, ended, most, x.Dropped, x.Rejected)
		}
	}
	t.Logf("%d spans, %d lost in quarantine of the processors", ended, lost)
}

// numberedSpans ends numbered spans with the secret until stop is closed.
func (r *running) numberedSpans(stop <-chan struct{}) (n int) {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return n
		case <-ticker.C:
			for range 4 {
				_, span := r.tracer.Start(context.Background(), fmt.Sprintf("s-%d", n), trace.WithAttributes(attribute.String(canary, "secret")))
				span.End()
				n++
			}
		}
	}
}

// fault kills or freezes one plugin, or replaces all.
func (r *running) fault(rng *rand.Rand, round int) {
	r.t.Helper()
	plugins := r.Stats().Plugins()
	pid := plugins[rng.IntN(len(plugins))].PID
	switch {
	case round%4 == 3:
		ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
		defer cancel()
		_ = r.Reload(ctx) // a plugin that is frozen or quarantines is not replaced in time
	case pid == 0: // it is between two lives
	case round%4 == 1:
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
	default:
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// endFaults waits until all spans are settled. A frozen process is found and replaced.
func (r *running) endFaults() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	if err := r.ForceFlush(ctx); err != nil && ctx.Err() != nil {
		r.t.Errorf("ForceFlush: %v", err)
	}
	testplugin.WaitFor(r.t, "settled spans", func() bool {
		for _, x := range r.Stats().Plugins() {
			if x.Waiting > 0 {
				return false
			}
		}
		return true
	})
}

// numbersIn returns the names of the spans in batches that follow each other.
func numbersIn(t *testing.T, data []byte) map[string]bool {
	t.Helper()
	request, err := otlpwire.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	defer request.Release()
	names := map[string]bool{}
	for span := range request.Spans() {
		names[span.Name()] = true
	}
	return names
}
