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
	// maxBytes is the largest number of bytes of the lines in the queue. The lines that are
	// being written do not count, and may have as many bytes again.
	maxBytes = 1 << 20
	// closeTimeout is the longest time for which Close waits until all lines are written.
	closeTimeout = 3 * time.Second
	// seldomTimeout is the longest time for which WaitWrittenSeldom waits. If this time was
	// not enough, WaitWrittenSeldom does not wait at all for the time seldomPause.
	seldomTimeout = 100 * time.Millisecond
	seldomPause   = time.Minute
)

// Queue passes lines to a writer that may be slow, without waiting for it. It is safe for
// concurrent use.
type Queue struct {
	to     io.Writer
	notice func(dropped uint64) []byte // returns a line that reports the number of dropped lines
	wake   chan struct{}               // holds a value if the goroutine has work
	done   chan struct{}               // closed when the goroutine has ended

	mu      sync.Mutex
	waiting []byte // the lines in the queue
	dropped uint64 // number of lines that were dropped
	told    uint64 // number of dropped lines that notices have reported
	// writing is closed when the lines that the goroutine has taken from the queue are
	// written. It is nil if there are none. next is closed when the lines that it takes next
	// are written.
	writing, next chan struct{}
	closed        bool      // Close was called
	ended         bool      // the goroutine has ended, or is about to end
	noWaitBefore  time.Time // WaitWrittenSeldom does not wait before this time
}

// New returns a Queue that writes to the writer to. notice must return a line that reports
// the number of dropped lines. The caller must call Close.
func New(to io.Writer, notice func(dropped uint64) []byte) *Queue {
	q := &Queue{
		to: to, notice: notice,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		next: make(chan struct{}),
	}
	go q.run() // ends after Close
	return q
}

// Write puts a line into the queue, or drops it if the queue is full. After a dropped line,
// it drops all lines until the notice is written, so that the notice stands in their place.
// Write does not block and never fails. But when the goroutine has ended after Close, it
// writes the line directly.
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

// wakeWriter makes the goroutine check the queue.
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

// take removes all lines from the queue and returns them, with the numbers of dropped and of
// reported lines. The queue reuses the memory of before, the lines of the previous call.
func (q *Queue) take(before []byte) (lines []byte, dropped, told uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, q.waiting = q.waiting, before[:0]
	q.writing, q.next = q.next, make(chan struct{})
	return lines, q.dropped, q.told
}

// wrote records the result of a write: the number of lines that were lost, the number of
// dropped lines that notices have reported so far, and the error of the write. It returns
// true if the goroutine must end, because the queue is closed and empty, and all dropped
// lines are reported or cannot be reported.
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

// WaitWritten blocks until all lines that are in the queue now are written, at most for
// limit. It returns false if they are not written by then.
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

// Close ends the goroutine when all lines are written, and waits for its end, at most for
// closeTimeout. If a write blocks for longer, the goroutine ends later. Until it has ended,
// Write still puts lines into the queue.
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
