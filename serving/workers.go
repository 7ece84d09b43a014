package serving

import (
	"context"
	"runtime/pprof"
	"sync"
)

// workers are the goroutines of handlers. A worker whose handler has returned waits
// for the next handler: the stack of a fresh goroutine grows several times on its way
// into user code, and copying it costs more than all else that the runtime does for a
// request.
//
// A handler that never returns, or ends its goroutine by runtime.Goexit, has its
// worker for good, and nothing else waits for that worker.
type workers struct {
	mu     sync.Mutex
	idle   []chan job // of those that wait; the last has the warmest stack
	closed bool
}

// job is the work of a worker, done once. work must recover from panics.
type job interface{ work() }

// mostIdle bounds how many wait, so that a burst leaves little behind. The stack
// of one that waits is a few KiB at most: the collector halves it.
const mostIdle = 128

// start has a worker do j, and does not wait for it.
func (w *workers) start(j job) {
	w.mu.Lock()
	if last := len(w.idle) - 1; last >= 0 {
		jobs := w.idle[last]
		w.idle = w.idle[:last]
		w.mu.Unlock()
		jobs <- j
		return
	}
	w.mu.Unlock()
	go w.live(j) // ends by close, once j is done
}

// live is a worker's life, of which j is the first job.
func (w *workers) live(j job) {
	jobs := make(chan job, 1) // the sender has taken the worker off the list, and need not wait
	for ok := true; ok; j, ok = <-jobs {
		j.work()
		pprof.SetGoroutineLabels(context.Background()) // the handler may have set its own
		if !w.wait(jobs) {
			return
		}
	}
}

// wait lists a worker as idle, unless there are enough.
func (w *workers) wait(jobs chan job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) == mostIdle {
		return false
	}
	w.idle = append(w.idle, jobs)
	return true
}

// close ends the workers: those that wait at once, the others after their job.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, jobs := range w.idle {
		close(jobs)
	}
	w.idle = nil
}
