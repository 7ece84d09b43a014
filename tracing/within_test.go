package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
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

// Of those who ask first at once, none gets what is not the span's, or the call's.
func TestFirstWhoAskConcurrentSafe(t *testing.T) {
	component := Off().NewProxy()
	for range 2000 {
		var s unsampled
		if a, b := atOnce(s.SpanContext); !a.Equal(b) || !a.Equal(s.SpanContext()) {
			t.Fatalf("spans %v and %v, then %v", a, b, s.SpanContext())
		}
		r := Request{Component: component}
		if a, b := atOnce(r.TaskID); a != b || a != r.TaskID() {
			t.Fatalf("tasks %v and %v, then %v", a, b, r.TaskID())
		}
	}
}

// atOnce calls do twice, as nearly at once as can be.
func atOnce[T any](do func() T) (a, b T) {
	var got [2]T
	var ready atomic.Int32
	var group sync.WaitGroup
	for i := range got {
		group.Go(func() {
			ready.Add(1)
			for spun := 1; ready.Load() < int32(len(got)); spun++ {
				if spun%10_000 == 0 {
					runtime.Gosched()
				}
			}
			got[i] = do()
		})
	}
	group.Wait()
	return got[0], got[1]
}

// Who does not go by the parent decides anew, in its trace: also under a span that has
// drawn no ids so far.
func TestDecisionOfAnotherProvider(t *testing.T) {
	for _, sampled := range []bool{false, true} {
		outer, sampler := sunk(t, 0), AlwaysOn
		if sampled {
			outer, sampler = sunk(t, 1), AlwaysOff
		}
		r := newRecorder(t, func(c *Config) { c.Sampler = sampler })
		ctx, _ := outer.StartRouter(t.Context(), RouterStart{})
		inner, span := r.StartRouter(ctx, RouterStart{})
		span.End(RouterResult{})
		of, sc, spans := trace.SpanContextFromContext(ctx), trace.SpanContextFromContext(inner), r.exporter.GetSpans()
		if of.IsSampled() != sampled || sc.IsSampled() == sampled || sc.TraceID() != of.TraceID() || !of.IsValid() || sampled != (len(spans) == 0) {
			t.Errorf("under %v there is %v, with spans %+v", of, sc, spans)
		}
		for _, s := range spans {
			if !s.Parent.Equal(of) {
				t.Errorf("the parent is %v, want %v", s.Parent, of)
			}
		}
	}
}

// Only the span's key is that: not one of another type whose value is the same, and
// none that can not be compared.
func TestWithinLeavesOtherKeys(t *testing.T) {
	type key int
	var w Within
	ctx := context.WithValue(t.Context(), key(0), "other")
	ctx, _ = sunk(t, 1).StartRouter(ctx, RouterStart{Within: &w})
	if ctx != context.Context(&w) || ctx.Value(key(0)) != "other" || ctx.Value(spanKey) != w.span || w.span == nil {
		t.Errorf("values %v and %v", ctx.Value(key(0)), ctx.Value(spanKey))
	}
	for _, other := range []any{nil, 0, key(1), "", struct{}{}, &w, context.Canceled, [2]any{1, 2}, []int{1}, func() {}, map[string]int{}} {
		if isSpanKey(other) {
			t.Errorf("%T is taken for the span's key", other)
		}
	}
}
