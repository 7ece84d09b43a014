package wholebody

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
)

// Lender gives bodies of one content, one for each time that a request is tried,
// and says when nobody reads it any more: net/http may read a body after the
// answer, and after the request was cancelled, close it while it reads it, twice,
// or never. Safe for concurrent use.
type Lender struct {
	pieces [][]byte
	size   int
	over   func()
	// users are the one who lends, bodies that are not closed, and reads. The last
	// to go calls over; after that nobody comes.
	users atomic.Int64
}

var errOver = errors.New("the body is closed")

// Lend gives a Lender of pieces, which are the content one behind the other. over
// is called once, by whom and when is not known: until then the pieces must not
// change. The caller has to call End.
func Lend(pieces [][]byte, over func()) *Lender {
	l := &Lender{pieces: pieces, over: over}
	for _, piece := range pieces {
		l.size += len(piece)
	}
	l.users.Store(1)
	return l
}

// Len is the length of a body, in bytes.
func (l *Lender) Len() int { return l.size }

// End says that no further body is wanted. It is called once.
func (l *Lender) End() { l.leave() }

// Body gives a body that reads all of the content. It is an error when all is
// over.
func (l *Lender) Body() (io.ReadCloser, error) {
	if !l.enter() {
		return nil, errOver
	}
	return &Pieces{of: l, rest: slices.Clone(l.pieces), left: l.size}, nil
}

// enter makes a user, unless the last has gone.
func (l *Lender) enter() bool {
	for {
		n := l.users.Load()
		if n == 0 {
			return false
		}
		if l.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *Lender) leave() {
	if l.users.Add(-1) == 0 {
		l.over()
	}
}

// Pieces is a body of a [Lender]. It is read by one goroutine at a time, and
// closed by any, also while it is read.
type Pieces struct {
	of     *Lender
	rest   net.Buffers
	left   int
	closed atomic.Bool
}

var _ whole = (*Pieces)(nil)

// Len is what is left to read, in bytes.
func (p *Pieces) Len() int { return p.left }

// Read fills b from as many pieces as it takes.
func (p *Pieces) Read(b []byte) (n int, err error) {
	if !p.enter() {
		return 0, errOver
	}
	defer p.of.leave()
	for n < len(b) && len(p.rest) > 0 {
		copied := copy(b[n:], p.rest[0])
		n += copied
		if p.rest[0] = p.rest[0][copied:]; len(p.rest[0]) == 0 {
			p.rest = p.rest[1:]
		}
	}
	p.left -= n
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// WriteTo writes what is left, by one call of the kernel's where w is a
// connection of package net and can take it all.
func (p *Pieces) WriteTo(w io.Writer) (int64, error) {
	if !p.enter() {
		return 0, errOver
	}
	defer p.of.leave()
	n, err := p.rest.WriteTo(w)
	p.left -= int(n)
	return n, err //nolint:wrapcheck // it is the connection's own
}

// Close ends the reader's part, when a read that is under way is done.
func (p *Pieces) Close() error {
	if p.closed.CompareAndSwap(false, true) {
		p.of.leave()
	}
	return nil
}

func (p *Pieces) enter() bool { return !p.closed.Load() && p.of.enter() }

func (*Pieces) isWhole() {}
