package socket

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/wsframe"
)

// aheadBytes is the largest number of bytes that are read before the handler asks for them.
// If the client sends more bytes and then leaves, that is noticed only when the handler
// reads or writes.
const aheadBytes = 64 << 10

// readBytes is the largest number of bytes in one read. An inbox without bytes keeps at most
// this much memory in its buffer.
const readBytes = 4 << 10

// inbox has the bytes that the client has sent and the handler has not read. One goroutine
// runs readFrom, which adds bytes. The other methods are safe for concurrent use.
type inbox struct {
	webSocket bool          // the bytes are frames of RFC 6455, and are scanned
	end       *closing      // records the close frame and the end of the socket
	closed    chan struct{} // closed when the client's close frame has come
	ended     chan struct{} // closed when readFrom has returned

	mu      sync.Mutex
	changed *sync.Cond // broadcast when a field below changes
	frames  wsframe.Scanner
	behind  bool         // a close frame of the client has come, but the handler has not read the data before it
	buf     bytes.Buffer // the bytes that the handler has not read
	err     error        // error of the connection, which the handler gets after the bytes in buf; nil before
	by      time.Time    // deadline that the handler has set for reads; zero if it has set none
	timer   *time.Timer  // calls wake at that deadline; nil before the first deadline
}

func (in *inbox) init(webSocket bool, end *closing) {
	in.webSocket, in.end = webSocket, end
	in.closed, in.ended = make(chan struct{}), make(chan struct{})
	in.changed = sync.NewCond(&in.mu)
}

// readFrom reads conn until it fails or ends.
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

// space waits until the buffer has space or the socket was ended. It returns the number of
// bytes that may be read.
func (in *inbox) space() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.buf.Len() >= aheadBytes && in.end.ended() == nil {
		in.changed.Wait()
	}
	return min(readBytes, aheadBytes-in.buf.Len())
}

// put adds bytes that were read to the buffer, and records the error of the read.
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

// scanLocked looks for the client's close frame in b, and for the end of the connection in
// err. It starts the time that the handler has to answer. After a close frame, this
// answerTime starts when the handler has read the data before the frame. After the end of
// the connection, it starts at once, and again at each read of buffered bytes.
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

// read implements Conn.Read, which the handler calls.
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

// takeLocked moves buffered bytes to p, and returns their number.
func (in *inbox) takeLocked(p []byte) int {
	n, _ := in.buf.Read(p) // cannot fail, because buf has bytes or p is empty
	if in.buf.Len() == 0 && in.buf.Cap() > readBytes {
		in.buf = bytes.Buffer{}
	}
	if in.err != nil && in.webSocket {
		in.end.soon() // the handler still reads, so its time to finish starts again
	}
	in.changed.Broadcast()
	return n
}

// caughtUpLocked records that the handler has processed all received data, because it has
// read all bytes and asks for more. If a close frame has come, the handler's time to answer
// it starts.
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
	in.changed.Broadcast() // a waiting read must check the new deadline
	return nil
}

func (in *inbox) stopTimerLocked() {
	if in.timer != nil {
		in.timer.Stop()
	}
}

// wake makes a waiting read check its deadline.
func (in *inbox) wake() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.changed.Broadcast()
}

// discard drops the buffered bytes, and wakes waiting calls, because Conn.finish ends the
// socket. Bytes that come later are scanned for the close frame, and dropped.
func (in *inbox) discard() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.buf = bytes.Buffer{}
	in.stopTimerLocked()
	in.changed.Broadcast()
}
