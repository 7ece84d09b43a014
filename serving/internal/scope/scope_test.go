package scope_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving/internal/scope"
)

// TestValueConcurrentSafe: one per replica and key, whoever comes first.
func TestValueConcurrentSafe(t *testing.T) {
	var r, other scope.Replica
	type key string
	var made atomic.Int32
	newOne := func() any { made.Add(1); return new(int) }
	got := make([]any, 16)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = r.Value(key("a"), newOne) })
	}
	wg.Wait()
	for i, v := range got {
		if v != got[0] {
			t.Errorf("use %d gives another value", i)
		}
	}
	if r.Value(key("b"), newOne) == got[0] || other.Value(key("a"), newOne) == got[0] {
		t.Error("another key, or another replica, has the same value")
	}
	if n := made.Load(); n != 3 {
		t.Errorf("made %d values, want 3", n)
	}
}

// TestValueThatPanics is made at the next use.
func TestValueThatPanics(t *testing.T) {
	var r scope.Replica
	func() {
		defer func() { _ = recover() }()
		r.Value("key", func() any { panic("boom") })
	}()
	if got := r.Value("key", func() any { return 1 }); got != 1 {
		t.Errorf("got %v, want 1", got)
	}
}

func TestValueOnceMadeAllocatesNothing(t *testing.T) {
	var r scope.Replica
	key := new(int)
	n := 0
	got := testing.AllocsPerRun(100, func() { r.Value(key, func() any { n++; return key }) })
	if got != 0 || n != 1 {
		t.Errorf("%v allocations a use and %d values, want 0 and 1", got, n)
	}
}

// TestEndings: the last registered first, once; what comes late at once.
func TestEndings(t *testing.T) {
	var order []string
	note := func(what string) func() { return func() { order = append(order, what) } }
	c := scope.NewCall(new(scope.Replica))
	if got := scope.FromContext(scope.ContextWithCall(t.Context(), c)); got != c {
		t.Errorf("the context's call is %v, want %v", got, c)
	}
	c.OnEnd(note("first"))
	c.OnEnd(note("second"))
	if c.Ended() {
		t.Error("ended before its end")
	}
	c.End()
	c.OnEnd(note("late"))
	if !c.Ended() {
		t.Error("not ended")
	}
	if diff := cmp.Diff([]string{"second", "first", "late"}, order); diff != "" {
		t.Errorf("a call's end (-want +got):\n%s", diff)
	}

	order = nil
	var r scope.Replica
	type key struct{}
	stop := func(what string) func(context.Context) {
		return func(ctx context.Context) { order = append(order, what+" "+ctx.Value(key{}).(string)) }
	}
	ctx := context.WithValue(t.Context(), key{}, "ctx")
	r.OnStop(stop("first"))
	r.OnStop(stop("second"))
	r.Stop(ctx)
	r.Stop(ctx)
	r.OnStop(stop("late"))
	if diff := cmp.Diff([]string{"second ctx", "first ctx", "late ctx"}, order); diff != "" {
		t.Errorf("a replica's end (-want +got):\n%s", diff)
	}
}

func TestContextOutsideOfAReplica(t *testing.T) {
	if scope.FromContext(t.Context()) != nil {
		t.Error("a context outside of a replica has a call")
	}
}
