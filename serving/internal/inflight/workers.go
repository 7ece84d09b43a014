package inflight

import (
	"context"
	"runtime/pprof"
	"sync"
)

// Job is the work for a handler. Run must recover from panics.
type Job interface{ Run() }

// Workers are the goroutines of handlers. After its handler has returned, a worker waits
// for the next handler. The stack of a fresh goroutine would grow several times on its
// way into user code. Copying the stack costs more than all else that the runtime does
// for a request.
//
// A handler that never returns, or that ends its goroutine with runtime.Goexit, keeps its
// worker for good. Nothing else waits for that worker.
//
// The zero Workers is ready for use. Its methods are safe for concurrent use.
type Workers struct {
	mu     sync.Mutex
	idle   []chan Job // channels of waiting workers; the last worker has worked most recently
	closed bool
}

// mostIdle bounds the number of waiting workers, so that few workers stay after a burst
// of requests. The stack of a waiting worker is a few KiB at most, because the garbage
// collector shrinks it.
const mostIdle = 128

// Start makes a worker run a job, and does not wait for the job.
func (w *Workers) Start(j Job) {
	w.mu.Lock()
	if last := len(w.idle) - 1; last >= 0 {
		jobs := w.idle[last]
		w.idle = w.idle[:last]
		w.mu.Unlock()
		jobs <- j
		return
	}
	w.mu.Unlock()
	go w.live(j) // the worker ends after Close, when its job has returned
}

// live runs a worker, of which j is the first job.
func (w *Workers) live(j Job) {
	jobs := make(chan Job, 1) // the sender has removed the worker from the list, and must not wait
	for ok := true; ok; j, ok = <-jobs {
		j.Run()
		pprof.SetGoroutineLabels(context.Background()) // the handler may have set labels
		if !w.wait(jobs) {
			return
		}
	}
}

// wait adds a worker to the idle list. It returns false if the list is full, or after
// Close.
func (w *Workers) wait(jobs chan Job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) == mostIdle {
		return false
	}
	w.idle = append(w.idle, jobs)
	return true
}

// Close ends the workers: waiting workers at once, other workers after their job.
func (w *Workers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, jobs := range w.idle {
		close(jobs)
	}
	w.idle = nil
}
