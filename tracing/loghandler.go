package tracing

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
)

// The keys that a handler of [NewLogHandler] adds, which are those of the access
// log.
const (
	LogRequestID  = "request_id"
	LogApp        = "app"
	LogDeployment = "deployment"
	LogReplica    = "replica"  // unique id
	LogTraceID    = "trace_id" // 32 hexadecimal digits
	LogSpanID     = "span_id"  // 16
)

// NewLogHandler gives a handler that adds to each line of next what its context
// says of the request and the trace that it is about: request_id, app,
// deployment, replica, trace_id and span_id, those that there are. Outside of a
// request a replica's own code (its start, its health checks, its end) has app,
// deployment and replica. It needs the context, as [slog.InfoContext] and its like take it. The span is the one that
// is current there, and stays away where it is not sampled; replica stays away in
// a proxy.
//
// The keys stand at the top, whatever groups the logger has open, and one that
// the line or its logger has already keeps its value. Lines without any of
// these stay as they are. The handler is safe for concurrent use if next is.
func NewLogHandler(next slog.Handler) slog.Handler { return &logHandler{next: next} }

type logHandler struct {
	next slog.Handler // with all groups and attributes, as without this handler
	// bare is next as it was before the first group was opened, and since is what
	// came after. Nil where no group is open: then attributes of a record stand at
	// the top anyway.
	bare  slog.Handler
	since []func(slog.Handler) slog.Handler
	// has are those of our keys that the logger has at the top.
	has []string
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	attrs = slices.Clone(attrs) // the caller may change them, and they may be needed again
	with := h.open(func(n slog.Handler) slog.Handler { return n.WithAttrs(attrs) })
	if h.bare == nil {
		for _, a := range attrs {
			with.has = append(with.has[:len(with.has):len(with.has)], a.Key)
		}
	}
	return with
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	group := *h
	if group.bare == nil {
		group.bare = h.next
	}
	return group.open(func(n slog.Handler) slog.Handler { return n.WithGroup(name) })
}

// open gives a copy on which f was done.
func (h *logHandler) open(f func(slog.Handler) slog.Handler) *logHandler {
	c := *h
	c.next = f(h.next)
	if c.bare != nil {
		c.since = append(c.since[:len(c.since):len(c.since)], f)
	}
	return &c
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	var room [6]slog.Attr
	ids := h.ids(ctx, r, room[:0])
	switch {
	case len(ids) == 0:
		return h.next.Handle(ctx, r)
	case h.bare == nil:
		r = r.Clone() // whoever made it may go on with it
		r.AddAttrs(ids...)
		return h.next.Handle(ctx, r)
	}
	next := h.bare.WithAttrs(slices.Clone(ids))
	for _, f := range h.since {
		next = f(next)
	}
	return next.Handle(ctx, r)
}

// ids appends what ctx says and neither the record nor the logger has.
func (h *logHandler) ids(ctx context.Context, r slog.Record, ids []slog.Attr) []slog.Attr {
	add := func(key, value string) {
		if value != "" && !slices.Contains(h.has, key) {
			ids = append(ids, slog.String(key, value))
		}
	}
	if req := identity.RequestFromContext(ctx); req != nil {
		add(LogRequestID, req.ID)
		add(LogApp, req.App)
		add(LogDeployment, req.Deployment)
		if req.Component != nil {
			add(LogReplica, req.Component.UniqueID())
		}
	} else if c := identity.ReplicaFromContext(ctx); c != nil {
		add(LogApp, c.App())
		add(LogDeployment, c.Deployment())
		add(LogReplica, c.UniqueID())
	}
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		add(LogTraceID, sc.TraceID().String())
		if sc.IsSampled() { // else it is the caller's span, or nobody's
			add(LogSpanID, sc.SpanID().String())
		}
	}
	if h.bare == nil && len(ids) > 0 {
		r.Attrs(func(a slog.Attr) bool {
			ids = slices.DeleteFunc(ids, func(id slog.Attr) bool { return id.Key == a.Key })
			return len(ids) > 0
		})
	}
	return ids
}
