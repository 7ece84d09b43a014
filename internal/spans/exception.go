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

// recordException adds an exception event for err to the span. The SDK's Span.RecordError
// would record the type of the outermost wrapper of err, and not whether the error escaped.
func recordException(span trace.Span, err error, escaped string) {
	attrs := make([]attribute.KeyValue, 0, 4)
	attrs = append(attrs,
		attribute.String(semconv.ExceptionType, ExceptionType(err)),
		attribute.String(semconv.ExceptionMessage, err.Error()),
		attribute.String(semconv.ExceptionEscaped, escaped))
	if p, ok := errors.AsType[*tracing.PanicError](err); ok && len(p.Stack) > 0 {
		attrs = append(attrs, attribute.String(semconv.ExceptionStacktrace, string(p.Stack)))
	}
	span.AddEvent(semconv.EventException, trace.WithAttributes(attrs...))
}

// ExceptionType returns the Go type of the error inside the wrappers of package fmt. If the
// error has a method ErrorType, as OpenTelemetry's convention suggests, it returns the
// result of the method. The errors for timeout and cancellation have private types, so it
// returns the names of their variables.
func ExceptionType(err error) string {
	for {
		switch err { //nolint:errorlint // the loop unwraps only wrappers of package fmt
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
		if named, ok := err.(interface{ ErrorType() string }); ok {
			return named.ErrorType()
		}
		name := fmt.Sprintf("%T", err)
		inner := errors.Unwrap(err)
		if inner == nil || name != "*fmt.wrapError" {
			return name
		}
		err = inner
	}
}

// description returns the text of the span's status for err. The text is empty for a timeout
// and a cancellation, because Ray's exceptions for them have no text.
func description(err error) string {
	//nolint:errorlint // a wrapped error comes from a handler and has a text
	if err == nil || err == context.Canceled || err == context.DeadlineExceeded {
		return ""
	}
	return err.Error()
}
