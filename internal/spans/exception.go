package spans

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/tracing"
)

// recordException adds the event. It does not use Span.RecordError, which would
// neither see through wrappers nor say whether the error escaped.
func recordException(span trace.Span, err error, escaped string) {
	attrs := make([]attribute.KeyValue, 0, 4)
	attrs = append(attrs,
		attribute.String(semconv.ExceptionType, exceptionType(err)),
		attribute.String(semconv.ExceptionMessage, err.Error()),
		attribute.String(semconv.ExceptionEscaped, escaped))
	if p, ok := errors.AsType[*tracing.PanicError](err); ok && len(p.Stack) > 0 {
		attrs = append(attrs, attribute.String(semconv.ExceptionStacktrace, string(p.Stack)))
	}
	span.AddEvent(semconv.EventException, trace.WithAttributes(attrs...))
}

// exceptionType names what went wrong: the Go type of the error below the
// wrappers of package fmt, which say nothing. Timeout and cancellation have
// private types, so that they are named for their variables.
func exceptionType(err error) string {
	for {
		switch err { //nolint:errorlint // the loop unwraps, and only past wrappers that say nothing
		case context.Canceled:
			return "context.Canceled"
		case context.DeadlineExceeded:
			return "context.DeadlineExceeded"
		}
		if p, ok := err.(*tracing.PanicError); ok { //nolint:errorlint // as above
			inner := p.Unwrap()
			if inner == nil {
				return "panic"
			}
			err = inner
			continue
		}
		name := fmt.Sprintf("%T", err)
		inner := errors.Unwrap(err)
		if inner == nil || name != "*fmt.wrapError" {
			return name
		}
		err = inner
	}
}

// description is the status text for err. Timeout and cancellation have none,
// as in Ray, whose exceptions for them carry no text.
func description(err error) string {
	//nolint:errorlint // one that is wrapped is a handler's own and has a text
	if err == nil || err == context.Canceled || err == context.DeadlineExceeded {
		return ""
	}
	return err.Error()
}
