package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
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

// The ids of an unsampled span are drawn for who asks first, and are the same for all:
// in the handler, in what it sends on, and in a context that is left of the request.
// Who prints the context meanwhile reads nothing that changes.
func TestUnsampledIDsAreDrawnOnceConcurrentSafe(t *testing.T) {
	p := sunk(t, 0)
	r := &Request{ID: "r1", Component: p.NewProxy()}
	ctx, span := p.StartProxy(t.Context(), ProxyStart{Request: r})
	ctx, router := p.StartRouter(ctx, RouterStart{})
	if span.Recording() || router.Recording() || ctx != context.Context(&r.within) {
		t.Fatalf("recording %t and %t, in %v", span.Recording(), router.Recording(), ctx)
	}
	if own, is := r.within.span.(*unsampled); !is || own.ids.Load() != nil {
		t.Fatalf("%T with ids that nobody has asked for", r.within.span)
	}
	var found [8]trace.SpanContext
	var wg sync.WaitGroup
	for i := range found {
		wg.Go(func() {
			_ = fmt.Sprint(ctx)
			header := http.Header{}
			p.Inject(TraceContext(ctx), header)
			found[i] = trace.SpanContextFromContext(p.Extract(context.Background(), header)).WithRemote(false)
		})
	}
	wg.Wait()
	own := trace.SpanFromContext(ctx)
	for _, sc := range found {
		if !sc.Equal(own.SpanContext()) || !sc.IsValid() || sc.IsSampled() || own.IsRecording() {
			t.Errorf("found %v, want %v", sc, own.SpanContext())
		}
	}
	if own.TracerProvider() != p.TracerProvider() {
		t.Error("a span that is made by an unsampled one's provider does not reach the pipeline")
	}
}
