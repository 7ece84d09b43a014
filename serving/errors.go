package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/servetrace/servetrace/tracing"
)

// Why the runtime ended a request that its handler had not ended. A handler
// finds the reason with [context.Cause] of its request's context, but where it
// says otherwise below; the context's own error stays [context.DeadlineExceeded]
// or [context.Canceled]. Where they tell of a status, it is that of HTTP;
// docs/how-to/grpc.md has the codes of gRPC.
var (
	// ErrRequestTimeout: the request was not answered within
	// [Config.RequestTimeout], or [WithRequestTimeout] of its app. The client got
	// status 408, or a cut stream if the response had begun. It matches
	// [context.DeadlineExceeded].
	ErrRequestTimeout error = &causeError{"request timed out", context.DeadlineExceeded}

	// ErrClientStalled: for [Config.StallTimeout] the client sent nothing of the
	// body that the handler was reading, or took nothing of what it wrote. The
	// handler's Read or Write fails with it. A handler that then returns an error, or
	// has written nothing, has its client told 408, or its response cut. The request's
	// context ends too, with HTTP/1.1 or if the client does not read, and without this
	// cause. It matches [context.DeadlineExceeded].
	ErrClientStalled error = &causeError{"client stalled", context.DeadlineExceeded}

	// ErrClientGone: the client closed its connection, or its half of it, or reset its
	// HTTP/2 stream, before it had the whole response. What the handler answers is sent
	// all the same; span and log say 499 if it answers nothing. It matches [context.Canceled]. Contexts of web sockets and of gRPC
	// calls end with it; that of another HTTP request ends without a cause of
	// ours, because net/http gives none.
	ErrClientGone error = &causeError{"client disconnected", context.Canceled}

	// ErrSocketClosed: the web socket, or the connection that the handler took
	// over for another protocol, has been closed: by a close frame of either
	// side, or by the handler. It matches [context.Canceled]. A client that left
	// without a close frame is ErrClientGone.
	ErrSocketClosed error = &causeError{"socket closed", context.Canceled}

	// ErrClientDeadline: the deadline that a gRPC client has set for its call has
	// passed. It matches [context.DeadlineExceeded].
	ErrClientDeadline error = &causeError{"client's deadline has passed", context.DeadlineExceeded}

	// ErrReplicaStopped: the replica that had the request stopped, because it was
	// unhealthy or one too many, and the request ran on beyond the deployment's
	// graceful shutdown timeout. The client got status 500, or a cut stream if
	// the response had begun, or the close code 1012 on a web socket. The
	// request's context ends without this cause. It matches [context.Canceled].
	ErrReplicaStopped error = &causeError{"replica was stopped", context.Canceled}

	// ErrShuttingDown: the server's [Server.Shutdown] ran out of time. The
	// client got status 503, a cut stream if the response had begun, or the
	// close code 1001 on a web socket. It matches [context.Canceled].
	ErrShuttingDown error = &causeError{"server is shutting down", context.Canceled}
)

// statusClientGone is nginx's code for a client that left. It is written into
// spans and logs only: there is nobody to send it to.
const statusClientGone = 499

// causeError is a reason for the end of a context.
type causeError struct {
	text string
	base error
}

func (e *causeError) Error() string { return e.text }
func (e *causeError) Unwrap() error { return e.base }

// QueueFullError says that a deployment's queue was at its limit when a request
// came. The client gets StatusCode at once. A handler that receives it from
// another deployment and returns it passes that on.
type QueueFullError struct {
	Deployment string
	Queued     int // requests that were waiting
	Limit      int // the deployment's max_queued_requests
	// StatusCode is 503 or 429 and RetryAfter the client's pause, zero for none:
	// see [WithBackpressure]. Any other StatusCode counts as 503.
	StatusCode int
	RetryAfter time.Duration
}

// Error gives Ray's text: clients of Ray Serve recognise it in the body.
func (e *QueueFullError) Error() string {
	return fmt.Sprintf("Request dropped due to backpressure (num_queued_requests=%d, max_queued_requests=%d).",
		e.Queued, e.Limit)
}

// DeploymentUnavailableError says that a deployment has no replica and will get
// none by itself: each try to start one has failed. Its requests, those that
// wait too, get status 503. A new user config, or another number of replicas,
// has it try anew. A handler that receives it from another deployment and
// returns it passes the 503 on.
type DeploymentUnavailableError struct {
	App, Deployment string
	// Tries is how often a start has failed; Reason is why it did the last time.
	// They are for operators: the text is for clients too, and is without them.
	Tries  int
	Reason error
}

// Error gives Ray's text.
func (e *DeploymentUnavailableError) Error() string {
	return fmt.Sprintf("Deployment(name='%s', app='%s') is unavailable because it failed to deploy.", e.Deployment, e.App)
}

// isRefusal reports whether a router turned a request away without looking for
// a replica.
func isRefusal(err error) bool {
	if _, full := errors.AsType[*QueueFullError](err); full {
		return true
	}
	_, unavailable := errors.AsType[*DeploymentUnavailableError](err)
	return unavailable
}

// errGoexit stands for a handler that ended its goroutine by runtime.Goexit.
var errGoexit = errors.New("handler called runtime.Goexit")

// causeOf tells why a proxy's ctx ended. Only a client's departure comes without
// a cause: net/http cancels the request's context with none.
func causeOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if _, ours := errors.AsType[*causeError](cause); ours {
		return cause
	}
	return ErrClientGone
}

// endOf is why ctx ended as spans record it; nil while it has not. Unlike
// causeOf it is for contexts that user code may have made.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); isCancellation(cause) {
		return spanError(cause)
	}
	return ctx.Err()
}

// statusOf translates an error that ended a request before its response began
// into the status code of the client's response.
func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrRequestTimeout), errors.Is(err, ErrClientStalled):
		return http.StatusRequestTimeout
	case errors.Is(err, ErrClientGone):
		return statusClientGone
	case errors.Is(err, ErrShuttingDown):
		return http.StatusServiceUnavailable
	}
	if full, is := errors.AsType[*QueueFullError](err); is && slices.Contains(backpressureStatuses, full.StatusCode) {
		return full.StatusCode
	}
	if isRefusal(err) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// isPanic reports whether a handler panicked, http.ErrAbortHandler included.
func isPanic(err error) bool {
	_, panicked := errors.AsType[*tracing.PanicError](err)
	return panicked || isAbort(err)
}

// isAbort reports whether a handler asked for its connection to be cut, in the
// way that net/http has for it.
func isAbort(err error) bool { return errors.Is(err, http.ErrAbortHandler) }

// spanError is err as spans record it: timeouts and departures as the context
// errors they are.
func spanError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrRequestTimeout), errors.Is(err, ErrClientDeadline):
		return context.DeadlineExceeded
	case errors.Is(err, ErrClientGone):
		return context.Canceled
	}
	return err
}

// isCancellation reports whether the runtime, not the handler, ended the request.
func isCancellation(err error) bool {
	_, ours := errors.AsType[*causeError](err)
	return ours
}
