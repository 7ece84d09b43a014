package socket

import (
	"net"
	"time"
)

// replyGrace is how long a close frame may take to be sent when the handler
// closes the socket without having answered the client's.
const replyGrace = 250 * time.Millisecond

// Close implements [net.Conn]; it is the handler's. If the client has sent a
// close frame and the handler none, one is sent: the client would take the
// socket for broken otherwise. While the socket is being ended for another
// reason, whoever does that closes the connection.
func (s *Conn) Close() error {
	s.mu.Lock()
	if s.left || s.closed {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.left = true
	if s.ending || s.o.Context.Err() != nil {
		s.mu.Unlock()
		return nil //nolint:nilerr // Finish is about to close it
	}
	if !s.peerClosed.IsZero() {
		_ = s.writes.Hurry(time.Now().Add(replyGrace)) // fails where conn is closed, and then so does the write
	}
	code, answer := s.code, !s.peerClosed.IsZero()
	s.mu.Unlock()
	if answer {
		s.wmu.Lock()
		s.sendClose(code, "")
		s.wmu.Unlock()
	}
	return s.shut()
}

// Finish ends the socket, unless it has ended, and returns when it has: within
// grace. The client gets a close frame with code and reason if the handler has
// sent none and is not in the midst of a frame, or its own code if it has sent
// one; and it has the time to answer, because a connection that is closed with
// something unread is reset, and the close frame may be lost with it. The
// handler's reads and writes fail from now on, with the context's cause.
//
// Nothing of the Conn runs when it returns, but for the handler's own calls.
func (s *Conn) Finish(code int, reason string, grace time.Duration) {
	defer s.ahead.Wait()
	by := time.Now().Add(grace)
	s.mu.Lock()
	if s.ending || s.closed {
		s.mu.Unlock()
		<-s.done
		return
	}
	s.ending = true
	if s.look != nil {
		s.look.Stop()
	}
	if !s.peerClosed.IsZero() {
		code, reason = s.code, ""
	}
	_ = s.writes.Hurry(by)           // these fail where conn is closed,
	_ = s.conn.SetReadDeadline(past) // and then so does what follows
	s.mu.Unlock()
	if s.speaksFrames() {
		s.wmu.Lock()
		s.sendClose(code, reason)
		s.wmu.Unlock()
		s.rmu.Lock()
		s.drain(by)
		s.rmu.Unlock()
	}
	_ = s.shut() // the socket is over either way
}

// Cut closes the connection at once, without a word.
func (s *Conn) Cut() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	_ = s.shut() // the socket is over either way
	s.ahead.Wait()
}

// shut closes the connection.
func (s *Conn) shut() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.closed = true
	if s.look != nil {
		s.look.Stop()
	}
	s.mu.Unlock()
	err := s.conn.Close()
	close(s.done)
	s.tell()
	return err
}
