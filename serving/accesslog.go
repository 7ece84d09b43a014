package serving

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/tracing"
)

// record puts a request that has ended into the metrics and the access log.
func (p *proxy) record(x *exchange) {
	took := time.Since(x.arrived)
	p.metrics.Done()
	ingress := p.unrouted
	if x.route != nil {
		ingress = x.route.ingress
	}
	ingress.Done(metrics.Outcome{
		Route:   x.name,
		Method:  semconv.Method(x.r.Method),
		Status:  x.status,
		Failed:  tracing.ProxyResult{StatusCode: x.status, Err: x.err}.Failed(tracing.HTTP),
		Latency: took,
		Span:    x.span,
	})
	p.logAccess(x, took)
}

// logAccess writes the one line that pairs with the spans of a request.
func (p *proxy) logAccess(x *exchange, took time.Duration) {
	ctx, level := x.ctx, x.level()
	if ctx == nil {
		ctx = context.WithoutCancel(x.r.Context())
	}
	if !p.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("method", semconv.Method(x.r.Method)),
		slog.Int("status", x.status),
		slog.Float64("latency_ms", float64(took.Microseconds())/1000),
		slog.String("client", x.r.RemoteAddr),
		slog.String("request_id", x.id))
	if x.route == nil {
		attrs = append(attrs, slog.String("path", x.r.URL.Path))
	} else {
		attrs = append(attrs,
			slog.String("route", x.name),
			slog.String("app", x.route.app),
			slog.String("deployment", x.route.deployment))
	}
	if x.replica != "" {
		attrs = append(attrs, slog.String("replica", x.replica))
	}
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		attrs = append(attrs, slog.String("trace_id", sc.TraceID().String()))
		if sc.IsSampled() { // else it is the caller's span, or nobody's
			attrs = append(attrs, slog.String("span_id", sc.SpanID().String()))
		}
	}
	if x.err != nil {
		attrs = append(attrs, slog.String("error", x.err.Error()))
	}
	p.log.LogAttrs(ctx, level, "request", attrs...)
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
