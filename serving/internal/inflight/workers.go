package inflight

import (
	"context"
	"runtime/pprof"
	"sync"
)

// Job is the work that a worker does for one request. Run must recover from panics.
type Job interface{ Run() }

// Workers are goroutines that run handlers. After its handler has returned, a worker waits
// for the next handler. A new goroutine for each handler would be slower: its stack would
// grow several times, and each growth copies the stack.
//
// A handler that never returns, or that ends its goroutine with runtime.Goexit, never gives
// its worker back. Other handlers do not wait for that worker, because they get new ones.
//
// The zero Workers is ready for use. Its methods are safe for concurrent use.
type Workers struct {
	mu     sync.Mutex
	idle   []chan Job // the channels of the workers that wait for a job; the last worker was busy most recently
	closed bool
}

// mostIdle is the largest number of workers that wait for a job. More workers end after
// their job, so that few workers stay after a burst of requests.
const mostIdle = 128

// Start makes a worker run the job j. It does not wait for the job.
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
	go w.live(j) // ends after a job if enough workers are idle or Close was called, or at Close
}

// live is the goroutine of a worker. It runs j and then the jobs from its channel.
func (w *Workers) live(j Job) {
	jobs := make(chan Job, 1) // buffered, so that Start does not wait for the worker
	for ok := true; ok; j, ok = <-jobs {
		j.Run()
		pprof.SetGoroutineLabels(context.Background()) // removes the labels that the handler may have set
		if !w.wait(jobs) {
			return
		}
	}
}

// wait adds the channel of a worker to the list idle. It returns false if the worker must
// end, because the list is full or Close was called.
func (w *Workers) wait(jobs chan Job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) == mostIdle {
		return false
	}
	w.idle = append(w.idle, jobs)
	return true
}

// Close ends the workers that wait for a job. The other workers end after their job.
func (w *Workers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, jobs := range w.idle {
		close(jobs)
	}
	w.idle = nil
}
