// Package cause holds the errors with which the runtime ends requests that their handlers
// have not ended. Its functions report whether an error comes from the runtime, is a
// refusal or is a panic.
//
// The life of a cause:
//
//  1. A proxy or the server cancels the context of a request with it.
//  2. Of returns it from the context, for the response, the span and the log.
//  3. ForSpan translates it for spans.
//
// Package serving documents the errors for users, and has the same names. This package
// makes no responses: each proxy translates errors for its own protocol. Open cause.go
// first; remote.go has the errors of calls to other processes.
package cause

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/servetrace/servetrace/tracing"
)

// The causes. Package serving documents each.
var (
	ErrRequestTimeout error = &causeError{"request timed out", context.DeadlineExceeded}
	ErrClientStalled  error = &causeError{"client stalled", context.DeadlineExceeded}
	ErrClientGone     error = &causeError{"client disconnected", context.Canceled}
	ErrSocketClosed   error = &causeError{"socket closed", context.Canceled}
	ErrClientDeadline error = &causeError{"client's deadline has passed", context.DeadlineExceeded}
	ErrReplicaStopped error = &causeError{"replica was stopped", context.Canceled}
	ErrShuttingDown   error = &causeError{"server is shutting down", context.Canceled}

	// ErrSocketLeft is the cause instead of ErrSocketClosed if the handler closed the
	// socket. The handler may still run, and its result counts.
	ErrSocketLeft error = &causeError{ErrSocketClosed.Error(), ErrSocketClosed}
)

// ErrGoexit is the error of a handler that ended its goroutine with runtime.Goexit.
var ErrGoexit = errors.New("handler called runtime.Goexit")

// causeError is the cause of the end of a context.
type causeError struct {
	text string
	base error
}

// Error implements error.
func (e *causeError) Error() string { return e.text }

// Unwrap returns the error that e also matches: an error of package context, or
// ErrSocketClosed.
func (e *causeError) Unwrap() error { return e.base }

// ErrorType returns the type's name in spans, after OpenTelemetry's convention.
func (e *causeError) ErrorType() string { return "*serving.causeError" }

// QueueFullError is documented in package serving.
type QueueFullError struct {
	Deployment string
	Queued     int // number of waiting requests
	Limit      int // the deployment's max_queued_requests
	// StatusCode is 503 or 429. Any other value counts as 503. RetryAfter is the pause that
	// the client is asked to make, or zero.
	StatusCode int
	RetryAfter time.Duration
}

// Error returns Ray's text: clients of Ray Serve recognise it in the body.
func (e *QueueFullError) Error() string {
	return fmt.Sprintf("Request dropped due to backpressure (num_queued_requests=%d, max_queued_requests=%d).",
		e.Queued, e.Limit)
}

// ErrorType returns the type's name in spans, after OpenTelemetry's convention.
func (e *QueueFullError) ErrorType() string { return "*serving.QueueFullError" }

// DeploymentUnavailableError is documented in package serving.
type DeploymentUnavailableError struct {
	App, Deployment string
	// Tries is the number of failed starts, and Reason the error of the last start. They
	// are for operators. The error text does not contain them, because clients see the
	// text.
	Tries  int
	Reason error
}

// Error returns Ray's text.
func (e *DeploymentUnavailableError) Error() string {
	return fmt.Sprintf("Deployment(name='%s', app='%s') is unavailable because it failed to deploy.", e.Deployment, e.App)
}

// ErrorType returns the type's name in spans, after OpenTelemetry's convention.
func (e *DeploymentUnavailableError) ErrorType() string { return "*serving.DeploymentUnavailableError" }

// IsRefusal reports whether a router refused a request without choosing a replica.
func IsRefusal(err error) bool {
	if _, full := errors.AsType[*QueueFullError](err); full {
		return true
	}
	_, unavailable := errors.AsType[*DeploymentUnavailableError](err)
	return unavailable
}

// Of returns the cause of the end of a proxy's context. If the context has no cause of
// this package, the client has left, because only net/http cancels the context without a
// cause.
func Of(ctx context.Context) error {
	cause := context.Cause(ctx)
	if IsCancellation(cause) {
		return cause
	}
	return ErrClientGone
}

// OfUser returns the cause of the end of a context that user code may have made, as
// spans record it. It is nil if the context has not ended.
func OfUser(ctx context.Context) error {
	if cause := context.Cause(ctx); IsCancellation(cause) {
		return ForSpan(cause)
	}
	return ctx.Err()
}

// IsPanic reports whether a handler panicked, with http.ErrAbortHandler or another value.
func IsPanic(err error) bool {
	_, panicked := errors.AsType[*tracing.PanicError](err)
	return panicked || IsAbort(err)
}

// IsAbort reports whether a handler panicked with http.ErrAbortHandler, to have its
// connection cut.
func IsAbort(err error) bool { return errors.Is(err, http.ErrAbortHandler) }

// IsCancellation reports whether the runtime, not the handler, ended the request.
func IsCancellation(err error) bool {
	_, ours := errors.AsType[*causeError](err)
	return ours
}

// ForSpan returns err as spans record it: timeouts and departures as the errors of
// package context.
func ForSpan(err error) error {
	switch {
	case errors.Is(err, ErrRequestTimeout), errors.Is(err, ErrClientDeadline):
		return context.DeadlineExceeded
	case errors.Is(err, ErrClientGone):
		return context.Canceled
	}
	return err
}

// Heavier returns err if it is a panic, else cause: a panic of the handler counts for
// more than the end of its context.
func Heavier(err, cause error) error {
	if IsPanic(err) {
		return err
	}
	return cause
}
