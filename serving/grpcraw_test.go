package serving_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/servetrace/servetrace/test/servingtest"
)

// rawGRPC is a client that says on the wire what a test has it say, and nothing
// else: it resets no stream and answers no window.
type rawGRPC struct {
	t      testing.TB
	conn   net.Conn
	framer *http2.Framer
	stream uint32 // the last one opened
}

// raw connects and shakes hands; settings are the client's.
func (r *grpcRig) raw(settings ...http2.Setting) *rawGRPC {
	r.t.Helper()
	conn := r.dialTCP()
	c := &rawGRPC{t: r.t, conn: conn, framer: http2.NewFramer(conn, conn)}
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.must(io.WriteString(conn, http2.ClientPreface))
	c.ok(c.framer.WriteSettings(settings...))
	return c
}

// dialTCP only connects.
func (r *grpcRig) dialTCP() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.server.GRPCAddr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(servingtest.Patience)); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

func (c *rawGRPC) must(_ int, err error) { c.t.Helper(); c.ok(err) }

func (c *rawGRPC) ok(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// open sends the headers of a call, with more of them in pairs.
func (c *rawGRPC) open(method string, more ...string) {
	c.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method}, {Name: ":authority", Value: "localhost"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	} {
		c.ok(enc.WriteField(f))
	}
	for i := 0; i+1 < len(more); i += 2 {
		c.ok(enc.WriteField(hpack.HeaderField{Name: more[i], Value: more[i+1]}))
	}
	if c.stream++; c.stream%2 == 0 {
		c.stream++
	}
	rest := block.Bytes()
	first := rest[:min(len(rest), 16<<10)]
	rest = rest[len(first):]
	c.ok(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: first, EndHeaders: len(rest) == 0}))
	for len(rest) > 0 {
		next := rest[:min(len(rest), 16<<10)]
		rest = rest[len(next):]
		c.ok(c.framer.WriteContinuation(c.stream, len(rest) == 0, next))
	}
}

// message sends one of so many bytes on the last stream.
func (c *rawGRPC) message(size int, end bool) {
	c.t.Helper()
	m := make([]byte, frameHeader+size)
	binary.BigEndian.PutUint32(m[1:], uint32(size))
	c.ok(c.framer.WriteData(c.stream, end, m))
}

// end waits for the end of a stream and gives its gRPC code, or how it was reset.
func (c *rawGRPC) end(stream uint32) string {
	c.t.Helper()
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			c.t.Fatalf("stream %d: %v", stream, err)
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			return "GOAWAY " + f.ErrCode.String()
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return f.ErrCode.String()
			}
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if f.StreamID == stream && field.Name == "grpc-status" {
					return field.Value
				}
			}
		}
	}
}

// closed waits until the server has closed the connection.
func (c *rawGRPC) closed() {
	c.t.Helper()
	for {
		if _, err := c.framer.ReadFrame(); err != nil {
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				c.t.Error("the connection stays open")
			}
			return
		}
	}
}
