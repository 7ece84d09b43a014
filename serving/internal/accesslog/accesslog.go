// Package accesslog writes the access log. Each request of a proxy has a line, at a level
// that depends on its end. Each call by handle has a line at debug. A line has the ids of
// trace and span, so that a reader finds the line of a span, and the span of a line. A
// request has no line of its own in the replica: the line of the proxy names the replica.
//
// The package also writes to the user's log at places where a panic of that log would
// end the process, see [Log.Recovered].
//
// The proxies choose the level and the text of each line. Open accesslog.go first.
package accesslog

import (
	"context"
	"log/slog"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/tracing"
)

// Log is a server's log.
type Log struct {
	*slog.Logger
	// Quiet leaves out access lines below the level of warnings.
	Quiet bool
}

// Wants reports whether lines of a level are written.
func (l Log) Wants(ctx context.Context, level slog.Level) bool {
	return (!l.Quiet || level >= slog.LevelWarn) && l.Enabled(ctx, level)
}

// Entry is a line of the log. Empty fields are omitted, except the first four.
type Entry struct {
	Method    string // verb, WS, full method of gRPC, or CALL
	Status    int    // status of HTTP, or close code of a web socket
	Code      string // code of a gRPC call or a call by handle; if it is set, Status is not written
	Took      time.Duration
	RequestID string

	Client          string
	Path            string // path of a request without a route
	Route           string
	App, Deployment string
	CallMethod      string // for calls by handle only
	Replica         string // unique id
	Err             error
}

// MostPath bounds texts that clients choose, and mostError error texts, in bytes.
const (
	MostPath  = 512
	mostError = 4096
)

// Write writes an entry, with the ids of trace and span of ctx.
func (l Log) Write(ctx context.Context, level slog.Level, msg string, e Entry) {
	attrs := make([]slog.Attr, 0, 14)
	attrs = append(attrs, slog.String("method", Cut(e.Method)))
	if e.Code != "" {
		attrs = append(attrs, slog.String("code", e.Code))
	} else {
		attrs = append(attrs, slog.Int("status", e.Status))
	}
	attrs = append(attrs, slog.Float64("latency_ms", float64(e.Took.Microseconds())/1000))
	for _, a := range []struct{ key, value string }{
		{"client", e.Client},
		{tracing.LogRequestID, e.RequestID},
		{"path", Cut(e.Path)},
		{"route", e.Route},
		{"call_method", e.CallMethod},
		{tracing.LogApp, e.App},
		{tracing.LogDeployment, e.Deployment},
		{tracing.LogReplica, e.Replica},
	} {
		if a.value != "" {
			attrs = append(attrs, slog.String(a.key, a.value))
		}
	}
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		attrs = append(attrs, slog.String(tracing.LogTraceID, sc.TraceID().String()))
		if sc.IsSampled() { // otherwise the span is the caller's, or was not recorded
			attrs = append(attrs, slog.String(tracing.LogSpanID, sc.SpanID().String()))
		}
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", cutAt(e.Err.Error(), mostError)))
	}
	l.LogAttrs(ctx, level, msg, attrs...)
}

// Cut returns a text that a client chose, cut at MostPath bytes.
func Cut(text string) string { return cutAt(text, MostPath) }

// cutAt returns text, or its first most bytes and an ellipsis if it is longer.
func cutAt(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
