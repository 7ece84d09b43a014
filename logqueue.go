package servetrace

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// Bounds of the log's queue.
const (
	// logQueueBytes is how many bytes of lines wait for the log's reader. As many
	// again may be in the write that waits for it.
	logQueueBytes = 1 << 20
	// logFlushTimeout is how long the end of the log waits until all lines are
	// written.
	logFlushTimeout = 3 * time.Second
)

// logQueue passes lines on to a writer that may be slow, and does not wait for it.
//
//  1. Write puts a line into the queue, or counts it as dropped if the queue is
//     full.
//  2. One goroutine writes the lines in their order. If lines were dropped, it
//     writes a line with their number in their place.
//  3. close ends the goroutine when the queue is empty. From then on Write writes
//     by itself.
//
// It is safe for concurrent use.
type logQueue struct {
	to io.Writer
	// notice returns the line that tells how many lines were dropped.
	notice func(dropped uint64) []byte
	wake   chan struct{} // has one element if there is something to do
	done   chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	waiting []byte
	dropped uint64 // lines
	told    uint64 // lines of dropped that the log has told of
	// writing is closed when the lines are written that the goroutine has taken,
	// next when the lines are written that it takes after them.
	writing, next chan struct{}
	closed, ended bool
	rests         time.Time // settleSeldom does not wait before
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

// Write takes one line. It does not block before the end, and never fails. While
// lines are being dropped all are, so that those that follow the notice come after
// those that it counts.
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
	q.alarm()
	return len(line), nil
}

func (q *logQueue) alarm() {
	select {
	case q.wake <- struct{}{}:
	default: // the goroutine will look anyway
	}
}

// run writes lines whenever there are some, until the queue is closed and empty.
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

// take returns the lines that wait, and keeps the memory of those before for the
// next ones.
func (q *logQueue) take(before []byte) (lines []byte, dropped, told uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, q.waiting = q.waiting, before[:0]
	q.writing, q.next = q.next, make(chan struct{})
	return lines, q.dropped, q.told
}

// wrote books what has become of the lines that were taken. It reports whether the
// goroutine is to end: not before the log has told of dropped lines, unless it
// cannot.
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

// settle blocks until the lines that are in the queue are written, at most for
// limit. It reports whether they are.
func (q *logQueue) settle(limit time.Duration) bool {
	q.mu.Lock()
	written := q.writing // nil: the goroutine has nothing in hand
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

// settleSeldom is settle for callers that may be in a request: after one wait that
// was in vain it does not wait for a minute.
func (q *logQueue) settleSeldom() {
	q.mu.Lock()
	rests := time.Now().Before(q.rests)
	q.mu.Unlock()
	if rests || q.settle(lastWordsTimeout) {
		return
	}
	q.mu.Lock()
	q.rests = time.Now().Add(lastWordsRest)
	q.mu.Unlock()
}

// lost returns how many lines were dropped so far.
func (q *logQueue) lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// close blocks until all lines are written, at most for logFlushTimeout. A write
// that hangs for longer keeps the goroutine until it returns; lines are then still
// taken and written when it does.
func (q *logQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.alarm()
	timer := time.NewTimer(logFlushTimeout)
	defer timer.Stop()
	select {
	case <-q.done:
	case <-timer.C:
	}
}
