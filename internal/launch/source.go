package launch

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Reading costs as much as printing does: a plugin that prints without end
// would take a core of its host. So a source of too much is read with pauses,
// from a pipe that holds more, and is not in the poller meanwhile, which would
// be woken by each write.
const (
	// readBuffer is read at once, bytes.
	readBuffer = 64 << 10
	// pipeBytes is what a pipe holds from the first flood on, if the kernel
	// allows. Not before: a user may have only so much in all pipes
	// (pipe-user-pages-soft).
	pipeBytes = 1 << 20
	// A pause is restFactor times as long as the work since the last, so that
	// reading takes about a tenth of a core at most. maxPause bounds it, for a
	// plugin whose pipe is full waits meanwhile; so maxWork bounds the work.
	restFactor = 9
	minPause   = 2 * time.Millisecond
	maxPause   = 10 * time.Millisecond
	maxWork    = time.Millisecond
	// calmAfter is how long there must not be too much for a flood to be over.
	calmAfter = 100 * time.Millisecond
)

// source reads one of a plugin's descriptors: read and rest, in turns, from one
// goroutine. Close may come at any time.
type source struct {
	buf   []byte
	begun time.Time     // of the work on what was read last
	full  bool          // it filled buf: more is there at once
	work  time.Duration // since the last pause
	taken int           // bytes, likewise
	quiet time.Time     // since when there is not too much, in a flood

	mu     sync.Mutex
	file   *os.File // nil in a flood
	fd     int      // in a flood: the same pipe, not in the poller
	closed bool
}

// newSource takes over r, the end of a pipe.
func newSource(r *os.File) *source { return &source{buf: make([]byte, readBuffer), file: r} }

// read gives what there is, valid until the next call. It blocks until
// something is there, but for a flood, in which it may give nothing.
func (s *source) read() ([]byte, error) {
	s.begun = time.Now()
	n, err := s.readOnce()
	s.full = n == len(s.buf)
	s.taken += n
	if !s.full {
		s.begun = time.Now() // it may have waited
	}
	return s.buf[:n], err
}

func (s *source) readOnce() (int, error) {
	s.mu.Lock()
	file := s.file
	if file != nil {
		s.mu.Unlock()
		return file.Read(s.buf) // ends when the file is closed
	}
	defer s.mu.Unlock()
	if s.closed {
		return 0, os.ErrClosed
	}
	n, err := unix.Read(s.fd, s.buf) // never waits
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// rest is called after what was read has been dealt with. It pauses if there
// is too much.
func (s *source) rest(tooMuch bool) {
	s.work += time.Since(s.begun)
	flood := s.flooding()
	switch {
	case tooMuch && !flood:
		s.flood()
	case !flood:
		s.work, s.taken = 0, 0
		return
	case tooMuch:
		s.quiet = time.Time{}
	case s.quiet.IsZero():
		s.quiet = s.begun
	case s.begun.Sub(s.quiet) > calmAfter:
		s.calm()
	}
	if s.full && s.taken < pipeBytes && s.work < maxWork {
		return
	}
	time.Sleep(min(max(restFactor*s.work, minPause), maxPause))
	s.work, s.taken = 0, 0
}

func (s *source) flooding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file == nil
}

// flood takes the pipe out of the poller, by a descriptor of its own.
func (s *source) flood() {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, err := s.file.SyscallConn()
	if err != nil {
		return // closed
	}
	fd := -1
	_ = conn.Control(func(old uintptr) { // closed, or no descriptor left: it stays as it is
		widen(old, pipeBytes)
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err != nil {
			fd = -1
		}
	})
	if fd >= 0 {
		_ = s.file.Close() // nothing is lost: fd has what is in the pipe
		s.file, s.fd, s.quiet = nil, fd, time.Time{}
	}
}

// calm puts the pipe back into the poller.
func (s *source) calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.file = os.NewFile(uintptr(s.fd), "pipe")
	}
}

// Close ends reading.
func (s *source) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case s.file != nil:
		_ = s.file.Close() // read only
	default:
		_ = unix.Close(s.fd) // likewise
	}
	s.closed = true
}
