package socket

import (
	"errors"

	"os"
	"time"
)

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// Read implements [net.Conn].
func (s *Conn) Read(p []byte) (int, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	s.rmu.Lock()
	defer s.rmu.Unlock()
	if err := s.resume(); err != nil {
		return 0, err
	}
	if len(s.buf) > 0 {
		n := copy(p, s.buf)
		s.buf = s.buf[n:]
		if len(s.buf) == 0 {
			s.buf = nil
		}
		return n, nil
	}
	if s.readErr != nil {
		return 0, s.readErr
	}
	s.catchUp()
	n, err := s.conn.Read(p)
	s.passed(p[:n], err)
	return n, s.explain(err)
}

// enter counts a Read in, and stops whoever reads ahead.
func (s *Conn) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.endedLocked(); err != nil {
		return err
	}
	s.readers++
	s.reads++
	if s.reading {
		_ = s.conn.SetReadDeadline(past) // fails where conn is closed, and then so does the read
	}
	return nil
}

// leave has somebody look whether the handler comes back.
func (s *Conn) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
	if s.readers == 0 && !s.armed && s.look != nil && !s.ending && !s.closed {
		s.armed = true
		s.look.Reset(readAheadAfter)
	}
}

// resume gives conn the handler's deadline back. It is called with rmu held,
// so that nobody reads ahead any more.
func (s *Conn) resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.endedLocked(); err != nil {
		return err
	}
	if s.moved {
		s.moved = false
		_ = s.conn.SetReadDeadline(s.readBy) // fails where conn is closed, and then so does the read
	}
	if (len(s.buf) > 0 || s.readErr != nil) && !s.readBy.IsZero() && !time.Now().Before(s.readBy) {
		return os.ErrDeadlineExceeded // what has been read ahead waits
	}
	return nil
}

// catchUp is called when the handler has taken all that there was, and wants
// more: so it has dealt with it. It is called with rmu held.
func (s *Conn) catchUp() {
	s.in.Restart()
	if _, closed := s.in.Closed(); !closed {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind {
		s.behind = false
		s.reachedLocked()
	}
}

// explain is err as the handler sees it: once the socket is being ended, that
// is why, and not our own deadline.
func (s *Conn) explain(err error) error {
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended := s.endedLocked(); ended != nil {
		return ended
	}
	return err
}

// passed looks at what a read gave. It is called with rmu held.
func (s *Conn) passed(b []byte, err error) {
	if !s.o.WebSocket {
		return
	}
	if _, before := s.in.Closed(); !before {
		s.in.Scan(b)
		if code, now := s.in.Closed(); now {
			s.noteClose(code, true, s.in.HasData())
		}
	}
	if err != nil && !isTimeout(err) {
		s.tell()
	}
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// tick looks whether the handler reads, and does it in its place if not. It
// runs while the handler is active, and in a read loop of an idle socket never.
func (s *Conn) tick() {
	s.mu.Lock()
	s.armed = false
	switch closedFor := time.Since(s.peerClosed); {
	case s.ending, s.closed:
		s.mu.Unlock()
	case !s.peerClosed.IsZero() && !s.behind && closedFor >= readAheadAfter:
		s.mu.Unlock()
		s.tell() // it has had the time to answer
	case !s.peerClosed.IsZero() && !s.behind:
		s.againLocked(readAheadAfter - closedFor)
		s.mu.Unlock()
	case s.readers > 0, s.reading: // leave calls for the next look
		s.mu.Unlock()
	case s.seen != s.reads:
		s.seen = s.reads
		s.againLocked(readAheadAfter)
		s.mu.Unlock()
	default:
		s.reading, s.moved = true, true
		_ = s.conn.SetReadDeadline(time.Time{}) // fails where conn is closed, and then so does the read
		s.ahead.Add(1)
		s.mu.Unlock()
		s.readAhead()
	}
}

func (s *Conn) againLocked(after time.Duration) {
	s.armed = true
	s.look.Reset(after)
}

// readAhead reads until the handler does, until the bound, or to the end. A
// close frame after messages that the handler has still to read is not the end:
// they are its to read. That of the connection is.
func (s *Conn) readAhead() {
	defer s.ahead.Done()
	s.rmu.Lock()
	defer s.rmu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reading = false
	}()
	for s.wanted() {
		if len(s.buf) == cap(s.buf) {
			s.buf = append(make([]byte, 0, min(max(512, 4*len(s.buf)), readAheadBytes)), s.buf...)
		}
		n, err := s.conn.Read(s.buf[len(s.buf):cap(s.buf)])
		b := s.buf[len(s.buf) : len(s.buf)+n]
		s.buf = s.buf[:len(s.buf)+n]
		s.passed(b, err)
		if _, closed := s.in.Closed(); closed && !s.in.HasData() {
			s.tell() // nobody is about to read it
			return
		}
		if err != nil && !isTimeout(err) {
			s.readErr = err
			return
		}
	}
}

// wanted reports whether there is a reason to read ahead, and space for it. It
// is called with rmu held.
func (s *Conn) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readErr == nil && len(s.buf) < readAheadBytes && s.readers == 0 && !s.ending && !s.closed
}

// drain reads on, for nobody, until the client's close frame or the end of the
// connection. It is called with rmu held, by Finish.
func (s *Conn) drain(by time.Time) {
	if s.readErr != nil {
		return
	}
	_ = s.conn.SetReadDeadline(by) // fails where conn is closed, and then so does the read
	scratch := make([]byte, 4<<10)
	for {
		if _, closed := s.in.Closed(); closed {
			return
		}
		n, err := s.conn.Read(scratch)
		s.passed(scratch[:n], nil)
		if err != nil {
			return
		}
	}
}
