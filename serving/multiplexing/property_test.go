package multiplexing_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/multiplexing"
	"github.com/servetrace/servetrace/tracing"
)

// ledger knows which models are in memory, and sees wrong ones.
type ledger struct {
	t  *testing.T
	mu sync.Mutex
	in map[string]*instance
	// most is how many there were at a time.
	most, loads, unloads int
}

// instance is one load of a model.
type instance struct {
	id       string
	users    int
	unloaded bool
}

var errByChance = errors.New("by chance")

func (l *ledger) load(ctx context.Context, id string) (*instance, error) {
	l.mu.Lock()
	if l.in[id] != nil {
		l.t.Errorf("%q is loaded twice at a time", id)
	}
	i := &instance{id: id}
	l.in[id] = i
	l.most = max(l.most, len(l.in))
	l.loads++
	l.mu.Unlock()

	var err error
	select {
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(time.Duration(rand.IntN(200)) * time.Microsecond):
		if rand.IntN(10) == 0 {
			err = errByChance
		}
	}
	if err != nil {
		l.remove(i)
		if rand.IntN(2) == 0 {
			panic(err)
		}
		return nil, err
	}
	return i, nil
}

func (l *ledger) remove(i *instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.in, i.id)
	i.unloaded = true
}

func (l *ledger) unload(_ context.Context, id string, i *instance) {
	l.mu.Lock()
	if i.users != 0 || i.id != id || i.unloaded {
		l.t.Errorf("%q is unloaded as %+v", id, i)
	}
	l.unloads++
	l.mu.Unlock()
	<-time.After(time.Duration(rand.IntN(200)) * time.Microsecond)
	l.remove(i)
}

// use is what a call does with a model: by then n of them use it.
func (l *ledger) use(i *instance, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i.users += n
	if i.unloaded {
		l.t.Errorf("%q is used and unloaded", i.id)
	}
}

// TestManyCallsConcurrentSafe runs random calls whose loads fail, panic and are
// cancelled at random. No model may be loaded twice at a time or unloaded while in use.
// The number of models must not exceed the limit and the number of running calls. In
// the end all models are unloaded.
func TestManyCallsConcurrentSafe(t *testing.T) {
	for _, tc := range []struct{ callers, room int }{
		{3, 4}, // never more than there is room for
		{16, 4},
	} {
		r := newRig()
		l := &ledger{t: t, in: map[string]*instance{}}
		m := multiplexing.New(l.load, multiplexing.WithMaxModels(tc.room), multiplexing.WithUnload(l.unload))
		var wg sync.WaitGroup
		for range tc.callers {
			wg.Go(func() {
				for range 200 {
					ctx, cancel := context.WithCancelCause(t.Context())
					if rand.IntN(4) == 0 {
						time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, func() { cancel(errByChance) })
					}
					id := strconv.Itoa(rand.IntN(8))
					ctx, end := r.call(ctx, id)
					i, err := m.Get(ctx)
					switch {
					case err != nil && !errors.Is(err, errByChance):
						t.Errorf("error %v", err)
					case err == nil && i.id != id:
						t.Errorf("%q for %q", i.id, id)
					case err == nil:
						l.use(i, 1)
						if again, err := m.Load(context.WithoutCancel(ctx), id); again != i || err != nil {
							t.Errorf("the second time: %p, %v, want %p", again, err, i)
						}
						l.use(i, -1)
					}
					end()
					cancel(nil)
				}
			})
		}
		wg.Wait()
		r.replica.Stop(t.Context())
		if len(l.in) != 0 || l.unloads == 0 || l.loads < l.unloads {
			t.Errorf("%d models are left; %d loads, %d unloads", len(l.in), l.loads, l.unloads)
		}
		if bound := max(tc.room, tc.callers); l.most > bound {
			t.Errorf("%d models at a time, with room for %d and %d calls", l.most, tc.room, tc.callers)
		}
		if told := r.router(); told[len(told)-1] != "" {
			t.Errorf("at last the router was told %q", told[len(told)-1])
		}
	}
}

// TestSpanOfALoad checks that the span of a load is the child of the first request that
// asked, and ends with the load. A request for a loaded model has no such span.
func TestSpanOfALoad(t *testing.T) {
	r := newRig()
	cfg, err := tracing.ConfigFromEnv(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	recorder := tracetest.NewSpanRecorder()
	provider, err := tracing.NewProvider(cfg, recorder)
	if err != nil {
		t.Fatal(err)
	}
	r.replica.Tracing = spans.New(provider)
	defer func() { _ = r.replica.Tracing.Provider.Shutdown(context.WithoutCancel(t.Context())) }()
	tracer := r.replica.Tracing.Provider.TracerProvider().Tracer("user")
	fail := true
	m := multiplexing.New(func(ctx context.Context, id string) (string, error) {
		_, span := tracer.Start(ctx, "fetch")
		defer span.End()
		if fail {
			return "", errByChance
		}
		return id, nil
	})
	for _, want := range []string{
		"fetch < model_load D a < handler (ERROR by chance)",
		"fetch < model_load D a < handler",
		"",
	} {
		ctx, end := r.call(t.Context(), "a")
		ctx, handler := tracer.Start(ctx, "handler")
		_, _ = m.Get(ctx) // the span tells
		handler.End()
		end()
		got := ""
		spans := recorder.Ended()
		if len(spans) == 3 {
			got = spans[0].Name() + " < " + spans[1].Name() + " < " + spans[2].Name()
			if spans[0].Parent().SpanID() != spans[1].SpanContext().SpanID() || spans[1].Parent().SpanID() != spans[2].SpanContext().SpanID() {
				t.Errorf("%q are not children of each other", got)
			}
			if d := spans[1].Status().Description; d != "" {
				got += " (ERROR " + d + ")"
			}
		}
		if got != want {
			t.Errorf("spans %q, want %q", got, want)
		}
		recorder.Reset()
		fail = false
	}
}

// BenchmarkGet measures a request for a model that is there.
func BenchmarkGet(b *testing.B) {
	r := newRig()
	m := multiplexing.New(func(_ context.Context, id string) (string, error) { return id, nil })
	b.ReportAllocs()
	for b.Loop() {
		ctx, end := r.call(b.Context(), "a")
		if _, err := m.Get(ctx); err != nil {
			b.Fatal(err)
		}
		end()
	}
}
