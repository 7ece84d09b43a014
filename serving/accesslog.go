package serving

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/tracing"
)

// accessLog has one line for each request of a proxy, at the level of its end,
// and one for each call by handle, at debug. Each pairs with the spans: it has
// their ids. What HTTP and gRPC do in the replica has no line of its own: that of
// the proxy names the replica.
type accessLog struct {
	log *slog.Logger
	// quiet leaves out the lines below warn: what failed stays to be seen.
	quiet bool
}

func (l accessLog) enabled(ctx context.Context, level slog.Level) bool {
	return (!l.quiet || level >= slog.LevelWarn) && l.log.Enabled(ctx, level)
}

// entry is one line. What is empty is left out, but for the first four.
type entry struct {
	method    string // verb, WS, full method of gRPC, or CALL
	status    int    // of HTTP, or the close code of a web socket
	code      string // in place of status: of gRPC, or of a call by handle
	took      time.Duration
	requestID string

	client          string
	path            string // where no route matched
	route           string
	app, deployment string
	callMethod      string // of a call by handle
	replica         string // unique id
	err             error
}

// Texts that clients choose, in part or whole, are cut there.
const (
	mostPath  = 512
	mostError = 4096
)

// write writes an entry. The ids of trace and span are those of ctx.
func (l accessLog) write(ctx context.Context, level slog.Level, msg string, e entry) {
	attrs := make([]slog.Attr, 0, 14)
	attrs = append(attrs, slog.String("method", cutAt(e.method, mostPath)))
	if e.code != "" {
		attrs = append(attrs, slog.String("code", e.code))
	} else {
		attrs = append(attrs, slog.Int("status", e.status))
	}
	attrs = append(attrs, slog.Float64("latency_ms", float64(e.took.Microseconds())/1000))
	for _, a := range []struct{ key, value string }{
		{"client", e.client},
		{tracing.LogRequestID, e.requestID},
		{"path", cutAt(e.path, mostPath)},
		{"route", e.route},
		{"call_method", e.callMethod},
		{tracing.LogApp, e.app},
		{tracing.LogDeployment, e.deployment},
		{tracing.LogReplica, e.replica},
	} {
		if a.value != "" {
			attrs = append(attrs, slog.String(a.key, a.value))
		}
	}
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		attrs = append(attrs, slog.String(tracing.LogTraceID, sc.TraceID().String()))
		if sc.IsSampled() { // else it is the caller's span, or nobody's
			attrs = append(attrs, slog.String(tracing.LogSpanID, sc.SpanID().String()))
		}
	}
	if e.err != nil {
		attrs = append(attrs, slog.String("error", cutAt(e.err.Error(), mostError)))
	}
	l.log.LogAttrs(ctx, level, msg, attrs...)
}

// cutAt gives the beginning of a text that is longer than most bytes.
func cutAt(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// record puts a request that has ended into the metrics and the access log.
func (p *proxy) record(x *exchange) {
	defer p.survive(x.r.Context()) // what the user's log does costs the client nothing
	took := time.Since(x.arrived)
	p.metrics.Done()
	ingress := p.unrouted
	if x.route != nil {
		ingress = x.route.ingress
	}
	method := semconv.Method(x.r.Method)
	if x.protocol == spans.WebSocket {
		method = semconv.MethodWebSocket
	}
	ingress.Done(metrics.Outcome{
		Route:   x.request.Route,
		Method:  method,
		Status:  x.status,
		Failed:  spans.ProxyResult{StatusCode: x.status, Err: x.err}.Failed(x.protocol),
		Latency: took,
		Span:    x.span,
	})
	ctx, level := x.ctx, x.level() // with the proxy span
	if ctx == nil {
		ctx = context.WithoutCancel(x.r.Context())
	}
	if !p.access.enabled(ctx, level) {
		return
	}
	e := entry{
		method: method, status: x.status, took: took,
		client: x.r.RemoteAddr, requestID: x.request.ID, replica: x.call.place.uniqueID(), err: x.err,
	}
	if x.route == nil {
		e.path = x.r.URL.Path
	} else {
		e.route, e.app, e.deployment = x.request.Route, x.route.app, x.route.deployment
	}
	p.access.write(ctx, level, "request", e)
}

// level is the access log's. A request that failed for the server's own reasons
// is an error. A response that the server cut off as its time was over is a
// warning, since its status does not show it. One that was turned away or
// given up is neither.
func (x *exchange) level() slog.Level {
	switch {
	case x.err == nil, errors.Is(x.err, ErrClientGone):
		return slog.LevelInfo
	case isCancellation(x.err):
		if x.cut {
			return slog.LevelWarn
		}
	case x.cut, x.status == http.StatusInternalServerError:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// logCall writes the line of a call by handle, in Ray's words. It is for who
// looks for something: one request may make many calls, each call's error goes
// to its caller, and a panic has a line of its own.
func (u *running) logCall(method string, took time.Duration, err error) {
	if !u.replica.access.enabled(u.user, slog.LevelDebug) {
		return
	}
	code := "OK"
	switch {
	case err == nil:
	case isCancellation(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		code = "CANCELLED"
	default:
		code = "ERROR"
	}
	u.replica.access.write(u.user, slog.LevelDebug, "call", entry{
		method: "CALL", code: code, took: took, requestID: u.request.ID,
		route: u.request.Route, callMethod: cmp.Or(method, semconv.DefaultCallMethod),
		app: u.request.App, deployment: u.request.Deployment, replica: u.replica.info.ReplicaID.UniqueID,
		err: err,
	})
}
