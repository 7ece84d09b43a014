package tracing

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// A context that lies in its caller's memory is one as any other.
func TestWithin(t *testing.T) {
	type key struct{}
	outer, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	var w Within
	_, spans := newRecorder(t).StartRouter(t.Context(), RouterStart{})
	ctx := w.withSpan(outer, spans.span)
	if ctx != &w || trace.SpanFromContext(ctx) != trace.Span(spans.span) || ctx.Value(key{}) != "value" {
		t.Errorf("%v has span %v and value %v", ctx, trace.SpanFromContext(ctx), ctx.Value(key{}))
	}
	inner, done := context.WithCancel(ctx)
	defer done()
	if cancel(errors.ErrUnsupported); inner.Err() == nil || context.Cause(inner) != errors.ErrUnsupported {
		t.Errorf("inside of a context that has ended: %v, %v", inner.Err(), context.Cause(inner))
	}
}

// Of starts that are told of the same memory, only the first has it.
func TestWithinIsForOneStart(t *testing.T) {
	p := sunk(t, 1)
	r := &Request{ID: "r1", Component: p.NewReplica("a", "D")}
	var w Within
	a, outer := p.StartReplica(t.Context(), ReplicaStart{Request: r})
	b, inner := p.StartReplica(a, ReplicaStart{Request: r})
	c, first := p.StartRouter(b, RouterStart{Within: &w})
	d, second := p.StartRouter(b, RouterStart{Within: &w})
	for i, at := range []struct {
		ctx  context.Context
		want trace.SpanContext
	}{{a, outer.Context()}, {b, inner.Context()}, {c, first.Context()}, {d, second.Context()}} {
		if got := trace.SpanContextFromContext(at.ctx); !got.Equal(at.want) || !got.IsValid() {
			t.Errorf("context %d has span %v, want %v", i, got, at.want)
		}
	}
	if c != context.Context(&w) || RequestFromContext(d) != r {
		t.Errorf("the first router's is %v, the request of the second is %v", c, RequestFromContext(d))
	}
}
