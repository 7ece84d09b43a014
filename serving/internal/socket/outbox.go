package socket

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/serving/internal/stall"
	"github.com/servetrace/servetrace/serving/internal/wsframe"
)

// stepBytes is the largest number of bytes in one write to the connection. Larger writes
// of the handler are divided, and the stall limit applies to each part. Otherwise it would
// cut off a client that reads slowly.
const stepBytes = 64 << 10

// outbox writes the bytes of the handler to the client. Its methods are safe for concurrent
// use.
type outbox struct {
	conn      net.Conn
	webSocket bool           // frames of RFC 6455 follow the head, and are scanned
	end       *closing       // records the close frame and the end of the socket
	limit     stall.Deadline // deadline of writes
	status    atomic.Int32   // status of the response; 0 if there is none yet

	mu     sync.Mutex // held during a write
	head   *head      // the head of the response, as far as the handler has written it; nil once it is sent
	frames wsframe.Scanner
	broken bool   // a write has failed, so that no frame can follow
	late   []byte // a close frame to send after the handler's current frame; nil if there is none
}

func (out *outbox) init(c net.Conn, o Options, end *closing) {
	out.conn, out.webSocket, out.end = c, o.WebSocket, end
	out.limit = stall.New(o.Stall, false, c.SetWriteDeadline)
	out.status.Store(int32(o.Status)) //nolint:gosec // it has three digits
	if o.Status == 0 {
		out.head = &head{name: o.Header, value: o.Value}
	}
}

// write implements Conn.Write, which the handler calls.
func (out *outbox) write(p []byte) (n int, err error) {
	out.mu.Lock()
	defer out.mu.Unlock()
	if why := out.end.ended(); why != nil && out.late == nil { // if a close frame is to follow, the handler may end its own frame
		return 0, why
	}
	if out.head != nil {
		n, err = out.writeHead(p)
	} else {
		n, err = out.send(p)
	}
	if why := out.end.ended(); err != nil && why != nil {
		return n, why // the write failed because of the deadline that close has set
	}
	if out.late != nil && out.frames.AtBoundary() {
		frame := out.late
		out.late = nil
		_, _ = out.send(frame) // after an error the client cannot answer, and finish waits for closeGrace
	}
	return n, err
}

// writeHead adds p to the head of the response. When the head is whole, it sends the head
// and the bytes that follow it.
func (out *outbox) writeHead(p []byte) (int, error) {
	first, rest, whole := out.head.add(p)
	if !whole {
		return len(p), nil
	}
	out.head = nil
	out.status.Store(int32(statusOf(first))) //nolint:gosec // it has three digits
	if _, err := out.step(first); err != nil {
		return 0, err
	}
	if _, err := out.send(rest); err != nil {
		return 0, err
	}
	return len(p), nil
}

// send writes bytes of frames to the connection, in parts of stepBytes.
func (out *outbox) send(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		var m int
		m, err = out.sendStep(p[:min(len(p), stepBytes)])
		n += m
		p = p[m:]
	}
	return n, err
}

// sendStep writes bytes of frames to the connection, and records a close frame among them.
func (out *outbox) sendStep(p []byte) (int, error) {
	_, before := out.frames.Closed()
	if out.webSocket {
		out.frames.Scan(p)
	}
	code, now := out.frames.Closed()
	closes := now && !before
	if closes {
		out.end.noteSent(code)
	}
	n, err := out.step(p)
	if closes && err != nil {
		out.end.noteUnsent()
	}
	return n, err
}

// step writes to the connection within the stall limit.
func (out *outbox) step(p []byte) (int, error) {
	out.limit.Begin(0)
	n, err := out.conn.Write(p)
	if err != nil {
		out.broken = true
		if out.limit.Expired() {
			out.end.reportEnd(Stalled)
		}
	}
	return n, err
}

// close sends a close frame before the deadline by, unless a close frame was sent before. If
// the handler has begun a frame, write sends the close frame after it. close reports
// whether the client may answer with a close frame.
func (out *outbox) close(code int, reason string, by time.Time) bool {
	_ = out.limit.Hurry(by) // fails only for a closed connection, on which writes fail, too
	out.mu.Lock()
	defer out.mu.Unlock()
	const switchingProtocols = 101
	if !out.webSocket || out.status.Load() != switchingProtocols || out.broken || out.frames.Broken() {
		return false
	}
	if _, sent := out.frames.Closed(); sent {
		return true
	}
	frame := wsframe.AppendClose(nil, code, reason)
	if !out.frames.AtBoundary() {
		out.late = frame
		return true
	}
	_, err := out.send(frame)
	return err == nil
}

// closeWrite closes the writing side by f, after a write that is under way.
func (out *outbox) closeWrite(f func() error) error {
	out.mu.Lock()
	defer out.mu.Unlock()
	if err := out.end.ended(); err != nil {
		return err
	}
	return f()
}
