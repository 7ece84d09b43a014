package serving_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// TestSocketAtShutdown: at the end of the drain, sockets that are still open are
// closed with 1001, whatever their handlers do, and within the bound.
func TestSocketAtShutdown(t *testing.T) {
	why := make(chan error, 1)
	for name, handler := range map[string]http.Handler{
		"reads by the library": echo,
		"waits":                untilOver(why),
		"reads": takenOver(func(_ *http.Request, c net.Conn) error {
			defer func() { _ = c.Close() }()
			_, err := io.Copy(io.Discard, c)
			return err
		}),
		"closes at once": takenOver(func(r *http.Request, c net.Conn) error {
			<-r.Context().Done()
			return c.Close()
		}),
		"passed on": takenOver(func(*http.Request, net.Conn) error { return nil }),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, serving.Config{}, handler)
			r.wantShutdown = "drain: 1 requests cut off, 0 handlers still running: context canceled"
			c := r.openRaw()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- r.server.Shutdown(ctx) }()
			if got := c.closing(t); got != 1001 {
				t.Errorf("the client was told %d", got)
			}
			_, _ = c.Write(closeFrame(1001))
			if err := servingtest.Receive(t, "Shutdown", stopped); err == nil {
				t.Error("nothing cut off")
			}
			got := digests(r.spans.take(t, 3))
			if got[0] != "proxy_websocket_request OK sc=1001" {
				t.Error(got)
			}
		})
	}
	if err := servingtest.Receive(t, "the waiting handler", why); !errors.Is(err, serving.ErrShuttingDown) {
		t.Errorf("cause %v", err)
	}
}

// TestSocketInDrain: one that its sides close in time is not cut off.
func TestSocketInDrain(t *testing.T) {
	r := start(t, serving.Config{}, echo)
	c := r.open("/", nil)
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(t.Context()) }()
	servingtest.Await(t, "the drain", r.server.Counter().Draining)
	if err := c.Write(t.Context(), websocket.MessageText, []byte("still there?")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := c.Read(t.Context()); err != nil || string(got) != "still there?" {
		t.Errorf("%q, %v", got, err)
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	if err := servingtest.Receive(t, "Shutdown", stopped); err != nil {
		t.Error(err)
	}
}

// TestSocketTimeout: the request timeout covers the socket's whole life.
func TestSocketTimeout(t *testing.T) {
	why := make(chan error, 1)
	r := start(t, serving.Config{RequestTimeout: roomyTimeout}, untilOver(why))
	c := r.openRaw()
	if err := servingtest.Receive(t, "the context to end", why); !errors.Is(err, serving.ErrRequestTimeout) {
		t.Errorf("cause %v", err)
	}
	if got := c.closing(t); got != 1011 {
		t.Errorf("the client was told %d", got)
	}
	_, _ = c.Write(closeFrame(1011))
	r.check("proxy_websocket_request ERROR() sc=1011 event(context.DeadlineExceeded True)", routerPlain,
		wsReplica+" event(context.DeadlineExceeded False)")
	if line := r.access.take(t, "request", 1)[0]; line["level"] != "WARN" {
		t.Errorf("log line %v", line)
	}
}

// TestSocketStalls: a client that takes nothing of what is written loses the
// socket, and the slot is free again.
func TestSocketStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrote := make(chan error, 1)
		r := startFake(t, stalls, serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			if r.Header.Get("Upgrade") == "" {
				return nil
			}
			return takenOver(func(_ *http.Request, c net.Conn) error {
				message := append([]byte{0x82, 127, 0, 0, 0, 0, 0, 1 << 4, 0, 0}, make([]byte, 1<<20)...)
				for {
					if _, err := c.Write(message); err != nil {
						wrote <- err
						return err
					}
				}
			})(w, r)
		}), serving.WithMaxOngoingRequests(1))
		resp, err := http.ReadResponse(bufio.NewReader(r.dial(handshake)), nil) //nolint:bodyclose // a 101 has none
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("handshake: %+v, %v", resp, err)
		}
		if err := servingtest.Receive(t, "the write to fail", wrote); err == nil {
			t.Error("no error")
		}
		checkStatus(t, r.get("/"), 200)
		for _, line := range r.access.take(t, "request", 2) { // in either order: the slot is free first
			if line["method"] == "WS" && (line["level"] != "WARN" || line["error"] != "client stalled" || line["status"] != 1006.0) {
				t.Errorf("log line %v", line)
			}
		}
	})
}

// TestSocketPauses: neither an idle socket nor a slow reader is stalled.
func TestSocketPauses(t *testing.T) {
	t.Parallel() // it waits for the most part: the kernel's buffers know no fake time
	const limit = time.Second
	r := start(t, serving.Config{StallTimeout: limit}, echo)
	c := r.open("/", nil)
	c.SetReadLimit(-1)
	for range 2 {
		<-time.After(limit + limit/4)
		if err := c.Write(t.Context(), websocket.MessageBinary, make([]byte, 30<<10)); err != nil {
			t.Fatal(err)
		}
		<-time.After(limit + limit/4)
		if _, got, err := c.Read(t.Context()); err != nil || len(got) != 30<<10 {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

// TestSocketByteByByte: a client that sends so, and floods with pings.
func TestSocketByteByByte(t *testing.T) {
	r := start(t, serving.Config{}, echo)
	c := r.openRaw()
	var sent []byte
	for range 200 {
		sent = append(sent, frame(9, "ping")...)
	}
	sent = append(append(sent, frame(1, "hello")...), closeFrame(1000)...)
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for i := range sent {
			if _, err := c.Write(sent[i : i+1]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	pongs := 0
	for {
		op, payload, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if op == 10 {
			pongs++
		}
		if op == 1 && payload != "hello" {
			t.Errorf("echo %q", payload)
		}
		if op == 8 {
			break
		}
	}
	if pongs != 200 {
		t.Errorf("%d pongs", pongs)
	}
	r.check("proxy_websocket_request OK sc=1000", routerPlain, wsReplica)
}

// TestSocketFloodOfIdleHandler: nothing that a client sends to a handler that
// does not read is lost, nor is more of it kept than the bound.
func TestSocketFloodOfIdleHandler(t *testing.T) {
	const pings = 50_000
	read := make(chan struct{})
	got := make(chan int, 1)
	r := start(t, serving.Config{}, takenOver(func(_ *http.Request, c net.Conn) error {
		defer func() { _ = c.Close() }()
		<-read
		n, err := io.Copy(io.Discard, c)
		got <- int(n)
		return err
	}))
	c := r.openRaw()
	flood := make([]byte, 0, pings*10)
	for range pings {
		flood = append(flood, frame(9, "ping")...)
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		_, _ = c.Write(flood)
		_, _ = c.Write(closeFrame(1000))
		_ = c.CloseWrite()
	})
	<-time.After(300 * time.Millisecond) // it is read ahead
	close(read)
	if n := servingtest.Receive(t, "the flood", got); n != len(flood)+8 {
		t.Errorf("%d bytes, want %d", n, len(flood)+8)
	}
	r.check("proxy_websocket_request OK sc=1000", routerPlain, wsReplica)
}

// TestSocketOfSlowHandler: messages that came before the client's close frame are
// the handler's to read, however long it takes for each.
func TestSocketOfSlowHandler(t *testing.T) {
	const messages = 3
	got := make(chan int, 1)
	r := start(t, serving.Config{}, accepted(func(ctx context.Context, c *websocket.Conn) error {
		n := 0
		defer func() { got <- n }()
		for ; ; n++ {
			if _, _, err := c.Read(ctx); err != nil {
				return err
			}
			select {
			case <-time.After(300 * time.Millisecond): // longer than the runtime waits for a read
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}))
	c := r.openRaw()
	for range messages {
		_, _ = c.Write(frame(1, "a row"))
	}
	_, _ = c.Write(closeFrame(1000))
	if code := c.closing(t); code != 1000 {
		t.Errorf("the client was told %d", code)
	}
	if n := servingtest.Receive(t, "the handler", got); n != messages {
		t.Errorf("it has read %d messages of %d", n, messages)
	}
	r.check("proxy_websocket_request OK sc=1000", routerPlain, wsReplica)
}

// TestSocketDeadlines: the handler's deadlines count for the handler, and do not
// keep the runtime from seeing the client leave.
func TestSocketDeadlines(t *testing.T) {
	type step struct {
		text string
		err  error
	}
	steps := make(chan step, 4)
	proceed := make(chan struct{})
	r := start(t, serving.Config{}, takenOver(func(req *http.Request, c net.Conn) error {
		buf := make([]byte, 100)
		read := func() {
			n, err := c.Read(buf)
			steps <- step{string(buf[:n]), err}
		}
		_ = c.SetReadDeadline(time.Now().Add(shortTimeout))
		read() // times out
		<-proceed
		read() // still timed out, though there is something
		_ = c.SetDeadline(time.Time{})
		read()
		_ = c.SetDeadline(time.Now().Add(shortTimeout))
		<-req.Context().Done() // long after it
		return nil
	}))
	c := r.openRaw()
	if s := servingtest.Receive(t, "the timeout", steps); !errors.Is(s.err, os.ErrDeadlineExceeded) {
		t.Errorf("%+v", s)
	}
	_, _ = c.Write(frame(1, "hi"))
	<-time.After(300 * time.Millisecond) // it is read ahead
	close(proceed)
	if s := servingtest.Receive(t, "the timeout", steps); !errors.Is(s.err, os.ErrDeadlineExceeded) {
		t.Errorf("%+v", s)
	}
	if s := servingtest.Receive(t, "the message", steps); s.err != nil || s.text != string(frame(1, "hi")) {
		t.Errorf("%+v", s)
	}
	_ = c.Close()
	r.check(wsGone, routerPlain, wsReplica+" event(context.Canceled False)")
}

// TestSocketsConcurrentSafe ends many sockets at random, in every way that
// there is, and finds every slot free and every span complete.
func TestSocketsConcurrentSafe(t *testing.T) {
	const sockets, slots = 200, 10
	r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		return [...]serving.HandlerFunc{
			echo,
			accepted(func(ctx context.Context, c *websocket.Conn) error {
				<-c.CloseRead(ctx).Done()
				return ctx.Err()
			}),
			accepted(func(_ context.Context, c *websocket.Conn) error {
				return c.Close(websocket.StatusNormalClosure, "")
			}),
			takenOver(func(*http.Request, net.Conn) error { return errBoom }),
			takenOver(func(r *http.Request, _ net.Conn) error {
				<-r.Context().Done()
				return nil
			}),
			takenOver(func(*http.Request, net.Conn) error { return nil }),
			takenOver(func(_ *http.Request, c net.Conn) error { return c.Close() }),
		}[rand.IntN(7)](w, r)
	}), serving.WithMaxOngoingRequests(slots))
	var clients sync.WaitGroup
	todo := make(chan int)
	for range slots {
		clients.Go(func() {
			for range todo {
				r.endSomehow()
			}
		})
	}
	for i := range sockets {
		todo <- i
	}
	close(todo)
	clients.Wait()
	r.spans.take(t, 3*sockets)
	r.access.take(t, "request", sockets)
	servingtest.Await(t, "every slot to be free", func() bool {
		return r.ongoing() == 0
	})
}

func (r *rig) endSomehow() {
	c, err := net.Dial("tcp", r.server.Addr().String())
	if err != nil {
		r.t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, handshake)
	_ = c.SetReadDeadline(time.Now().Add(servingtest.Patience))
	if _, err := io.ReadFull(c, make([]byte, 12)); err != nil {
		r.t.Error(err)
		return
	}
	switch rand.IntN(5) {
	case 0:
		_ = c.(*net.TCPConn).SetLinger(0)
	case 1:
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	case 2:
		_, _ = c.Write(closeFrame(1000))
		_, _ = io.Copy(io.Discard, c)
	case 3:
		_, _ = fmt.Fprint(c, "rubbish")
	}
}
