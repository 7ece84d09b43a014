package serving

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// HandlerFunc is an [http.Handler] that can fail. The client gets status 500
// for its error (503 for a [*QueueFullError]) and not its text; the text is in
// span and log. If the response had begun, the connection is cut, so that the
// client does not take what it has for the whole.
//
// It works at any depth below a deployment's handler, behind a ServeMux or
// middleware. Elsewhere it answers 500 and logs the error to [slog.Default].
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP implements [http.Handler].
func (f HandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f(w, r)
	if err == nil {
		return
	}
	if in := scope.FromContext(r.Context()); in != nil {
		if c, ok := in.Task.(*httpCall); ok {
			c.fail(err)
			return
		}
	}
	slog.ErrorContext(r.Context(), "handler failed outside of a replica", "error", err)
	http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
}

// httpCall is an HTTP request as a replica answers it.
type httpCall struct {
	x      *exchange
	routed context.Context // of assign, for the handler
	place  assignment      // zero until a replica took the request
	done   chan error      // carries the result, once the handler has returned

	seen *http.Request // as the handler sees it, with its context; nil before invoke
	room running
	err  atomic.Pointer[error] // the first that a HandlerFunc returned
}

var (
	_ call = (*httpCall)(nil)
	_ job  = (*httpCall)(nil)
)

// work implements [job]: it has the replica answer.
func (c *httpCall) work() {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = survived(c.x.ctx, c.x.proxy.access.log, v)
		}
		c.done <- err // the slot is free: the client may come back at once
		c.x.proxy.work.handlerDone()
	}()
	err = c.place.run(c.routed, c)
}

func (c *httpCall) running() *running { return &c.room }

func (c *httpCall) start() spans.ReplicaStart {
	return spans.ReplicaStart{Protocol: c.x.protocol, Method: c.x.r.Method}
}

func (c *httpCall) modelID() string { return c.x.request.ModelID }

// invoke implements [call].
func (c *httpCall) invoke(ctx context.Context, r *replica) error {
	resp := &c.x.resp
	c.seen = resp.request.WithContext(ctx)
	if resp.pace.body != nil {
		c.seen.Body = resp.pace.body
	}
	r.handler.ServeHTTP(resp, c.seen)
	if err := c.err.Load(); err != nil {
		return *err
	}
	resp.upgrade.outlast()
	return nil
}

// end implements [call].
func (c *httpCall) end(_ context.Context, err error) (spans.ReplicaResult, error) {
	if c.seen != nil && c.seen.MultipartForm != nil { // net/http cleans up after its own request only, not after a copy
		_ = c.seen.MultipartForm.RemoveAll() // its files are temporary anyway
	}
	status, err := c.x.returned(err)
	return spans.ReplicaResult{StatusCode: replicaStatus(status, err), Err: spanError(err)}, err
}

func (c *httpCall) fail(err error) { c.err.CompareAndSwap(nil, &err) }

// replicaStatus returns the status of the handler's response, or the status of its error;
// 0 if the runtime ended the request before there was one.
func replicaStatus(told int, err error) int {
	if told != 0 || err == nil || isAbort(err) || isCancellation(err) {
		return told
	}
	return statusOf(err)
}
