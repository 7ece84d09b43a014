// Package accesslog writes the access log. Each request of a proxy has a line. The level
// of the line depends on the result. Each call by handle has a line at level debug. A line has the ids
// of trace and span, so that operators find the line of a span, and the span of a line. A
// replica writes no line for a request, because the line of the proxy names the replica.
//
// A panic of the user's log handler on a goroutine of the runtime would end the process.
// [Log.Recovered] and [Unbreakable] recover from such panics.
//
// The proxies choose the level of each line. Open accesslog.go first.
package accesslog

import (
	"context"
	"log/slog"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/tracing"
)

// Log is the log of a server, which also has the access lines.
type Log struct {
	*slog.Logger
	// Quiet leaves out the access lines below level warn.
	Quiet bool
}

// Wants reports whether access lines of a level are written.
func (l Log) Wants(ctx context.Context, level slog.Level) bool {
	return (!l.Quiet || level >= slog.LevelWarn) && l.Enabled(ctx, level)
}

// Entry is a line of the access log. Empty fields are omitted, except Method, Status and Took.
type Entry struct {
	Method    string // HTTP verb, WS for a web socket, full method of gRPC, or CALL for a call by handle
	Status    int    // status of an HTTP response, or close code of a web socket; not written if Code is set
	Code      string // code of a gRPC call or a call by handle
	Took      time.Duration
	RequestID string

	Client          string
	Path            string // path of the request if it matched no route
	Route           string
	App, Deployment string
	CallMethod      string // name of the function that a call by handle calls
	Replica         string // unique id of the replica
	Err             error
}

// mostPath is the largest length of a text that a client chose, and mostError the largest
// length of an error text, in bytes.
const (
	mostPath  = 512
	mostError = 4096
)

// Write writes an entry with the message msg. It adds the ids of the trace and the span that
// ctx has.
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
		if sc.IsSampled() { // otherwise no recorded span has this id
			attrs = append(attrs, slog.String(tracing.LogSpanID, sc.SpanID().String()))
		}
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", cutAt(e.Err.Error(), mostError)))
	}
	l.LogAttrs(ctx, level, msg, attrs...)
}

// Cut shortens a text that a client chose to mostPath bytes.
func Cut(text string) string { return cutAt(text, mostPath) }

// cutAt returns text, or at most its first most bytes and an ellipsis if it is longer.
func cutAt(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
