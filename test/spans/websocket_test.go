package spans

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"github.com/servetrace/servetrace/serving"
)

// socketRequest is a web socket to /ws at deployment D.
func socketRequest(id string) call {
	c := request(id)
	c.protocol, c.verb, c.path = "websocket", "WS", "/ws"
	return c
}

// dial opens a web socket to the server, under a request id.
func (r *rig) dial(id string, header ...string) *websocket.Conn {
	r.t.Helper()
	h := http.Header{"X-Request-Id": {id}}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	//nolint:bodyclose // there is none after an upgrade
	c, resp, err := websocket.Dial(ctx, "ws://"+r.server.Addr().String()+"/ws", &websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		r.t.Fatal(err)
	}
	if got := resp.Header.Get("X-Request-Id"); got != id {
		r.t.Errorf("the handshake has the request id %q, the request %q", got, id)
	}
	return c
}

// accepted has a handler speak through a web socket.
func accepted(speak func(ctx context.Context, c *websocket.Conn) error) serving.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return err
		}
		defer func() { _ = c.CloseNow() }()
		return speak(r.Context(), c)
	}
}

// echo answers messages until the client closes.
func echo(ctx context.Context, c *websocket.Conn) error {
	for {
		kind, message, err := c.Read(ctx)
		if err != nil {
			return err
		}
		if err := c.Write(ctx, kind, message); err != nil {
			return err
		}
	}
}

// Test12WebSocket: the spans of a socket, over all its life, and the user's in it.
func Test12WebSocket(t *testing.T) {
	var r *rig
	r = one(t, serving.Config{}, accepted(func(ctx context.Context, c *websocket.Conn) error {
		ownSpan(ctx, r)
		return echo(ctx, c)
	}))
	c := r.dial("ws", "traceparent", sampledParent)
	if err := c.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := c.Read(t.Context()); err != nil || string(got) != "hello" {
		t.Errorf("the answer is %q, %v", got, err)
	}
	if err := c.Close(websocket.StatusNormalClosure, "done"); err != nil {
		t.Errorf("close: %v", err)
	}
	ws := socketRequest("ws")
	root := r.check("ws", ws.proxy(1000, ws.called(noStatus, user("own"))))
	if got := root.Parent().SpanID().String(); got != parentSpan {
		t.Errorf("the proxy span's parent is %s", got)
	}
}

// Test21WebSocketCloseCodes: 1000 and 1001 are OK, from whichever side, any other
// code is an error. In Ray all that clients close are errors.
func Test21WebSocketCloseCodes(t *testing.T) {
	for name, code := range map[string]websocket.StatusCode{
		"1000": websocket.StatusNormalClosure, "1001": websocket.StatusGoingAway,
		"1008": websocket.StatusPolicyViolation, "1011": websocket.StatusInternalError, "4000": 4000,
	} {
		want := socketRequest(name).proxy(int(code), socketRequest(name).called(noStatus))
		t.Run(name+" by the client", func(t *testing.T) {
			r := one(t, serving.Config{}, accepted(echo))
			c := r.dial(name)
			_ = c.Close(code, "")
			r.check(name, want)
		})
		t.Run(name+" by the server", func(t *testing.T) {
			r := one(t, serving.Config{}, accepted(func(_ context.Context, c *websocket.Conn) error {
				return c.Close(code, "")
			}))
			c := r.dial(name)
			_, _, err := c.Read(t.Context())
			if websocket.CloseStatus(err) != code {
				t.Errorf("the client saw %v, want the code %d", err, code)
			}
			r.check(name, want)
		})
	}
}

// Test21WebSocketEnds: the other ends of a socket.
func Test21WebSocketEnds(t *testing.T) {
	t.Run("the handler fails", func(t *testing.T) {
		r := one(t, serving.Config{}, upgraded(func() error { return errBoom }))
		c := r.dial("fails")
		_, _, err := c.Read(t.Context())
		if websocket.CloseStatus(err) != websocket.StatusInternalError {
			t.Errorf("the client saw %v, want the code 1011", err)
		}
		ws := socketRequest("fails")
		r.check("fails", ws.proxy(1011, ws.router(ws.replica(noStatus).raised("*errors.errorString", "boom"))).
			failed("boom").raised("*errors.errorString", "boom"))
	})
	t.Run("the handler panics", func(t *testing.T) {
		r := one(t, serving.Config{}, upgraded(func() error { panic("boom") }))
		if _, _, err := r.dial("panics").Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusInternalError {
			t.Errorf("the client saw %v, want the code 1011", err)
		}
		ws := socketRequest("panics")
		r.check("panics", ws.proxy(1011, ws.router(ws.replica(noStatus).panicked("panic", "panic: boom"))).
			failed("panic: boom").panicked("panic", "panic: boom"))
	})
	t.Run("the handler closes without a close frame", func(t *testing.T) {
		// Ray notes the code 1000 and an error.
		r := one(t, serving.Config{}, accepted(func(context.Context, *websocket.Conn) error { return nil }))
		c := r.dial("closes")
		if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != -1 {
			t.Errorf("the client saw %v, want the end of the connection", err)
		}
		ws := socketRequest("closes")
		r.check("closes", ws.proxy(1006, ws.called(noStatus)).failed(""))
	})
	t.Run("the client is gone without a word", func(t *testing.T) {
		r := one(t, serving.Config{}, accepted(echo))
		c := r.dial("gone")
		if err := c.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = c.CloseNow()
		ws := socketRequest("gone")
		r.check("gone", ws.proxy(1006, ws.router(ws.replica(noStatus).canceled())).failed("").canceled())
	})
	t.Run("its time is over", func(t *testing.T) {
		r := one(t, serving.Config{RequestTimeout: soon}, accepted(func(ctx context.Context, _ *websocket.Conn) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		c := r.dial("late")
		if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusInternalError {
			t.Errorf("the client saw %v, want the code 1011", err)
		}
		ws := socketRequest("late")
		r.check("late", ws.proxy(1011, ws.router(ws.replica(noStatus).timedOut())).failed("").timedOut())
	})
}

// upgraded returns a handler that takes the connection over by itself, leaves it open and
// returns the result of end.
func upgraded(end func() error) serving.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		_, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return err
		}
		accept := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
			"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(accept[:]) + "\r\n\r\n")
		if err := rw.Flush(); err != nil {
			return err
		}
		return end()
	}
}
