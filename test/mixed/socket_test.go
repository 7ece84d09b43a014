package mixed

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/coder/websocket"
)

// socket is the version of plans for web sockets.
const socket = "a web socket"

// speak executes the plan through a web socket. It sends a first message, so that its
// client knows that it runs.
func (s *service) speak(w http.ResponseWriter, r *http.Request, p plan) error {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseNow() }() // the library has goroutines of its own
	ctx := r.Context()
	send := func() { _ = c.Write(ctx, websocket.MessageText, []byte("piece")) }
	send()
	receive := func() { wait(ctx, p.after/8) } // the client sends nothing but a close frame
	if err := s.steps(ctx, p, send, receive); err != nil {
		return err
	}
	if code, ok := map[ending]websocket.StatusCode{
		answer200: websocket.StatusNormalClosure, answer404: websocket.StatusPolicyViolation, answer503: websocket.StatusTryAgainLater,
	}[p.end]; ok {
		return c.Close(code, "")
	}
	return p.end.do(ctx)
}

// converse is the client of a web socket.
func (c *clients) converse(ctx context.Context, p plan) (view clientView) {
	header := http.Header{"X-Request-Id": {p.id()}}
	if p.parent != "" {
		header.Set("Traceparent", p.parent)
	}
	//nolint:bodyclose // the library reads it
	conn, resp, err := websocket.Dial(ctx, c.base+c.path(p), &websocket.DialOptions{
		HTTPHeader: header, HTTPClient: c.http[http1Fresh],
	})
	if err != nil {
		view.cut = true
		if resp != nil {
			view.status = c.books.name(strconv.Itoa(resp.StatusCode))
		}
		return view
	}
	defer func() { _ = conn.CloseNow() }()
	for {
		if _, _, err = conn.Read(ctx); err != nil {
			break
		}
		if p.leave == midStream {
			view.left = true
			if p.n%2 == 0 {
				_ = conn.Close(websocket.StatusGoingAway, "")
			}
			return view
		}
	}
	if code := websocket.CloseStatus(err); code != -1 {
		view.status = c.books.name(strconv.Itoa(int(code)))
	}
	view.left = errors.Is(err, context.DeadlineExceeded)
	return view
}
