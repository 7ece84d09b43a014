package httpproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/socket"
	"github.com/servetrace/servetrace/serving/internal/wsframe"
)

// upgrade is the wish of a request to change the protocol, and the contexts for that. The
// frames of a web socket are watched; bytes of other protocols are not.
type upgrade struct {
	webSocket bool                    // the request asks for a web socket
	outer     context.Context         // context of the request; the end of the socket does not end it
	end       context.CancelCauseFunc // ends the handler's context, which is derived from outer
	ended     chan struct{}           // closed when the socket has ended
}

// upgradeOf returns the upgrade that a request asks for, or nil. The method CONNECT counts as
// an upgrade. A request of HTTP/2 has none, because net/http offers no hijacking there.
//
// Source: https://www.rfc-editor.org/rfc/rfc9110#section-7.8
func upgradeOf(r *http.Request) *upgrade {
	to := r.Header["Upgrade"]
	switch {
	case r.ProtoMajor != 1:
		return nil
	case len(to) > 0 && hasToken(r.Header["Connection"], "upgrade"):
		return &upgrade{webSocket: r.Method == http.MethodGet && hasToken(to, "websocket")}
	case r.Method == http.MethodConnect:
		return new(upgrade)
	}
	return nil
}

// hasToken reports whether one of the comma-separated lists has the token. Case does not
// matter.
func hasToken(lists []string, token string) bool {
	for _, list := range lists {
		for part := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.Trim(part, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// handlerContext returns the context for the handler. It ends when ctx or the socket ends. If
// the request asks for no upgrade, it is ctx.
func (u *upgrade) handlerContext(ctx context.Context) context.Context {
	if u == nil {
		return ctx
	}
	u.outer, u.ended = ctx, make(chan struct{})
	ctx, u.end = context.WithCancelCause(ctx)
	return ctx
}

// cancel ends the context that handlerContext made. It must be called when the request is
// over.
func (u *upgrade) cancel() {
	if u != nil {
		u.end(nil)
	}
}

func (u *upgrade) protocol() spans.Protocol {
	if u != nil && u.webSocket {
		return spans.WebSocket
	}
	return spans.HTTP
}

// Hijack implements [http.Hijacker] for requests that ask for another protocol. The
// connection that it returns watches the frames of a web socket: see package socket.
func (p *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.phase > begun:
		return nil, nil, p.takenLocked()
	case p.upgrade == nil:
		return nil, nil, fmt.Errorf("hijack: the request asks for no other protocol by Upgrade and Connection: %w", http.ErrNotSupported)
	case p.checkRequestLocked() != nil: // the runtime has ended the request
		return nil, nil, cause.Of(p.x.ctx)
	case p.phase == begun && p.status != http.StatusSwitchingProtocols:
		return nil, nil, fmt.Errorf("hijack: the response has begun, with status %d", p.status)
	}
	conn, rw, err := p.pace.controller.Hijack()
	if err != nil {
		return nil, nil, err
	}
	buffered, _ := rw.Peek(rw.Reader.Buffered()) // cannot fail, because the bytes are already in the buffer
	s := socket.New(conn, socket.Options{
		Context:    p.x.ctx,
		Over:       p.upgrade.socketEnded,
		CloseFrame: func() (int, string) { return closeFrameOf(cause.Of(p.x.ctx)) },
		WebSocket:  p.upgrade.webSocket,
		Status:     p.status,
		Header:     headerRequestID,
		Value:      p.x.identity.ID,
		Buffered:   buffered,
		Stall:      p.x.proxy.stall,
	})
	p.phase, p.socket = hijacked, s
	rw.Reader.Reset(s)
	rw.Writer.Reset(s)
	return s, rw, nil
}

// socketEnded ends the handler's context when the socket has ended. The cause depends on the
// way in which it ended.
func (u *upgrade) socketEnded(end socket.End) {
	defer close(u.ended)
	switch end {
	case socket.Gone:
		u.end(cause.ErrClientGone)
	case socket.Stalled:
		u.end(cause.ErrClientStalled)
	case socket.Left:
		u.end(cause.ErrSocketLeft)
	default:
		u.end(cause.ErrSocketClosed)
	}
}

// taken returns the connection that the handler has taken over, or nil. why is the reason
// for which the request has ended, nil if it has not.
func (p *response) taken() (s *socket.Conn, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why = p.why; why == nil && p.x.ctx.Err() != nil {
		why = cause.Of(p.x.ctx)
	}
	return p.socket, why
}

// endSocket ends a socket, unless it has ended. err is the error with which its handler
// returned, nil if the handler still runs. why is the reason for which the request has
// ended, nil if it has not. endSocket returns the error that ended the socket.
func endSocket(s *socket.Conn, err, why error) error {
	first := err
	if why != nil {
		first = cause.Heavier(err, why)
	}
	s.Finish(closeFrameOf(first))
	return socketResult(s, err, why)
}

// closeFrameOf returns the code and the reason of the close frame for a socket that the error
// why ends. Code 0 means no close frame, because the client has left, or the handler
// returned nil or panicked with http.ErrAbortHandler.
func closeFrameOf(why error) (code int, reason string) {
	if why == nil || cause.IsAbort(why) || errors.Is(why, cause.ErrClientGone) {
		return 0, ""
	}
	return closeCodeOf(why)
}

// closeCodeOf translates an error that ended a request into the code and the reason of a web
// socket's close frame.
func closeCodeOf(err error) (code int, reason string) {
	switch {
	case errors.Is(err, cause.ErrShuttingDown):
		return wsframe.CodeGoingAway, cause.ErrShuttingDown.Error()
	case errors.Is(err, cause.ErrReplicaStopped):
		return wsframe.CodeRestart, err.Error()
	case cause.IsCancellation(err):
		return wsframe.CodeInternal, err.Error()
	case statusOf(err) == http.StatusInternalServerError:
		return wsframe.CodeInternal, http.StatusText(http.StatusInternalServerError)
	}
	return wsframe.CodeTryAgain, ""
}

// socketResult returns the error that ended a socket. It returns nil if a close frame, or
// a handler without an error, ended the socket. err and why are as in endSocket. If the
// client is gone, or the runtime has ended the request, it returns why instead of err,
// because the handler's error is only a consequence.
func socketResult(s *socket.Conn, err, why error) error {
	switch {
	case cause.IsPanic(err):
		return err
	case s.ClosedByClient(), errors.Is(why, cause.ErrShuttingDown) && s.Code() == wsframe.CodeGoingAway:
		return nil
	case why == nil, errors.Is(why, cause.ErrSocketLeft) && !errors.Is(err, context.Canceled):
		return err
	case errors.Is(why, cause.ErrSocketClosed):
		return nil
	}
	return why
}

// status returns the status of a hijacked request for the span and the log: the close code
// of a web socket, otherwise the status of the response that the handler wrote. err is the
// error that ended the socket.
func (u *upgrade) status(s *socket.Conn, err error) int {
	status := s.Status()
	switch {
	case u.webSocket && status == http.StatusSwitchingProtocols:
		return s.Code()
	case status != 0:
		return status
	case err != nil:
		return statusOf(err)
	}
	return http.StatusInternalServerError // the handler closed the connection without an HTTP response
}
