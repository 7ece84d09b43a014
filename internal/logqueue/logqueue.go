// Package logqueue writes a log without waiting for its reader.
//
//  1. New starts a goroutine. Write appends a line to the queue, or counts it as dropped
//     if the queue is full.
//  2. The goroutine writes the lines in order. If lines were dropped, it writes a notice
//     with their number in their place.
//  3. Close ends the goroutine when the queue is empty. After that, Write writes
//     directly.
//
// The package does not format lines.
package logqueue

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// maxBytes bounds the bytes of waiting lines. The current write may contain as many bytes
	// again.
	maxBytes = 1 << 20
	// closeTimeout bounds how long Close waits until all lines are written.
	closeTimeout = 3 * time.Second
	// seldomTimeout bounds a wait of WaitWrittenSeldom. After a timeout there are no
	// waits for seldomPause.
	seldomTimeout = 100 * time.Millisecond
	seldomPause   = time.Minute
)

// Queue passes lines to a writer that may be slow, without waiting for it. It is safe for
// concurrent use.
type Queue struct {
	to io.Writer
	// notice returns the line with the number of dropped lines.
	notice func(dropped uint64) []byte
	wake   chan struct{} // holds a value if there is work
	done   chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	waiting []byte
	dropped uint64 // lines dropped so far
	told    uint64 // dropped lines that notices have reported
	// writing is closed when the lines that the goroutine has taken are written. next is
	// closed when the lines of its next turn are written.
	writing, next chan struct{}
	closed, ended bool
	noWaitBefore  time.Time // time before which WaitWrittenSeldom does not wait
}

// New returns a Queue for a writer. notice returns the line that reports a number of dropped
// lines. The caller must call Close.
func New(to io.Writer, notice func(dropped uint64) []byte) *Queue {
	q := &Queue{
		to: to, notice: notice,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		next: make(chan struct{}),
	}
	go q.run() // ends after Close
	return q
}

// Write appends a line. It never fails, and does not block before Close. After a dropped
// line, further lines are dropped until the notice is written, so that the notice comes
// before later lines.
func (q *Queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	if q.ended {
		q.mu.Unlock()
		return q.to.Write(line)
	}
	if q.dropped > q.told || len(q.waiting)+len(line) > maxBytes {
		q.dropped++
	} else {
		q.waiting = append(q.waiting, line...)
	}
	q.mu.Unlock()
	q.wakeWriter()
	return len(line), nil
}

func (q *Queue) wakeWriter() {
	select {
	case q.wake <- struct{}{}:
	default: // the goroutine was woken already
	}
}

// run writes lines until the queue is closed and empty.
func (q *Queue) run() {
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
func (q *Queue) take(before []byte) (lines []byte, dropped, told uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, q.waiting = q.waiting, before[:0]
	q.writing, q.next = q.next, make(chan struct{})
	return lines, q.dropped, q.told
}

// wrote records the result of a write. It returns true if the goroutine must end: the queue
// is closed and empty, and the dropped lines are reported, or cannot be reported.
func (q *Queue) wrote(lost, told uint64, err error) (ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped += lost
	q.told = told
	close(q.writing)
	q.writing = nil
	q.ended = q.closed && len(q.waiting) == 0 && (q.dropped == q.told || err != nil)
	return q.ended
}

// WaitWritten blocks until the queued lines are written, at most for limit. It returns
// false if they are not.
func (q *Queue) WaitWritten(limit time.Duration) bool {
	q.mu.Lock()
	written := q.writing // nil if no write is in progress
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

// WaitWrittenSeldom waits like WaitWritten, at most for seldomTimeout, for a caller that
// delays a request. After a timeout it does not wait again for seldomPause.
func (q *Queue) WaitWrittenSeldom() {
	q.mu.Lock()
	skip := time.Now().Before(q.noWaitBefore)
	q.mu.Unlock()
	if skip || q.WaitWritten(seldomTimeout) {
		return
	}
	q.mu.Lock()
	q.noWaitBefore = time.Now().Add(seldomPause)
	q.mu.Unlock()
}

// Lost returns the number of dropped lines.
func (q *Queue) Lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Close blocks until all lines are written, at most for closeTimeout. If a write hangs, the
// goroutine continues until the write returns. Until then, lines are still accepted and
// written.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.wakeWriter()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-q.done:
	case <-timer.C:
	}
}
