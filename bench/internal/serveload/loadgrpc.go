package serveload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
)

// grpcClient is a connection of gRPC that repeats a unary call, several at a time. It
// speaks HTTP/2 on one goroutine. A client of grpc-go costs as much as the server, and
// would hide half of every difference.
type grpcClient struct {
	conn    net.Conn
	out     *bufio.Writer
	in      *bufio.Reader
	framer  *http2.Framer
	decoder *hpack.Decoder

	headers []byte // of the first call; later calls refer to them
	again   []byte
	message []byte // with gRPC's prefix of five bytes
	want    []byte // the answer, with the prefix

	streams int // at a time
	next    uint32
	calls   map[uint32]*rpc
	free    []*rpc
	unread  int // bytes without a window update

	status string // of the current trailers
}

// rpc is a call in flight.
type rpc struct {
	began time.Time
	got   []byte
}

// window is the flow-control window of a stream and of the connection: much more than
// is ever in flight.
const window = 1 << 20

func dialGRPC(ctx context.Context, addr string, streams int) (client, error) {
	message, err := proto.Marshal(&testpb.SimpleRequest{Payload: &testpb.Payload{Body: echoPayload}})
	if err != nil {
		return nil, err
	}
	want, err := proto.Marshal(&testpb.SimpleResponse{Payload: &testpb.Payload{Body: echoPayload}})
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	first, again := grpcHeaders(addr)
	c := &grpcClient{
		conn: conn, out: bufio.NewWriter(conn), in: bufio.NewReader(conn),
		headers: first, again: again, message: delimited(message), want: delimited(want),
		streams: streams, next: 1, calls: map[uint32]*rpc{},
	}
	c.framer = http2.NewFramer(c.out, c.in)
	c.framer.SetReuseFrames()
	c.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == "grpc-status" {
			c.status = f.Value
		}
	})
	_, err = c.out.WriteString(http2.ClientPreface)
	err = errors.Join(err,
		c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}),
		c.framer.WriteWindowUpdate(0, window),
		c.out.Flush())
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// delimited adds gRPC's prefix to a message: uncompressed, and its length.
func delimited(message []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return append(b, message...)
}

// grpcHeaders returns the headers of grpc-go's client: first as text, which both sides
// remember, and then as references.
func grpcHeaders(host string) (first, again []byte) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	encode := func() []byte {
		block.Reset()
		for _, f := range [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", echoMethod}, {":authority", host},
			{"content-type", "application/grpc"}, {"user-agent", "servetrace-bench"}, {"te", "trailers"},
		} {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
		}
		return bytes.Clone(block.Bytes())
	}
	return encode(), encode()
}

// Close implements [io.Closer].
func (c *grpcClient) Close() error { return c.conn.Close() }

// run implements [client].
func (c *grpcClient) run(clock *clock) error {
	more := true
	for {
		for more && len(c.calls) < c.streams {
			var began time.Time
			if began, more = clock.begin(); more {
				if err := c.call(began); err != nil {
					return err
				}
			}
		}
		if len(c.calls) == 0 {
			return nil
		}
		// Flush before a read that may block.
		if c.in.Buffered() == 0 {
			if err := c.out.Flush(); err != nil {
				return err
			}
		}
		if err := c.readFrame(clock); err != nil {
			return err
		}
	}
}

// call writes a call.
func (c *grpcClient) call(began time.Time) error {
	r := new(rpc)
	if n := len(c.free); n > 0 {
		r, c.free = c.free[n-1], c.free[:n-1]
	}
	*r = rpc{began: began, got: r.got[:0]}
	id := c.next
	c.next += 2
	c.calls[id] = r
	if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.headers, EndHeaders: true}); err != nil {
		return err
	}
	c.headers = c.again
	return c.framer.WriteData(id, true, c.message)
}

// readFrame reads the next frame, and acknowledges it if HTTP/2 requires it.
func (c *grpcClient) readFrame(clock *clock) error {
	f, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.data(f)
	case *http2.HeadersFrame:
		c.status = ""
		if !f.HeadersEnded() {
			return errors.New("headers in several frames")
		}
		if _, err := c.decoder.Write(f.HeaderBlockFragment()); err != nil {
			return err
		}
		if f.StreamEnded() {
			return c.ended(f.StreamID, clock)
		}
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
	case *http2.RSTStreamFrame:
		delete(c.calls, f.StreamID)
		clock.wrong("the call was reset: %v", f.ErrCode)
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server leaves: %v", f.ErrCode)
	}
	return nil
}

func (c *grpcClient) data(f *http2.DataFrame) error {
	r := c.calls[f.StreamID]
	if r == nil {
		return fmt.Errorf("data for no call: %v", f)
	}
	r.got = append(r.got, f.Data()...)
	if c.unread += int(f.Length); c.unread < window/2 {
		return nil
	}
	grant := uint32(c.unread)
	c.unread = 0
	return c.framer.WriteWindowUpdate(0, grant)
}

// ended handles the trailers of a call.
func (c *grpcClient) ended(id uint32, clock *clock) error {
	r := c.calls[id]
	if r == nil {
		return fmt.Errorf("trailers for no call: stream %d", id)
	}
	delete(c.calls, id)
	c.free = append(c.free, r)
	if c.status != "0" || !bytes.Equal(r.got, c.want) {
		clock.wrong("answered with status %q and %q", c.status, r.got)
		return nil
	}
	clock.answered(r.began)
	return nil
}
