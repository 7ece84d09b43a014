// Package cause has the errors with which the runtime ends requests before their handlers
// return. Its functions report whether an error comes from the runtime, is a refusal or is
// a panic.
//
// The life of a cause:
//
//  1. A proxy or the server cancels the context of a request with the cause.
//  2. Of returns the cause of a context, for the response, the span and the log.
//  3. ForSpan translates the cause for spans.
//
// Package serving exports the errors under the same names, and documents them for users.
// This package makes no responses: each proxy translates errors for its own protocol. Open
// cause.go first. File remote.go has the errors of calls to other processes.
package cause

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/servetrace/servetrace/tracing"
)

// The causes for the end of a request. Package serving documents each of them.
var (
	ErrRequestTimeout error = &causeError{"request timed out", context.DeadlineExceeded}
	ErrClientStalled  error = &causeError{"client stalled", context.DeadlineExceeded}
	ErrClientGone     error = &causeError{"client disconnected", context.Canceled}
	ErrSocketClosed   error = &causeError{"socket closed", context.Canceled}
	ErrClientDeadline error = &causeError{"client's deadline has passed", context.DeadlineExceeded}
	ErrReplicaStopped error = &causeError{"replica was stopped", context.Canceled}
	ErrShuttingDown   error = &causeError{"server is shutting down", context.Canceled}

	// ErrSocketLeft is the cause if the handler itself closed its web socket. The handler may
	// still run, and its error counts. For users it is equal to ErrSocketClosed.
	ErrSocketLeft error = &causeError{ErrSocketClosed.Error(), ErrSocketClosed}
)

// ErrGoexit is the error of a handler that ended its goroutine with runtime.Goexit.
var ErrGoexit = errors.New("handler called runtime.Goexit")

// causeError is the type of the causes, which distinguishes them from errors of user code.
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

// QueueFullError is the error of a request that was refused because too many requests wait.
// Package serving documents it.
type QueueFullError struct {
	Deployment string
	Queued     int // number of requests that waited when this one was refused
	Limit      int // largest number of waiting requests, the setting max_queued_requests
	// StatusCode is the status of the HTTP response, 503 or 429. Any other value counts as
	// 503. RetryAfter is the value of the header Retry-After; zero means no header.
	StatusCode int
	RetryAfter time.Duration
}

// Error returns the same text as Ray Serve, because clients look for it in the response's
// body.
func (e *QueueFullError) Error() string {
	return fmt.Sprintf("Request dropped due to backpressure (num_queued_requests=%d, max_queued_requests=%d).",
		e.Queued, e.Limit)
}

// ErrorType returns the type's name in spans, after OpenTelemetry's convention.
func (e *QueueFullError) ErrorType() string { return "*serving.QueueFullError" }

// DeploymentUnavailableError is the error of a request for a deployment that failed to start.
// Package serving documents it.
type DeploymentUnavailableError struct {
	App, Deployment string
	// Tries is the number of starts that failed, and Reason is the error of the last start.
	// The error text does not contain them, because clients see the text.
	Tries  int
	Reason error
}

// Error returns the same text as Ray Serve.
func (e *DeploymentUnavailableError) Error() string {
	return fmt.Sprintf("Deployment(name='%s', app='%s') is unavailable because it failed to deploy.", e.Deployment, e.App)
}

// ErrorType returns the type's name in spans, after OpenTelemetry's convention.
func (e *DeploymentUnavailableError) ErrorType() string { return "*serving.DeploymentUnavailableError" }

// IsRefusal reports whether err means that a router refused a request, because the queue is
// full or the deployment is unavailable.
func IsRefusal(err error) bool {
	if _, full := errors.AsType[*QueueFullError](err); full {
		return true
	}
	_, unavailable := errors.AsType[*DeploymentUnavailableError](err)
	return unavailable
}

// Of returns the cause for the end of a context that a proxy made and that has ended. If the
// context has no cause of this package, Of returns ErrClientGone, because net/http cancels
// the context without a cause when the client leaves.
func Of(ctx context.Context) error {
	cause := context.Cause(ctx)
	if IsCancellation(cause) {
		return cause
	}
	return ErrClientGone
}

// OfUser returns the cause for the end of a context that user code may have made, in the form
// for spans. It returns nil if the context has not ended.
func OfUser(ctx context.Context) error {
	if cause := context.Cause(ctx); IsCancellation(cause) {
		return ForSpan(cause)
	}
	return ctx.Err()
}

// IsPanic reports whether err means that a handler panicked, with http.ErrAbortHandler or
// another value.
func IsPanic(err error) bool {
	_, panicked := errors.AsType[*tracing.PanicError](err)
	return panicked || IsAbort(err)
}

// IsAbort reports whether err means that a handler panicked with http.ErrAbortHandler. By
// that panic a handler asks net/http to cut the connection.
func IsAbort(err error) bool { return errors.Is(err, http.ErrAbortHandler) }

// IsCancellation reports whether err is or wraps one of the causes, so that the runtime and
// not the handler ended the request.
func IsCancellation(err error) bool {
	_, ours := errors.AsType[*causeError](err)
	return ours
}

// ForSpan returns err in the form for spans. A timeout becomes context.DeadlineExceeded, and
// a client that left becomes context.Canceled.
func ForSpan(err error) error {
	switch {
	case errors.Is(err, ErrRequestTimeout), errors.Is(err, ErrClientDeadline):
		return context.DeadlineExceeded
	case errors.Is(err, ErrClientGone):
		return context.Canceled
	}
	return err
}

// Heavier returns err if it is a panic of the handler, otherwise cause. A panic has priority
// over the end of the handler's context, which has priority over other errors.
func Heavier(err, cause error) error {
	if IsPanic(err) {
		return err
	}
	return cause
}
