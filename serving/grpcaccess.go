package serving

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// record puts a call that has ended into the metrics and the access log.
func (p *grpcProxy) record(c *rpc) {
	took := time.Since(c.stream.arrived)
	p.metrics.Done()
	o := metrics.Outcome{
		Method:  semconv.MethodOther,
		Code:    codeName(c.code),
		Latency: took,
		Span:    c.span,
	}
	o.Failed = spans.ProxyResult{GRPCCode: o.Code, Err: rpcFailure(c.err)}.Failed(spans.GRPC)
	ingress := p.unrouted
	if c.app != nil {
		ingress, o.Route = c.app.ingress, c.app.app
	}
	if c.method != nil {
		o.Method = c.full
	}
	ingress.Done(o)
	ctx, level := c.ctx, c.level()
	if ctx == nil {
		ctx = context.WithoutCancel(c.stream.stream.Context())
	}
	if !p.access.enabled(ctx, level) {
		return
	}
	e := entry{method: cutAt(c.full, mostPath), code: o.Code, took: took, requestID: c.request.ID, route: o.Route, replica: c.place.uniqueID(), err: c.err}
	if c.app != nil {
		e.app, e.deployment = c.app.app, c.app.deployment
	}
	if from := peerOf(ctx); from != nil {
		e.client = from.String()
	}
	p.access.write(ctx, level, "request", e)
}

// level is the access log's, as of HTTP: a call that failed for the server's own
// reasons is an error; one that was turned away, or given up, is none, and
// neither is a status that the handler gave for the client's doing.
func (c *rpc) level() slog.Level {
	switch {
	case rpcFailure(c.err) == nil, isCancellation(c.err):
		return slog.LevelInfo
	case c.code == codes.ResourceExhausted, errors.Is(c.err, context.Canceled):
		return slog.LevelInfo
	}
	return slog.LevelError
}
