package grpcproxy

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// record counts a call that has ended, and writes its line in the access log.
func (p *proxy) record(c *call) {
	took := time.Since(c.stream.arrived)
	p.counts.Done()
	o := metrics.Outcome{
		Method:  semconv.MethodOther,
		Code:    codeName(c.code),
		Latency: took,
		Span:    c.span,
	}
	o.Failed = spans.ProxyResult{GRPCCode: o.Code, Err: failure(c.err)}.Failed(spans.GRPC)
	e := accesslog.Entry{Method: accesslog.Cut(c.full), Code: o.Code, Took: took, RequestID: c.request.ID, Replica: c.assigned.UniqueID(), Err: c.err}
	ingress := p.unrouted
	if c.app != nil {
		ingress, o.Route = c.app.counts, c.app.Ingress.App
		e.Route, e.App, e.Deployment = o.Route, o.Route, c.app.Ingress.Name
	}
	if c.method != nil {
		o.Method = c.full
	}
	ingress.Done(o)
	ctx, level := c.ctx, c.level()
	if ctx == nil {
		ctx = context.WithoutCancel(c.stream.stream.Context())
	}
	if !p.shared.Log.Wants(ctx, level) {
		return
	}
	if from := peerOf(ctx); from != nil {
		e.Client = from.String()
	}
	p.shared.Log.Write(ctx, level, "request", e)
}

// level returns the level of the access log line. It is error if the handler failed. It is
// info for an ordinary answer, for a call that was refused, for a call that the client or
// the runtime ended, and for a status that means a fault of the client.
func (c *call) level() slog.Level {
	switch {
	case failure(c.err) == nil, cause.IsCancellation(c.err):
		return slog.LevelInfo
	case cause.IsRefusal(c.err), c.code == codes.ResourceExhausted, errors.Is(c.err, context.Canceled):
		return slog.LevelInfo
	}
	return slog.LevelError
}
