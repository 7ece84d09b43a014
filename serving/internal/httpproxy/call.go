package httpproxy

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/router"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// httpCall passes an HTTP request to the handler of a replica.
type httpCall struct {
	x    *exchange
	seen *http.Request         // the request that the handler gets, with the handler's context; nil before Invoke
	err  atomic.Pointer[error] // the first error that was passed to Fail; nil if there is none
}

var _ router.Call = (*httpCall)(nil)

// Describe implements [router.Call].
func (c *httpCall) Describe() spans.ReplicaStart {
	return spans.ReplicaStart{Protocol: c.x.protocol, Method: c.x.r.Method}
}

// Invoke implements [router.Call].
func (c *httpCall) Invoke(ctx context.Context) error {
	resp := &c.x.resp
	c.seen = resp.request.WithContext(ctx)
	if resp.pace.body != nil { // the request has a body, and reads of it have a deadline
		c.seen.Body = resp.pace.body
	}
	c.x.route.Handler.ServeHTTP(resp, c.seen)
	if err := c.err.Load(); err != nil {
		return *err
	}
	if s, _ := resp.taken(); s != nil {
		<-resp.upgrade.ended // the handler has taken over the connection, and other goroutines may use it
	}
	return nil
}

// End implements [router.Call].
func (c *httpCall) End(_ context.Context, err error) (spans.ReplicaResult, error) {
	if c.seen != nil && c.seen.MultipartForm != nil { // net/http removes the files of its own request only, and seen is a copy
		_ = c.seen.MultipartForm.RemoveAll() // after an error, only temporary files stay
	}
	status, err := c.x.resp.complete(err)
	return spans.ReplicaResult{StatusCode: replicaStatus(status, err), Err: cause.ForSpan(err)}, err
}

// Fail makes err the error of the HTTP request that ctx belongs to, unless the request
// already has an error. It returns false if ctx belongs to no HTTP request.
func Fail(ctx context.Context, err error) bool {
	in := scope.FromContext(ctx)
	if in == nil {
		return false
	}
	c, ok := in.Task.(*httpCall)
	if ok {
		c.err.CompareAndSwap(nil, &err)
	}
	return ok
}
