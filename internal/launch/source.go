package launch

import (
	"io"
	"time"
)

// Reading costs as much as printing does: a plugin that prints without end
// would take a core of its host. So a source of too much is read with pauses,
// from a pipe that holds more.
const (
	// readBuffer is read at once, bytes.
	readBuffer = 64 << 10
	// pipeBytes is what a pipe holds from then on, if the kernel allows. Not
	// before: a user may have only so much in all pipes (pipe-user-pages-soft).
	pipeBytes = 1 << 20
	// A pause is restFactor times as long as the work since the last: reading
	// takes at most about a tenth of a core. At most maxPause, or a pipe that
	// could not be made larger would let the plugin wait for long.
	restFactor = 9
	minPause   = time.Millisecond
	maxPause   = 10 * time.Millisecond
)

// source reads one of a plugin's descriptors. It is used by one goroutine.
type source struct {
	r    io.Reader
	buf  []byte
	wide bool // the pipe was made larger, or can not be

	begun time.Time     // of the work on what was read last
	full  bool          // it filled buf: more is there at once
	work  time.Duration // since the last pause
	taken int           // bytes, likewise
}

func newSource(r io.Reader) *source { return &source{r: r, buf: make([]byte, readBuffer)} }

// read gives what there is, valid until the next call.
func (s *source) read() ([]byte, error) {
	s.begun = time.Now()
	n, err := s.r.Read(s.buf)
	s.full = n == len(s.buf)
	s.taken += n
	if !s.full {
		s.begun = time.Now() // it may have waited
	}
	return s.buf[:n], err
}

// rest is called after what was read has been dealt with. It pauses if it was
// too much.
func (s *source) rest(tooMuch bool) {
	s.work += time.Since(s.begun)
	if tooMuch && !s.wide {
		s.wide = true
		widen(s.r, pipeBytes)
	}
	if tooMuch && s.full && s.taken < pipeBytes {
		return
	}
	if tooMuch {
		time.Sleep(min(max(restFactor*s.work, minPause), maxPause))
	}
	s.work, s.taken = 0, 0
}
