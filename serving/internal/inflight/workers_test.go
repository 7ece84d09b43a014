package inflight

import (
	"context"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// job is a function as a job.
type job func()

func (f job) Run() { f() }

// goroutine is a name for the goroutine that calls it.
func goroutine() string {
	var buf [64]byte
	name, _, _ := strings.Cut(string(buf[:runtime.Stack(buf[:], false)]), " [") // "goroutine 12 [running]: …"
	return name
}

// TestWorkers: each job has a goroutine to itself, which takes another job once
// it is free; one that ends its goroutine takes nobody else's.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Workers
		var names [4]string
		first, hold := make(chan struct{}), make(chan struct{})
		w.Start(job(func() { names[0] = goroutine(); <-first }))
		w.Start(job(func() { names[1] = goroutine(); <-hold }))
		synctest.Wait()
		close(first)
		synctest.Wait()
		w.Start(job(func() { names[2] = goroutine(); runtime.Goexit() }))
		synctest.Wait()
		w.Start(job(func() { names[3] = goroutine() }))
		synctest.Wait()
		if names[0] == names[1] {
			t.Error("two jobs at a time share a goroutine")
		}
		if names[2] != names[0] {
			t.Error("a goroutine that was free got no other job")
		}
		if names[3] == names[2] || names[3] == names[1] {
			t.Errorf("the last job ran on %s, which is not free", names[3])
		}
		w.Close() // of one that waits, and one that works
		close(hold)
	}) // waits for both
}

// TestWorkersLeftOver: of a burst, only so many stay; after close, none.
func TestWorkersLeftOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Workers
		burst := func(n int) {
			hold := make(chan struct{})
			for range n {
				w.Start(job(func() { <-hold }))
			}
			close(hold)
			synctest.Wait()
		}
		burst(mostIdle + 10)
		if n := len(w.idle); n != mostIdle {
			t.Errorf("%d wait, want %d", n, mostIdle)
		}
		w.Close()
		burst(3)
		if n := len(w.idle); n != 0 {
			t.Errorf("%d wait after close, want none", n)
		}
	})
}

// TestWorkersLabels: what a handler does to its goroutine is gone with it.
func TestWorkersLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Workers
		defer w.Close()
		w.Start(job(func() {
			pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("who", "the first")))
		}))
		synctest.Wait()
		w.Start(job(func() {
			var text strings.Builder
			if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
				t.Error(err)
			}
			if strings.Contains(text.String(), "the first") {
				t.Error("the second job has the labels of the first")
			}
		}))
		synctest.Wait()
	})
}

func TestWorkersConcurrentSafe(t *testing.T) {
	var w Workers
	var done sync.WaitGroup
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 200 {
				done.Add(1)
				w.Start(job(done.Done))
			}
		})
	}
	callers.Wait()
	w.Close()
	done.Wait()
}
