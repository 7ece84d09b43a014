package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/relay"
	"github.com/servetrace/servetrace/test/testplugin"
)

var insecureOption = grpc.WithTransportCredentials(insecure.NewCredentials())

// connect opens a connection to the relay's listener for a protocol.
func (r *rig) connect(t *testing.T, protocol string) net.Conn {
	t.Helper()
	return r.connectBy(t, protocol, new(net.Dialer))
}

func (r *rig) connectBy(t *testing.T, protocol string, dialer *net.Dialer) net.Conn {
	t.Helper()
	network, addr := "tcp", strings.TrimPrefix(r.endpoint(t, protocol), "http://")
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		network, addr = "unix", path
	}
	conn, err := dialer.DialContext(t.Context(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// closedByRelay waits until the relay closes a connection.
func closedByRelay(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the relay does not close the connection: %v", err)
	}
}

// TestConnectionLimit fills a relay with connections. Programs that send spans keep
// theirs, and an idle one is closed for each new one.
func TestConnectionLimit(t *testing.T) {
	r := startRig(t, "record", overHTTP, func(_ *host.Config, c *relay.Config) {
		c.MaxConnections, c.GRPCAddr = 5, "127.0.0.1:0"
	})
	client := r.client(t)
	if _, err := client.Export(t.Context(), requestOf("first", 1, 10)); err != nil {
		t.Fatal(err)
	}
	var idle []net.Conn
	for range 12 {
		idle = append(idle, r.connect(t, "http"))
	}
	for _, conn := range idle[:8] {
		closedByRelay(t, conn)
	}
	if _, err := client.Export(t.Context(), requestOf("second", 1, 10), grpc.WaitForReady(false)); err != nil {
		t.Errorf("the program with the first connection: %v", err)
	}
	if resp, body := r.post(t, "/v1/traces", typeProto, encoded(t, requestOf("third", 1, 10))); resp.StatusCode != http.StatusOK {
		t.Errorf("a new program: %d %s", resp.StatusCode, body)
	}
	s := r.Status()
	if s.Closed["connections"] < 8 || s.Connections["grpc"] != 1 {
		t.Errorf("status %+v, want 8 closed connections or more, and the first open", s)
	}
	if !strings.Contains(r.log.String(), "too many connections; an idle connection is closed") {
		t.Error("the log lacks the limit")
	}
}

// TestOnePeerLeavesConnectionsToOthers opens connections from one address, each with a
// request that does not end. Programs at other addresses keep theirs, and get new ones.
func TestOnePeerLeavesConnectionsToOthers(t *testing.T) {
	r := startRig(t, "record", overHTTP, func(_ *host.Config, c *relay.Config) {
		c.MaxConnections, c.GRPCAddr = 5, "127.0.0.1:0"
	})
	client := r.client(t)
	if _, err := client.Export(t.Context(), requestOf("first", 1, 10)); err != nil {
		t.Fatal(err)
	}
	own := r.Status().Senders[0].Name
	other := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 20 {
		openCall(r.connectBy(t, "grpc", other), 1000, 10)
	}
	testplugin.WaitFor(t, "16 closed connections", func() bool { return r.Status().Closed["connections"] >= 16 })
	if !slices.ContainsFunc(r.Status().Senders, func(s admin.RelaySender) bool { return s.Name == own }) {
		t.Errorf("senders %+v, want %s: its idle connection was closed for another peer", r.Status().Senders, own)
	}
	for i := range 3 {
		if resp, body := r.post(t, "/v1/traces", typeProto, encoded(t, requestOf(fmt.Sprint("new", i), 1, 10))); resp.StatusCode != http.StatusOK {
			t.Errorf("a new program: %d %s", resp.StatusCode, body)
		}
	}
	if !strings.Contains(r.log.String(), "too many connections; a") {
		t.Error("the log lacks the limit")
	}
}

// openCall begins a call of Export on a new connection and sends n bytes of a message
// of size bytes.
func openCall(conn net.Conn, size, n int) *http2.Framer {
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", coltracepb.TraceService_Export_FullMethodName}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true})
	message := append([]byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, n)...) //nolint:gosec // a size
	for len(message) > 0 {
		part := message[:min(len(message), 16<<10)]
		if err := framer.WriteData(1, false, part); err != nil {
			break // the relay has closed it
		}
		message = message[len(part):]
	}
	return framer
}

// TestReceiveLimit opens calls whose messages never end. The relay closes the
// connections that hold most, and others send on.
func TestReceiveLimit(t *testing.T) {
	r := startRig(t, "record", overTCP, func(_ *host.Config, c *relay.Config) {
		c.MaxRequestBytes, c.ReceiveBytes = 1<<20, 4<<20
	})
	client := r.client(t)
	small := r.connect(t, "grpc")
	openCall(small, 1<<20, 10)
	var large sync.WaitGroup
	for range 8 {
		conn := r.connect(t, "grpc")
		large.Go(func() { openCall(conn, 1<<20, 900<<10) })
	}
	large.Wait()
	testplugin.WaitFor(t, "closed connections", func() bool { return r.Status().Closed["bytes"] >= 3 })
	for i := range 20 {
		if _, err := client.Export(t.Context(), requestOf(fmt.Sprint("good", i), 10, 1000)); err != nil {
			t.Errorf("another program: %v", err)
		}
	}
	_ = small.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := io.Copy(io.Discard, small); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection with few bytes is closed")
	}
}

// falseCompressor is the name of a compression. It sets the compressed flag of messages,
// and does not compress them.
type falseCompressor string

func (c falseCompressor) Type() string { return string(c) }

func (falseCompressor) Do(w io.Writer, p []byte) error {
	_, err := w.Write(p)
	return err
}

// TestUnknownCompression sends requests that gRPC refuses without the relay's handler. They
// count as requests, are in the log once, and leave nothing behind at their connection.
func TestUnknownCompression(t *testing.T) {
	r := startRig(t, "record", overTCP, func(_ *host.Config, c *relay.Config) {
		c.MaxConnections, c.MaxRequestBytes, c.ReceiveBytes = 1, 1<<20, 4<<20
	})
	client := coltracepb.NewTraceServiceClient(r.dial(t, insecureOption, grpc.WithCompressor(falseCompressor("odd")))) //nolint:staticcheck // RegisterCompressor would make it known to the relay
	for range 100 {
		if _, err := client.Export(t.Context(), requestOf("c", 100, 2000)); status.Code(err) != codes.Unimplemented {
			t.Fatalf("answer %v, want UNIMPLEMENTED", err)
		}
	}
	if s := r.Status(); len(s.Closed) > 0 || s.Requests["grpc"]["UNIMPLEMENTED"] != 100 {
		t.Errorf("status %+v, want no closed connection and 100 requests with UNIMPLEMENTED", s)
	}
	if n := strings.Count(r.log.String(), "compression=odd"); n != 1 {
		t.Errorf("the log names the compression %d times, want once", n)
	}
	becomesIdle(t, r)
}

// TestFalseCompression sends a message with the compressed flag that is not compressed. The
// relay does not take it for a message without the flag.
func TestFalseCompression(t *testing.T) {
	r := startRig(t, "record", overTCP, func(_ *host.Config, c *relay.Config) { c.MaxConnections = 1 })
	client := coltracepb.NewTraceServiceClient(r.dial(t, insecureOption, grpc.WithCompressor(falseCompressor("gzip")))) //nolint:staticcheck // RegisterCompressor would make it known to the relay
	_, err := client.Export(t.Context(), requestOf("f", 1, 10))
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "gzip: invalid header") {
		t.Errorf("answer %v, want INTERNAL with the reason", err)
	}
	becomesIdle(t, r)
}

// TestShortDeadlines sends requests whose deadlines end at any time, also before the
// relay's handler. They leave nothing behind at their connection.
func TestShortDeadlines(t *testing.T) {
	r := startRig(t, "record", overTCP, func(_ *host.Config, c *relay.Config) { c.MaxConnections = 1 })
	client := r.client(t)
	if _, err := client.Export(t.Context(), requestOf("first", 1, 10)); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(30+i)*time.Microsecond)
		_, _ = client.Export(ctx, requestOf("d", 1, 10)) // some arrive in time
		cancel()
	}
	becomesIdle(t, r)
}

// becomesIdle waits until new connections replace the only connection of a relay, which
// allows no other. This needs an idle connection.
func becomesIdle(t *testing.T, r *rig) {
	t.Helper()
	name := r.Status().Senders[0].Name
	testplugin.WaitFor(t, "the end of the idle connection", func() bool {
		_ = r.connect(t, "grpc").Close()
		return !slices.ContainsFunc(r.Status().Senders, func(s admin.RelaySender) bool { return s.Name == name })
	})
}

// TestManyLargeRequestsInJSON sends requests that arrive faster than they are converted. The
// requests that wait for it count, so the relay closes connections, and others send on.
func TestManyLargeRequestsInJSON(t *testing.T) {
	r := startRig(t, "record", overHTTP, func(_ *host.Config, c *relay.Config) {
		c.MaxRequestBytes, c.ReceiveBytes = 4<<20, 8<<20
	})
	body := `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat(`{"name":"n"},`, 250_000) + `{}]}]}]}`
	header := fmt.Sprintf("POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	var all sync.WaitGroup
	for range 16 {
		conn := r.connect(t, "http")
		all.Go(func() {
			_, _ = io.WriteString(conn, header+body) // the relay may close it
			_, _ = conn.Read(make([]byte, 1))        // the answer, if there is one
		})
	}
	testplugin.WaitFor(t, "closed connections", func() bool { return r.Status().Closed["bytes"] >= 5 })
	if resp, answer := r.post(t, "/v1/traces", typeJSON, []byte("{}")); resp.StatusCode != http.StatusOK {
		t.Errorf("another program: %d %s", resp.StatusCode, answer)
	}
	all.Wait()
}

// TestSlowRequests begins requests that do not arrive in time.
func TestSlowRequests(t *testing.T) {
	r := startRig(t, "record", overHTTP, func(_ *host.Config, c *relay.Config) {
		c.GRPCAddr, c.ReadTimeout = "127.0.0.1:0", 300*time.Millisecond
	})
	t.Run("grpc", func(t *testing.T) {
		framer := openCall(r.connect(t, "grpc"), 1000, 10)
		decoder := hpack.NewDecoder(4096, nil)
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			headers, ok := frame.(*http2.HeadersFrame)
			if !ok {
				continue
			}
			fields, err := decoder.DecodeFull(headers.HeaderBlockFragment())
			if err != nil {
				t.Fatal(err)
			}
			if text := fmt.Sprint(fields); !strings.Contains(text, `"grpc-status" = "4"`) || !strings.Contains(text, "did not arrive within 300ms (SERVE_RELAY_READ_TIMEOUT)") {
				t.Errorf("answer %s, want DEADLINE_EXCEEDED", text)
			}
			return
		}
	})
	t.Run("http", func(t *testing.T) {
		conn := r.connect(t, "http")
		_, _ = io.WriteString(conn, "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		answer, _ := io.ReadAll(conn)
		if text := string(answer); !strings.HasPrefix(text, "HTTP/1.1 408 ") || !strings.Contains(text, "did not arrive within 300ms") {
			t.Errorf("answer %q, want 408", text)
		}
	})
	t.Run("no request", func(t *testing.T) {
		closedByRelay(t, r.connect(t, "http"))
		closedByRelay(t, r.connect(t, "grpc"))
	})
	t.Run("waiting longer", func(t *testing.T) {
		slow := startRig(t, "slow:900ms", overHTTP, func(_ *host.Config, c *relay.Config) { c.ReadTimeout = 300 * time.Millisecond })
		resp, body := slow.post(t, "/v1/traces", typeProto, encoded(t, requestOf("w", 1, 10)), relay.HeaderWait, relay.WaitDelivered)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("a sender that waits for the delivery: %d %s", resp.StatusCode, body)
		}
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	r := startRig(t, "record", overHTTP, func(_ *host.Config, c *relay.Config) {
		c.GRPCAddr, c.IdleTimeout = "127.0.0.1:0", 100*time.Millisecond
	})
	if _, err := r.client(t).Export(t.Context(), requestOf("i", 1, 10)); err != nil {
		t.Fatal(err)
	}
	testplugin.WaitFor(t, "the end of the connections", func() bool { return r.Status().Connections["grpc"] == 0 })
}

func TestStatus(t *testing.T) {
	r := startRig(t, "record", overBoth)
	client := r.client(t)
	for range 3 {
		if _, err := client.Export(t.Context(), requestOf("s", 5, 10)); err != nil {
			t.Fatal(err)
		}
	}
	for _, lost := range []string{"queue_full=3,encode=1", "", "queue_full=1,aged=2,x,=,encode=-1,refused=99999999999"} {
		r.post(t, "/v1/traces", typeProto, nil, relay.HeaderLost, lost)
	}
	r.post(t, "/v1/traces", typeProto, []byte("\x0a\xff"), relay.HeaderLost, "queue_full=100")
	s := r.Status()
	want := map[string]uint64{"queue_full": 4, "shutdown": 0, "encode": 1, "refused": 0, "other": 2}
	if diff := cmp.Diff(want, s.Lost); diff != "" {
		t.Errorf("lost spans (-want +got):\n%s", diff)
	}
	if s.Requests["grpc"]["OK"] != 3 || s.Requests["http"]["INVALID_ARGUMENT"] != 1 || s.Spans["grpc"] != 15 || len(s.Endpoints) != 3 {
		t.Errorf("status %+v", s)
	}
	if len(s.Senders) == 0 || s.Senders[0].Spans != 15 || s.Senders[0].Requests != 3 || !strings.HasPrefix(s.Senders[0].Name, "pid ") {
		t.Errorf("senders %+v", s.Senders)
	}
}
