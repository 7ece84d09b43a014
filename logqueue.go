package servetrace

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// Bounds of the log's queue.
const (
	// logQueueBytes bounds the bytes of waiting lines. As many again may be in the
	// current write.
	logQueueBytes = 1 << 20
	// logFlushTimeout bounds how long close waits until all lines are written.
	logFlushTimeout = 3 * time.Second
)

// logQueue passes lines to a writer that may be slow, without waiting for it.
//
//  1. Write appends a line to the queue, or counts it as dropped if the queue is full.
//  2. A goroutine writes the lines in order. If lines were dropped, it writes a notice
//     with their number in their place.
//  3. close ends the goroutine when the queue is empty. After that, Write writes
//     directly.
//
// It is safe for concurrent use.
type logQueue struct {
	to io.Writer
	// notice returns the line with the number of dropped lines.
	notice func(dropped uint64) []byte
	wake   chan struct{} // holds a value if there is work
	done   chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	waiting []byte
	dropped uint64 // lines dropped so far
	told    uint64 // dropped lines that a notice has reported
	// writing is closed when the lines taken by the goroutine are written, next when
	// the lines of its following turn are.
	writing, next chan struct{}
	closed, ended bool
	noWaitBefore  time.Time // waitWrittenSeldom does not wait before
}

func newLogQueue(to io.Writer, notice func(dropped uint64) []byte) *logQueue {
	q := &logQueue{
		to: to, notice: notice,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		next: make(chan struct{}),
	}
	go q.run() // ends after close
	return q
}

// Write appends a line. It never fails, and does not block before close. While lines
// are being dropped, all lines are dropped, so that the notice stands before later
// lines.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	if q.ended {
		q.mu.Unlock()
		return q.to.Write(line)
	}
	if q.dropped > q.told || len(q.waiting)+len(line) > logQueueBytes {
		q.dropped++
	} else {
		q.waiting = append(q.waiting, line...)
	}
	q.mu.Unlock()
	q.wakeWriter()
	return len(line), nil
}

func (q *logQueue) wakeWriter() {
	select {
	case q.wake <- struct{}{}:
	default: // the goroutine will check anyway
	}
}

// run writes lines until the queue is closed and empty.
func (q *logQueue) run() {
	defer close(q.done)
	var (
		lines         []byte
		dropped, told uint64
	)
	for ended := false; !ended; {
		<-q.wake
		lines, dropped, told = q.take(lines)
		n, err := q.to.Write(lines)
		lost := uint64(bytes.Count(lines[n:], []byte("\n")))
		if dropped > told && err == nil {
			if _, err = q.to.Write(q.notice(dropped - told)); err == nil {
				told = dropped
			}
		}
		ended = q.wrote(lost, told, err)
	}
}

// take returns the waiting lines. It reuses the memory of the previous lines.
func (q *logQueue) take(before []byte) (lines []byte, dropped, told uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, q.waiting = q.waiting, before[:0]
	q.writing, q.next = q.next, make(chan struct{})
	return lines, q.dropped, q.told
}

// wrote records the result of a write. It reports whether the goroutine must end: when
// the queue is closed and empty, and dropped lines are reported or cannot be.
func (q *logQueue) wrote(lost, told uint64, err error) (ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped += lost
	q.told = told
	close(q.writing)
	q.writing = nil
	q.ended = q.closed && len(q.waiting) == 0 && (q.dropped == q.told || err != nil)
	return q.ended
}

// waitWritten blocks until the queued lines are written, at most for limit. It reports
// whether they are.
func (q *logQueue) waitWritten(limit time.Duration) bool {
	q.mu.Lock()
	written := q.writing // nil: no write is in progress
	if len(q.waiting) > 0 {
		written = q.next
	}
	q.mu.Unlock()
	if written == nil {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-written:
		return true
	case <-timer.C:
		return false
	}
}

// waitWrittenSeldom is like waitWritten for callers in a request. After a timeout it
// does not wait again for errorPause.
func (q *logQueue) waitWrittenSeldom() {
	q.mu.Lock()
	skip := time.Now().Before(q.noWaitBefore)
	q.mu.Unlock()
	if skip || q.waitWritten(errorTimeout) {
		return
	}
	q.mu.Lock()
	q.noWaitBefore = time.Now().Add(errorPause)
	q.mu.Unlock()
}

func (q *logQueue) lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// close blocks until all lines are written, at most for logFlushTimeout. If a write
// hangs, the goroutine continues until it returns, and lines are accepted and written
// until then.
func (q *logQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.wakeWriter()
	timer := time.NewTimer(logFlushTimeout)
	defer timer.Stop()
	select {
	case <-q.done:
	case <-timer.C:
	}
}
