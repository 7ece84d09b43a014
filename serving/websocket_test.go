package serving_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

const (
	handshake = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Request-ID: id-1\r\n\r\n"

	wsReplica = "replica_handle_request" // without a status code, as in Ray
	wsGone    = "proxy_websocket_request ERROR() sc=1006 event(context.Canceled True)"
)

// echo answers each message until the client closes the socket.
var echo = serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"echo.v1"}})
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseNow() }()
	for {
		kind, message, err := c.Read(r.Context())
		if err != nil {
			return err
		}
		if err := c.Write(r.Context(), kind, message); err != nil {
			return err
		}
	}
})

// accepted has f do something with an open socket.
func accepted(f func(ctx context.Context, c *websocket.Conn) error) serving.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return err
		}
		defer func() { _ = c.CloseNow() }()
		return f(r.Context(), c)
	}
}

// open opens a socket with the library as a client.
func (r *rig) open(path string, opts *websocket.DialOptions) *websocket.Conn {
	r.t.Helper()
	if opts == nil {
		opts = &websocket.DialOptions{}
	}
	opts.HTTPClient = r.client
	c, resp, err := websocket.Dial(r.t.Context(), r.url(path), opts) //nolint:bodyclose // the library says that nobody need to
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.Header.Get(headerRequestID) == "" {
		r.t.Error("no request id in the 101")
	}
	r.t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

// rawSocket is a client that sends what it likes.
type rawSocket struct {
	*net.TCPConn
	r    *bufio.Reader
	head *http.Response
}

func (r *rig) openRaw() *rawSocket {
	r.t.Helper()
	c := r.dial(handshake).(*net.TCPConn)
	_ = c.SetReadDeadline(time.Now().Add(servingtest.Patience))
	s := &rawSocket{TCPConn: c, r: bufio.NewReader(c)}
	var err error
	s.head, err = http.ReadResponse(s.r, nil) //nolint:bodyclose // a 101 has none
	if err != nil || s.head.StatusCode != 101 {
		r.t.Fatalf("handshake: %+v, %v", s.head, err)
	}
	return s
}

// frame is a client's.
func frame(opcode byte, payload string) []byte {
	b := []byte{0x80 | opcode, 0x80 | byte(len(payload)), 0, 0, 0, 0} // a mask of zeros
	return append(b, payload...)
}

func closeFrame(code uint16) []byte {
	return frame(8, string(binary.BigEndian.AppendUint16(nil, code)))
}

// next reads a server's frame of less than 126 bytes; io.EOF at the end.
func (s *rawSocket) next() (opcode byte, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return 0, "", err
	}
	body := make([]byte, head[1])
	_, err = io.ReadFull(s.r, body)
	return head[0] & 0xf, string(body), err
}

// closing reads up to the server's close frame, and gives its code.
func (s *rawSocket) closing(t *testing.T) int {
	t.Helper()
	for {
		op, payload, err := s.next()
		if err != nil {
			t.Errorf("no close frame: %v", err)
			return 0
		}
		if op != 8 {
			continue
		}
		if len(payload) < 2 {
			return 1005
		}
		return int(binary.BigEndian.Uint16([]byte(payload)))
	}
}

// check holds the spans and the log line of one socket.
func (r *rig) check(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, digests(r.spans.take(r.t, len(want)))); diff != "" {
		r.t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestWebSocketEcho(t *testing.T) {
	r := startApps(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("D", echo), serving.WithRoutePrefix("/app")))
	c := r.open("/app/ws", &websocket.DialOptions{
		Subprotocols: []string{"echo.v1"},
		HTTPHeader:   http.Header{"X-Request-Id": {"id-1"}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
	})
	if c.Subprotocol() != "echo.v1" {
		t.Errorf("subprotocol %q", c.Subprotocol())
	}
	for _, text := range []string{"hello", strings.Repeat("large ", 5<<10)} {
		if err := c.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(t.Context()); err != nil || string(got) != text {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, "bye"); err != nil {
		t.Error(err)
	}
	spans := r.spans.take(t, 3)
	if diff := cmp.Diff([]string{"proxy_websocket_request OK sc=1000", routerPlain, wsReplica}, digests(spans)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	for _, s := range spans {
		if s.SpanContext().TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s is of another trace", s.Name())
		}
	}
	if name := spans[2].Name(); name != "proxy_websocket_request D WS /app" {
		t.Errorf("name %q", name)
	}
	for key, want := range map[string]string{"request_type": "websocket", "request_method": "WS", "http.method": "WS", "request_route_path": "/ws"} {
		if got, _ := attr(spans[2], key); got.AsString() != want {
			t.Errorf("%s is %q, want %q", key, got.AsString(), want)
		}
	}
	if line := r.access.take(t, "request", 1)[0]; line["status"] != 1000.0 || line["level"] != "INFO" || line["request_id"] != "id-1" || line["method"] != "WS" {
		t.Errorf("log line %v", line)
	}
	counts := r.counts(t)
	if n := counts["serve_num_http_requests_total{application=a,method=WS,route=/app,status_code=1000}"]; n != 1 {
		t.Errorf("%v sockets are counted", n)
	}
	if n := counts["serve_num_http_error_requests_total{application=a,error_code=1000,method=WS,route=/app}"]; n != 0 {
		t.Errorf("%v sockets are counted as errors", n)
	}
}

// TestWebSocketCloses: whoever sends a close frame first, its code is the span's.
func TestWebSocketCloses(t *testing.T) {
	serverCloses := func(code websocket.StatusCode, err error) http.Handler {
		return accepted(func(_ context.Context, c *websocket.Conn) error {
			_ = c.Close(code, "said by the server")
			return err
		})
	}
	for _, tt := range []struct {
		name    string
		handler http.Handler
		send    []byte // what the client sends, before it waits for a close frame
		told    int    // what the client gets as the code
		proxy   string
		level   string
	}{
		{"client 1000", echo, closeFrame(1000), 1000, "OK sc=1000", "INFO"},
		{"client 1001", echo, closeFrame(1001), 1001, "OK sc=1001", "INFO"},
		{"client 4000", echo, closeFrame(4000), 4000, "ERROR() sc=4000", "INFO"},
		{"client without a code", echo, frame(8, ""), 1005, "ERROR() sc=1005", "INFO"},
		{"client breaks the protocol", echo, []byte{0x83, 0x80, 0, 0, 0, 0}, 1002, "ERROR(failed to get reader: received unknown opcode opcode(3)) sc=1002", "ERROR"},
		{"server 1000", serverCloses(1000, nil), nil, 1000, "OK sc=1000", "INFO"},
		{"server 1001", serverCloses(1001, nil), nil, 1001, "OK sc=1001", "INFO"},
		{"server 1008", serverCloses(1008, nil), nil, 1008, "ERROR() sc=1008", "INFO"},
		{"server 1011, and it fails", serverCloses(1011, errBoom), nil, 1011, "ERROR(boom) sc=1011 event(*errors.errorString True)", "ERROR"},
		{"handler fails", accepted(func(context.Context, *websocket.Conn) error { return errBoom }), nil, 0, "ERROR(boom) sc=1006 event(*errors.errorString True)", "ERROR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, serving.Config{}, tt.handler)
			c := r.openRaw()
			if _, err := c.Write(tt.send); err != nil {
				t.Fatal(err)
			}
			if tt.told != 0 {
				if got := c.closing(t); got != tt.told {
					t.Errorf("the client was told %d, want %d", got, tt.told)
				}
				_, _ = c.Write(closeFrame(uint16(tt.told)))
			}
			got := digests(r.spans.take(t, 3))
			if !strings.HasPrefix(got[0], "proxy_websocket_request "+tt.proxy) {
				t.Errorf("proxy span %q, want %q", got[0], tt.proxy)
			}
			if line := r.access.take(t, "request", 1)[0]; line["level"] != tt.level {
				t.Errorf("log line %v", line)
			}
		})
	}
}

// TestSocketCascades: what the handler has called ends with the socket.
func TestSocketCascades(t *testing.T) {
	ended := make(chan error, 1)
	called := make(chan bool, 1)
	other := serving.NewDeployment("E", nil)
	call := serving.AddFunction(other, "wait", func(ctx context.Context, _ int) (int, error) {
		called <- true
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return 0, ctx.Err()
	})
	r := startApps(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("D", takenOver(func(req *http.Request, _ net.Conn) error {
		_, err := call.Call(req.Context(), 1)
		return err
	})), serving.WithDeployments(other)))
	c := r.openRaw()
	servingtest.Receive(t, "the call", called)
	_ = c.Close()
	if err := servingtest.Receive(t, "the call to end", ended); !errors.Is(err, serving.ErrClientGone) {
		t.Errorf("cause %v", err)
	}
}
