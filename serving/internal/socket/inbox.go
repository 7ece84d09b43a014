package socket

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/wsframe"
)

// aheadBytes bounds the bytes that are read before the handler asks for them. If the client
// sends more bytes and then leaves, the end is noticed only when the handler reads or
// writes.
const aheadBytes = 64 << 10

// readBytes is the number of bytes in one read, and the buffer size of an idle socket.
const readBytes = 4 << 10

// inbox has the bytes that the client has sent and the handler has not read. One goroutine
// puts bytes in; the other methods are safe for concurrent use.
type inbox struct {
	webSocket bool
	end       *closing
	closed    chan struct{} // closed at the client's close frame
	ended     chan struct{} // closed when the goroutine has returned

	mu      sync.Mutex
	changed *sync.Cond // signalled when a field below changes
	frames  wsframe.Scanner
	behind  bool // a close frame of the client has come, but the handler has not read the data before it
	buf     bytes.Buffer
	err     error       // error of the connection, after the bytes in buf
	by      time.Time   // the handler's deadline; zero for none
	timer   *time.Timer // wakes the handler at its deadline; nil if none was set
}

func (in *inbox) init(webSocket bool, end *closing) {
	in.webSocket, in.end = webSocket, end
	in.closed, in.ended = make(chan struct{}), make(chan struct{})
	in.changed = sync.NewCond(&in.mu)
}

// readFrom reads conn until its end.
func (in *inbox) readFrom(conn io.Reader) {
	defer close(in.ended)
	b := make([]byte, readBytes)
	for {
		n, err := conn.Read(b[:in.space()])
		in.put(b[:n], err)
		if err != nil {
			return
		}
	}
}

// space waits until there is space in the buffer, and returns how much may be read.
func (in *inbox) space() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.buf.Len() >= aheadBytes && in.end.ended() == nil {
		in.changed.Wait()
	}
	return min(readBytes, aheadBytes-in.buf.Len())
}

// put adds bytes that were read, and the error of the read.
func (in *inbox) put(b []byte, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.end.ended() == nil {
		in.buf.Write(b)
	}
	if in.webSocket {
		in.scanLocked(b, err)
	}
	in.err = err
	in.changed.Broadcast()
}

// scanLocked looks for the end of the socket, and starts answerTime. After a close frame,
// answerTime starts when the handler has read the data before the frame. After the end of
// the connection, it starts at once, and again at each read of remaining bytes.
func (in *inbox) scanLocked(b []byte, err error) {
	_, before := in.frames.Closed()
	in.frames.Scan(b)
	code, now := in.frames.Closed()
	if now && !before {
		in.end.noteReceived(code)
		close(in.closed)
		in.behind = in.frames.HasData()
	}
	if now && !before && !in.behind || err != nil {
		in.end.soon()
	}
}

// read is the handler's Read.
func (in *inbox) read(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for {
		ended := in.end.ended()
		switch {
		case ended != nil:
			return 0, ended
		case !in.by.IsZero() && !time.Now().Before(in.by):
			return 0, os.ErrDeadlineExceeded
		case in.buf.Len() > 0 || len(p) == 0:
			return in.takeLocked(p), nil
		case in.err != nil:
			return 0, in.err
		}
		in.caughtUpLocked()
		in.changed.Wait()
	}
}

// takeLocked copies buffered bytes to p.
func (in *inbox) takeLocked(p []byte) int {
	n, _ := in.buf.Read(p) // fails only for an empty buffer
	if in.buf.Len() == 0 && in.buf.Cap() > readBytes {
		in.buf = bytes.Buffer{}
	}
	if in.err != nil && in.webSocket {
		in.end.soon() // the handler reads on
	}
	in.changed.Broadcast()
	return n
}

// caughtUpLocked records that the handler has processed all bytes, because it has read
// them and asks for more.
func (in *inbox) caughtUpLocked() {
	in.frames.Restart()
	if in.behind {
		in.behind = false
		in.end.soon()
	}
}

func (in *inbox) setDeadline(t time.Time) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if err := in.end.ended(); err != nil {
		return err
	}
	in.by = t
	in.stopTimerLocked()
	if !t.IsZero() {
		in.timer = time.AfterFunc(time.Until(t), in.wake)
	}
	in.changed.Broadcast() // the deadline may have passed
	return nil
}

func (in *inbox) stopTimerLocked() {
	if in.timer != nil {
		in.timer.Stop()
	}
}

// wake makes waiting calls check the fields again.
func (in *inbox) wake() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.changed.Broadcast()
}

// discard drops the buffered bytes, and wakes waiting calls, because the socket was ended.
// Later bytes are scanned and dropped.
func (in *inbox) discard() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.buf = bytes.Buffer{}
	in.stopTimerLocked()
	in.changed.Broadcast()
}
