package datadogexporter

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/servetrace/servetrace/pluginsdk"
)

// payload is one request to the agent, not yet sent. Its body is the coder's
// memory.
type payload struct {
	path   string
	by     maker
	body   []byte
	chunks int
	// readers counts the request's bodies that have not been closed: net/http may
	// read one after its answer.
	readers *atomic.Int32
}

// attachTo makes the payload the request's body. A nil Idempotency-Key lets
// net/http send it once more when a connection has gone stale, and is not sent.
func (p payload) attachTo(req *http.Request) {
	req.ContentLength = int64(len(p.body))
	req.GetBody = func() (io.ReadCloser, error) {
		p.readers.Add(1)
		return &reader{Reader: *bytes.NewReader(p.body), readers: p.readers}, nil
	}
	req.Body, _ = req.GetBody()
	req.Header["Idempotency-Key"] = nil
}

// reader is a body that counts itself out when net/http has done with it.
type reader struct {
	bytes.Reader
	readers *atomic.Int32
	closed  atomic.Bool
}

func (r *reader) Close() error {
	if !r.closed.Swap(true) {
		r.readers.Add(-1)
	}
	return nil
}

// protocol writes chunks as an agent reads them, one payload after another. The
// calls are begin, then for each chunk beginChunk, span for each of its spans and
// endChunk, and then end.
type protocol interface {
	path() string
	// begin starts a payload of spans of one maker, in the memory of buf.
	begin(buf []byte, by maker)
	beginChunk(c *chunk)
	span(d described, f form)
	endChunk()
	size() int
	end() []byte
}

// coder turns batches into payloads. It is for one call at a time.
type coder struct {
	mapper
	v04 v04
	v1  v1
	buf []byte
	// edited is the last batch that processors had changed.
	edited []byte
	// readers are those of the last payload.
	readers *atomic.Int32
}

func newCoder(rules *mapping) *coder {
	return &coder{mapper: *newMapper(rules), readers: new(atomic.Int32)}
}

// maxKept bounds the memory, in bytes, that a coder keeps of a payload, and of a
// batch.
const maxKept = 4 << 20

// request is the batch's bytes, until the next call. What is read from them is
// in the payload, but for a maker's language, which is copied.
func (c *coder) request(b *pluginsdk.Batch) []byte {
	if !b.Edited() {
		return b.Bytes()
	}
	if cap(c.edited) > maxKept {
		c.edited = nil
	}
	c.edited = b.AppendTo(c.edited[:0])
	return c.edited
}

// encode writes the first chunks into one payload: at most so many, of one maker,
// for the agent takes environment, version and host of a payload from one of its
// spans, and no more when it has so many bytes.
func (c *coder) encode(chunks []chunk, most, full int, f form) (payload, error) {
	if c.readers.Load() != 0 || cap(c.buf) > maxKept {
		c.buf, c.readers = nil, new(atomic.Int32) // who still reads it keeps it
	}
	c.form, c.texts = f, c.texts[:0]
	var to protocol = &c.v04
	if f.v1 {
		to = &c.v1
	}
	by := chunks[0].by
	p := payload{path: to.path(), by: c.batch.makers[by], readers: c.readers}
	to.begin(c.buf, p.by)
	for p.chunks < min(most, len(chunks)) && chunks[p.chunks].by == by && (p.chunks == 0 || to.size() < full) {
		if err := c.chunk(to, &chunks[p.chunks]); err != nil {
			return payload{}, err
		}
		p.chunks++
	}
	p.body = to.end()
	c.buf = p.body
	return p, nil
}

func (c *coder) chunk(to protocol, of *chunk) error {
	to.beginChunk(of)
	for i := of.first; i >= 0; i = c.batch.spans[i].next {
		at := &c.batch.spans[i]
		s, ok := c.read(at.body, of.trace)
		if !ok {
			return errMalformed
		}
		to.span(c.describe(s, at, i == of.first), c.form)
	}
	to.endChunk()
	return nil
}
