package httpproxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// record counts a request that has ended, and writes its line in the access log.
func (p *proxy) record(x *exchange) {
	defer p.recovered(x.r.Context()) // the log handler is the user's, and its panic must not end the response
	took := time.Since(x.arrived)
	p.counts.Done()
	ingress := p.unrouted
	if x.route != nil {
		ingress = x.route.ingress
	}
	method := semconv.Method(x.r.Method)
	if x.protocol == spans.WebSocket {
		method = semconv.MethodWebSocket
	}
	ingress.Done(metrics.Outcome{
		Route:   x.identity.Route,
		Method:  method,
		Status:  x.status,
		Failed:  spans.ProxyResult{StatusCode: x.status, Err: x.err}.Failed(x.protocol),
		Latency: took,
		Span:    x.spanContext,
	})
	ctx, level := x.ctx, x.level()
	if ctx == nil {
		ctx = context.WithoutCancel(x.r.Context())
	}
	if !p.shared.Log.Wants(ctx, level) {
		return
	}
	e := accesslog.Entry{
		Method: method, Status: x.status, Took: took, Client: x.r.RemoteAddr, RequestID: x.identity.ID,
		Route: x.identity.Route, App: x.identity.App, Deployment: x.identity.Deployment,
		Replica: x.assigned.UniqueID(), Err: x.err,
	}
	if x.route == nil {
		e.Path = x.r.URL.Path
	}
	p.shared.Log.Write(ctx, level, "request", e)
}

// level returns the level of the access log line. It is error if the handler failed. It
// is warning if the runtime ended a request after its response had begun, because the status
// of the response does not show that. Otherwise it is info, also for a refused request.
func (x *exchange) level() slog.Level {
	switch {
	case x.err == nil, errors.Is(x.err, cause.ErrClientGone):
		return slog.LevelInfo
	case cause.IsCancellation(x.err):
		if x.cut {
			return slog.LevelWarn
		}
	case x.cut, x.status == http.StatusInternalServerError:
		return slog.LevelError
	}
	return slog.LevelInfo
}
