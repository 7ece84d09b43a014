package serving_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"

// takenOver writes the 101 by hand, as several libraries do, and has f do
// something with the connection, which nobody closes after it.
func takenOver(f func(r *http.Request, c net.Conn) error) serving.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return err
		}
		if _, err := rw.WriteString(switching); err != nil {
			return err
		}
		if err := rw.Flush(); err != nil {
			return err
		}
		return f(r, c)
	}
}

// untilOver waits for the end of the handler's context, and tells why.
func untilOver(why chan<- error) serving.HandlerFunc {
	return takenOver(func(r *http.Request, _ net.Conn) error {
		<-r.Context().Done()
		why <- context.Cause(r.Context())
		return r.Context().Err()
	})
}

// TestSocketOfIdleHandler: a handler that does not read learns by its context
// that the socket is over, and its client still sees a proper end.
func TestSocketOfIdleHandler(t *testing.T) {
	tests := []struct {
		name string
		do   func(c *rawSocket)
		told int // 0: nothing
		why  error
		want []string
	}{
		{
			name: "client closes",
			do:   func(c *rawSocket) { _, _ = c.Write(closeFrame(1000)) },
			told: 1000, why: serving.ErrSocketClosed,
			want: []string{"proxy_websocket_request OK sc=1000", routerPlain, wsReplica},
		}, {
			name: "client closes after pings",
			do: func(c *rawSocket) {
				_, _ = c.Write(append(append(frame(9, "ping"), frame(9, "ping")...), closeFrame(4001)...))
			},
			told: 4001, why: serving.ErrSocketClosed,
			want: []string{"proxy_websocket_request ERROR() sc=4001", routerPlain, wsReplica},
		}, {
			name: "client closes after a message, and does not wait",
			do: func(c *rawSocket) {
				_, _ = c.Write(append(frame(1, "unread"), closeFrame(1000)...))
				_ = c.CloseWrite()
			},
			told: 1000, why: serving.ErrSocketClosed,
			want: []string{"proxy_websocket_request OK sc=1000", routerPlain, wsReplica},
		}, {
			name: "client leaves",
			do:   func(c *rawSocket) { _ = c.Close() },
			why:  serving.ErrClientGone,
			want: []string{wsGone, routerPlain, wsReplica + " event(context.Canceled False)"},
		}, {
			name: "client closes one half",
			do:   func(c *rawSocket) { _ = c.CloseWrite() },
			why:  serving.ErrClientGone,
			want: []string{wsGone, routerPlain, wsReplica + " event(context.Canceled False)"},
		}, {
			name: "client is killed",
			do: func(c *rawSocket) {
				_ = c.SetLinger(0)
				_ = c.Close()
			},
			why:  serving.ErrClientGone,
			want: []string{wsGone, routerPlain, wsReplica + " event(context.Canceled False)"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			why := make(chan error, 1)
			r := start(t, serving.Config{}, untilOver(why))
			c := r.openRaw()
			if got := c.head.Header.Get(headerRequestID); got != "id-1" {
				t.Errorf("request id %q in the 101", got)
			}
			tt.do(c)
			if err := servingtest.Receive(t, "the context to end", why); !errors.Is(err, tt.why) {
				t.Errorf("cause %v, want %v", err, tt.why)
			}
			if tt.told != 0 {
				if got := c.closing(t); got != tt.told {
					t.Errorf("the client was told %d, want %d", got, tt.told)
				}
				if _, _, err := c.next(); err != io.EOF {
					t.Errorf("after the close frame: %v", err)
				}
			}
			r.check(tt.want...)
		})
	}
}

// TestSocketOfFailingHandler: the client is told, and nothing stays open.
func TestSocketOfFailingHandler(t *testing.T) {
	const proxy, replica = "proxy_websocket_request ERROR", "replica_handle_request"
	for _, tt := range []struct {
		name string
		end  func() error
		told int
		want []string
	}{
		{"error", func() error { return errBoom }, 1011, []string{
			proxy + "(boom) sc=1011 event(*errors.errorString True)", routerPlain, replica + " event(*errors.errorString False)",
		}},
		{"panic", func() error { panic("boom") }, 1011, []string{
			proxy + "(panic: boom) sc=1011 event(panic True)", routerPlain, replica + " event(panic False)",
		}},
		{"abort", func() error { panic(http.ErrAbortHandler) }, 0, []string{
			proxy + "(net/http: abort Handler) sc=1006 event(*errors.errorString True)", routerPlain, replica + " event(*errors.errorString False)",
		}},
		{"queue full elsewhere", func() error { return &serving.QueueFullError{Deployment: "E", Queued: 1, Limit: 1} }, 1013, []string{
			proxy + "(Request dropped due to backpressure (num_queued_requests=1, max_queued_requests=1).) sc=1013 event(*serving.QueueFullError True)",
			routerPlain, replica + " event(*serving.QueueFullError False)",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, serving.Config{}, takenOver(func(*http.Request, net.Conn) error { return tt.end() }))
			c := r.openRaw()
			if tt.told != 0 {
				if got := c.closing(t); got != tt.told {
					t.Errorf("the client was told %d, want %d", got, tt.told)
				}
			}
			if _, _, err := c.next(); err != io.EOF {
				t.Errorf("at the end: %v", err)
			}
			r.check(tt.want...)
		})
	}
}

// TestSocketPassedOn: a handler may leave the socket to goroutines of its own.
// The call lasts as long as the socket, and so does its slot.
func TestSocketPassedOn(t *testing.T) {
	var r *rig
	ended := make(chan error, 1)
	r = start(t, serving.Config{}, takenOver(func(req *http.Request, c net.Conn) error {
		go func() {
			defer func() { _ = c.Close() }()
			_, _ = c.Write([]byte{0x81, 2, 'h', 'i'})
			_, err := io.Copy(io.Discard, c)
			ended <- errors.Join(err, req.Context().Err())
		}()
		return nil
	}), serving.WithMaxOngoingRequests(1))
	c := r.openRaw()
	if _, got, err := c.next(); err != nil || got != "hi" {
		t.Fatalf("%q, %v", got, err)
	}
	answered := make(chan answer)
	go func() { answered <- r.get("/") }() // no upgrade: 500
	r.queued(1)
	if spans := r.spans.all(); len(digests(spans)) != 1 { // the router's
		t.Errorf("ended while the socket is open: %v", digests(spans))
	}
	_, _ = c.Write(closeFrame(1000))
	_ = c.CloseWrite()
	if err := servingtest.Receive(t, "the goroutine to end", ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	checkStatus(t, servingtest.Receive(t, "the slot", answered), 500)
	for _, d := range digests(r.spans.take(t, 6)) {
		if strings.HasPrefix(d, "proxy_websocket") && d != "proxy_websocket_request OK sc=1000" {
			t.Error(d)
		}
	}
}

// TestSocketRefused: a handshake that ends without a socket has the status that
// its client saw.
func TestSocketRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler http.Handler
		want    string
	}{
		{"with 403", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "not you", http.StatusForbidden)
		}), "HTTP/1.1 403 proxy_websocket_request ERROR() sc=403"},
		{"with another response", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a page")
		}), "HTTP/1.1 200 proxy_websocket_request OK sc=200"},
		{"with an error", serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errBoom }),
			"HTTP/1.1 500 proxy_websocket_request ERROR(boom) sc=500 event(*errors.errorString True)"},
		{"by hand", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, rw, _ := w.(http.Hijacker).Hijack()
			_, _ = rw.WriteString("HTTP/1.1 400 Bad Request\r\n")
			_, _ = rw.WriteString("X-Request-Id: somebody's\r\n\r\nsorry")
			_ = rw.Flush()
			_ = c.Close()
		}), "HTTP/1.1 400 proxy_websocket_request ERROR() sc=400"},
		{"by no word", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			_ = c.Close()
		}), " proxy_websocket_request ERROR() sc=500"},
		{"by words that are no HTTP", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			_, _ = io.WriteString(c, "HTTQ, something else\r\n\r\n")
			_ = c.Close()
		}), "HTTQ, something proxy_websocket_request ERROR() sc=500"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, serving.Config{}, tt.handler)
			c := r.dial(strings.Replace(handshake, "keep-alive, Upgrade", "close, upgrade", 1))
			_ = c.SetReadDeadline(time.Now().Add(servingtest.Patience))
			reply, _ := io.ReadAll(c)
			head := strings.SplitN(string(reply)+"  ", " ", 3)
			got := strings.TrimRight(head[0]+" "+head[1], " ") + " " + digests(r.spans.take(t, 3))[0]
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if strings.HasPrefix(string(reply), "HTTP/") && strings.Count(string(reply), "X-Request-Id: id-1\r\n") != 1 {
				t.Errorf("request id in %q", reply)
			}
			if strings.Contains(string(reply), "somebody") {
				t.Errorf("two request ids in %q", reply)
			}
		})
	}
}

// TestSocketRefusedByProxy: the proxy answers a handshake as any other request.
func TestSocketRefusedByProxy(t *testing.T) {
	r := start(t, serving.Config{}, echo, serving.WithMaxOngoingRequests(1), serving.WithMaxQueuedRequests(0))
	c := r.open("/", nil)
	for path, want := range map[string]string{"/": "HTTP/1.1 503 "} {
		second := r.dial(strings.Replace(handshake, "/ws", path, 1))
		got, err := bufio.NewReader(second).ReadString('\n')
		if err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

// TestSocketThroughReverseProxy: a deployment may stand before another server.
func TestSocketThroughReverseProxy(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = echo(w, r) // that the client has closed the socket
	}))
	defer backend.Close()
	to, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, serving.Config{}, httputil.NewSingleHostReverseProxy(to))
	c := r.open("/", nil)
	if err := c.Write(t.Context(), websocket.MessageText, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := c.Read(t.Context()); err != nil || string(got) != "hi" {
		t.Errorf("%q, %v", got, err)
	}
	if err := c.Close(websocket.StatusGoingAway, ""); err != nil {
		t.Error(err)
	}
	r.check("proxy_websocket_request OK sc=1001", routerPlain, wsReplica)
}

// TestOtherProtocols: a tunnel is passed through, and neither side is watched.
func TestOtherProtocols(t *testing.T) {
	r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if _, err := rw.WriteString("HTTP/1.1 101 OK\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\n"); err != nil {
			return err
		}
		_ = rw.Flush()
		said, err := io.ReadAll(rw) // the client ends its half, and waits
		_, _ = io.WriteString(c, strings.ToUpper(string(said)))
		return errors.Join(err, context.Cause(r.Context()), c.(interface{ CloseWrite() error }).CloseWrite())
	}))
	c := r.dial("POST / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\nwhat is ")
	reply := bufio.NewReader(c)
	head, err := http.ReadResponse(reply, nil) //nolint:bodyclose // a 101 has none
	if err != nil || head.StatusCode != http.StatusSwitchingProtocols || head.Header.Get(headerRequestID) == "" {
		t.Fatalf("%+v, %v", head, err)
	}
	_, _ = io.WriteString(c, "here")
	_ = c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(reply)
	if err != nil || string(got) != "WHAT IS HERE" {
		t.Errorf("%q, %v", got, err)
	}
	r.check("proxy_http_request OK sc=101", routerPlain, "replica_handle_request sc=101")
}

// TestNotHijackable: what asks for no other protocol, and what has been answered.
func TestNotHijackable(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			writeBegin(w)
		}
		_, _, err := w.(http.Hijacker).Hijack()
		_, _ = fmt.Fprint(w, errors.Is(err, http.ErrNotSupported), " ", err)
	}))
	if got := r.get("/").Body; got != "true hijack: the request asks for no other protocol by Upgrade and Connection: feature not supported" {
		t.Error(got)
	}
	if got := r.get("/begun", "Upgrade", "x", "Connection", "upgrade").Body; got != "beginfalse hijack: the response has begun, with status 200" {
		t.Error(got)
	}
	r.speakHTTP2()
	if got := r.get("/", "Upgrade", "websocket").Body; !strings.HasPrefix(got, "true ") {
		t.Error(got)
	}
}

// TestHijackedOnce: afterwards the response is nobody's.
func TestHijackedOnce(t *testing.T) {
	told := make(chan []error, 1)
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		w.WriteHeader(http.StatusTeapot)
		_, _, again := w.(http.Hijacker).Hijack()
		_, write := io.WriteString(w, "x")
		control := http.NewResponseController(w)
		told <- []error{again, write, control.Flush(), control.SetReadDeadline(time.Time{})}
	}))
	r.dial(handshake)
	for i, err := range servingtest.Receive(t, "the handler", told) {
		if !errors.Is(err, http.ErrHijacked) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestUpgradeHalfClosed: a client that closes its half right behind its request for
// another protocol is answered as from net/http alone, whenever the server notices it. It
// leaves no slot taken and no connection open, which the rig's shutdown would find.
func TestUpgradeHalfClosed(t *testing.T) {
	message := string(frame(2, "hello"))
	var copies sync.WaitGroup
	r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return err
		}
		echo := func() {
			_, _ = io.WriteString(c, switching)
			_, _ = io.Copy(c, rw)
			_ = c.Close()
		}
		if req.URL.Path == "/ws" {
			echo()
		} else {
			copies.Go(echo)
		}
		return nil
	}), serving.WithMaxOngoingRequests(100))
	for name, request := range map[string]string{
		"web socket":                     handshake,
		"other protocol":                 strings.Replace(handshake, "Upgrade: websocket", "Upgrade: foo", 1),
		"other protocol, in a goroutine": strings.NewReplacer("Upgrade: websocket", "Upgrade: foo", "/ws", "/on").Replace(handshake),
	} {
		for range 100 {
			c := r.dial(request + message)
			if err := errors.Join(c.(*net.TCPConn).CloseWrite(), c.SetReadDeadline(time.Now().Add(servingtest.Patience))); err != nil {
				t.Fatal(err)
			}
			reply, err := io.ReadAll(c)
			_, body, _ := strings.Cut(string(reply), "\r\n\r\n")
			if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 101 ") || body != message {
				t.Fatalf("%s: client saw %q, %v", name, reply, err)
			}
		}
	}
	copies.Wait()
}
