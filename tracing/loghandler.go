package tracing

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
)

// The keys that the handler of [NewLogHandler] adds. The access log uses the same keys.
const (
	LogRequestID  = "request_id"
	LogApp        = "app"
	LogDeployment = "deployment"
	LogReplica    = "replica"  // unique id
	LogTraceID    = "trace_id" // 32 hexadecimal digits
	LogSpanID     = "span_id"  // 16 hexadecimal digits
)

// NewLogHandler returns a handler that adds the ids of the request and the trace to each
// line of next: request_id, app, deployment, replica, trace_id and span_id, as far as the
// line's context has them. Code of a replica outside of a request (the start, the health
// checks and the stop of the replica) gets app, deployment and replica. Lines must be
// logged with a context, as by [slog.InfoContext]. The span is the current span of the
// context; span_id is omitted if it is not sampled. replica is omitted in a proxy.
//
// The keys are added at the top level, even if the logger has open groups. If the line or
// its logger already has a key, the key keeps its value. Lines without any of these ids
// are unchanged. The handler is safe for concurrent use if next is.
func NewLogHandler(next slog.Handler) slog.Handler { return &logHandler{next: next} }

type logHandler struct {
	next slog.Handler // has all groups and attributes of the logger
	// ungrouped is the handler before the first group was opened. replay adds the groups and
	// attributes that were added after that. With both, Handle can put the ids in front of the
	// groups. If no group is open, both are nil, because Handle then adds the ids to the record.
	ungrouped slog.Handler
	replay    []func(slog.Handler) slog.Handler
	// keys are the keys of the attributes that the logger has at the top level.
	keys []string
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
	attrs = slices.Clone(attrs) // the caller may change attrs, and replay keeps attrs
	with := h.apply(func(n slog.Handler) slog.Handler { return n.WithAttrs(attrs) })
	if h.ungrouped == nil {
		for _, a := range attrs {
			with.keys = append(with.keys[:len(with.keys):len(with.keys)], a.Key)
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
	if group.ungrouped == nil {
		group.ungrouped = h.next
	}
	return group.apply(func(n slog.Handler) slog.Handler { return n.WithGroup(name) })
}

// apply returns a copy of h with the group or the attributes that f adds to a handler.
func (h *logHandler) apply(f func(slog.Handler) slog.Handler) *logHandler {
	c := *h
	c.next = f(h.next)
	if c.ungrouped != nil {
		c.replay = append(c.replay[:len(c.replay):len(c.replay)], f)
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
	case h.ungrouped == nil:
		r = r.Clone() // the caller may use its record again
		r.AddAttrs(ids...)
		return h.next.Handle(ctx, r)
	}
	next := h.ungrouped.WithAttrs(slices.Clone(ids))
	for _, f := range h.replay {
		next = f(next)
	}
	return next.Handle(ctx, r)
}

// ids appends the ids of the request and the trace in ctx to ids. It omits an id if the record
// or the logger has its key already.
func (h *logHandler) ids(ctx context.Context, r slog.Record, ids []slog.Attr) []slog.Attr {
	add := func(key, value string) {
		if value != "" && !slices.Contains(h.keys, key) {
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
		if sc.IsSampled() { // otherwise this process does not record the span
			add(LogSpanID, sc.SpanID().String())
		}
	}
	if h.ungrouped == nil && len(ids) > 0 {
		r.Attrs(func(a slog.Attr) bool {
			ids = slices.DeleteFunc(ids, func(id slog.Attr) bool { return id.Key == a.Key })
			return len(ids) > 0
		})
	}
	return ids
}
