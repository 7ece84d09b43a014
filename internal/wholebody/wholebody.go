// Package wholebody has net/http write a request's body that lies in memory to
// its connection at once. By itself it copies one in pieces of 32 KiB, each of
// which is a call of the kernel's and wakes the back end.
//
// A transport's DialContext gives its connections through [Conn], and a request's
// body is a [Reader], or has one embedded, or is of a [Lender]. Either without the
// other works as it does in net/http, and so does TLS, which cuts what it encrypts
// into pieces of its own.
package wholebody

import (
	"bytes"
	"io"
	"net"
)

// Reader is the body of a request: of what net/http makes of a bytes.Reader
// nobody else can look into. Not safe for concurrent use. The zero Reader is
// empty.
type Reader struct{ bytes.Reader }

// NewReader gives a body that reads content, which must not change until
// net/http has let go of it: that is when the body is closed, which may be after
// the answer.
func NewReader(content []byte) *Reader { return &Reader{*bytes.NewReader(content)} }

// Close does nothing; who has to know when a body is done with has its own.
func (*Reader) Close() error { return nil }

func (*Reader) isWhole() {}

// whole is a Reader, or what has one embedded.
type whole interface {
	io.WriterTo
	Len() int
	isWhole()
}

// Conn is a connection whose ReadFrom writes a [Reader] by one Write.
type Conn struct{ net.Conn }

var _ io.ReaderFrom = Conn{}

// ReadFrom is given what net/http makes of a body: the reader with a limit.
func (c Conn) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if ok {
		if body, ok := limited.R.(whole); ok && int64(body.Len()) <= limited.N {
			n, err := body.WriteTo(c.Conn)
			limited.N -= n
			return n, err //nolint:wrapcheck // callers look at it as at the connection's own
		}
	}
	return io.Copy(struct{ io.Writer }{c.Conn}, r) //nolint:wrapcheck // as above
}
