package serving_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/test/servingtest"
)

// TestCancellationCascades: the end of a request, whatever its cause, reaches
// the last of three deployments, and their spans show it.
func TestCancellationCascades(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cfg    serving.Config
		cause  error
		event  string
		status int
	}{
		{"disconnect", serving.Config{}, context.Canceled, typeCanceled, 0},
		{"timeout", serving.Config{RequestTimeout: roomyTimeout}, serving.ErrRequestTimeout, typeTimeout, 408},
	} {
		t.Run(tt.name, func(t *testing.T) {
			causes, entered := make(chan error, 1), make(chan struct{})
			c := functions("C")
			last := serving.AddFunction(c, "", func(ctx context.Context, _ int) (int, error) {
				_, bounded := ctx.Deadline()
				if want := tt.cfg.RequestTimeout > 0; bounded != want {
					t.Errorf("C has a deadline: %v, want %v", bounded, want)
				}
				close(entered)
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return 0, errors.New("its consequence")
			})
			b := functions("B")
			middle := serving.AddFunction(b, "", last.Call)
			r := caller(t, tt.cfg, func(_ http.ResponseWriter, r *http.Request) error {
				_, err := middle.Call(r.Context(), 1)
				return err
			}, b, c)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			got := make(chan answer, 1)
			go func() { got <- r.do(ctx, http.MethodGet, "/") }()
			servingtest.Receive(t, "C", entered)
			if tt.status == 0 {
				leave()
			}
			if cause := servingtest.Receive(t, "the cause in C", causes); cause != tt.cause {
				t.Errorf("cause in C: %v, want %v", cause, tt.cause)
			}
			if a := servingtest.Receive(t, "the answer", got); a.Status != tt.status {
				t.Errorf("client saw %+v", a)
			}
			for _, s := range r.spans.take(t, 7) {
				if d := digest(s); strings.HasPrefix(d, "replica") && !strings.HasSuffix(d, " event("+tt.event+" False)") {
					t.Errorf("%s: %s", s.Name(), d)
				}
			}
		})
	}
}

// TestGivingUpInTheQueue: a call whose context ends while it waits fails with
// the cause, and leaves no slot behind.
func TestGivingUpInTheQueue(t *testing.T) {
	b := functions("B", serving.WithMaxOngoingRequests(1))
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	h := serving.AddFunction(b, "", func(context.Context, int) (int, error) {
		entered <- struct{}{}
		<-leave
		return 1, nil
	})
	tired := errors.New("tired of waiting")
	r := caller(t, serving.Config{}, func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithCancelCause(r.Context())
		failed := make(chan error)
		go func() {
			_, err := h.Call(ctx, 2)
			failed <- err
		}()
		queued(t, b, 1)
		cancel(tired)
		if err := <-failed; err != tired {
			t.Errorf("the call failed with %v, want its cause", err)
		}
		close(leave)
		_, err := h.Call(r.Context(), 3)
		return err
	}, b)
	go func() { _, _ = h.Call(context.Background(), 1) }()
	servingtest.Receive(t, "the first call", entered)
	checkStatus(t, r.get("/"), 200)
	events := 0
	for _, s := range r.spans.take(t, 3+2+1+2) {
		if strings.HasPrefix(s.Name(), "route_to_replica B") && len(s.Events()) > 0 {
			events++
			if want := "route_to_replica no-http event(" + typeCanceled + " True)"; digest(s) != want {
				t.Errorf("router span %s, want %s", digest(s), want)
			}
			if _, ok := attr(s, "rpc.system"); !ok {
				t.Error("router span without the attributes of its end")
			}
		}
	}
	if events != 1 {
		t.Errorf("%d router spans with an event, want 1", events)
	}
}

// queued waits until n calls wait for a replica of d.
func queued(t *testing.T, d *serving.Deployment, n int) {
	t.Helper()
	servingtest.Await(t, "calls queued", func() bool { return d.Built().Replicas.Status().Queued == n })
}

// TestBackgroundCalls: outside of a request each call is one of its own.
func TestBackgroundCalls(t *testing.T) {
	b := functions("B")
	ids := serving.AddFunction(b, "id", func(ctx context.Context, _ int) (string, error) {
		return identity.RequestFromContext(ctx).ID, nil
	})
	r := caller(t, serving.Config{}, func(http.ResponseWriter, *http.Request) error { return nil }, b)
	seen := map[string]bool{}
	for range 2 {
		id, err := ids.Call(t.Context(), 0)
		if err != nil || len(id) != 36 {
			t.Errorf("request id %q, %v", id, err)
		}
		seen[id] = true
		spans := r.spans.take(t, 2)
		byName := chain(t, spans, "route_to_replica B id", "replica_handle_request B id")
		if byName["route_to_replica B id"].Parent().IsValid() {
			t.Error("the router span has a parent, want a trace of its own")
		}
		for _, s := range spans {
			if v, _ := attr(s, "request_id"); v.AsString() != id {
				t.Errorf("%q has request id %q, want %q", s.Name(), v.AsString(), id)
			}
		}
	}
	if len(seen) != 2 {
		t.Error("two calls have the same id")
	}
	// Work that outlives its request still belongs to it.
	ctx := identity.ContextWithRequest(t.Context(), &identity.Request{ID: "id-1"})
	if id, err := ids.Call(ctx, 0); id != "id-1" || err != nil {
		t.Errorf("request id %q, %v; want that of the context", id, err)
	}
}

// TestCallsBeforeAndAfter holds the texts that tell a programmer what is wrong.
func TestCallsBeforeAndAfter(t *testing.T) {
	b := functions("B")
	call := serving.AddFunction(b, "predict", func(context.Context, int) (int, error) { return 1, nil })
	stream := serving.AddStream(b, "", func(context.Context, int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) { yield(1, nil) }
	})
	check := func(when, why string) error {
		t.Helper()
		_, err := call.Call(t.Context(), 1)
		if want := `call predict of deployment "B": ` + why; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", when, err, want)
		}
		n := 0
		for _, err := range stream.Stream(t.Context(), 1) {
			n++
			if want := `call __call__ of deployment "B": ` + why; err == nil || err.Error() != want {
				t.Errorf("%s: stream: %v, want %s", when, err, want)
			}
		}
		if n != 1 {
			t.Errorf("%s: the stream gave %d, want the error alone", when, n)
		}
		return err
	}
	_ = check("before New", "no server has it: give it to NewApp, or to the app by WithDeployments, and the app to New")
	a := serving.NewApp("a", serving.NewDeployment("A", http.NotFoundHandler()), serving.WithDeployments(b))
	s, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"}, []*serving.App{a})
	if err != nil {
		t.Fatal(err)
	}
	_ = check("before Start", "its server has not started: call Server.Start first")
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := call.Call(t.Context(), 1); n != 1 || err != nil {
		t.Errorf("while it serves: %d, %v", n, err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := check("after Shutdown", "server is shutting down"); !errors.Is(err, serving.ErrShuttingDown) {
		t.Errorf("%v is not ErrShuttingDown", err)
	}
	if _, err := serving.New(serving.Config{}, []*serving.App{a}); err == nil || !strings.Contains(err.Error(), "a server has it already: build one for each") {
		t.Errorf("a second server: %v", err)
	}
}

// TestDrainWithCalls: while the server drains, what is in flight may call, and
// nothing else may. Shutdown waits for calls as for requests.
func TestDrainWithCalls(t *testing.T) {
	b := functions("B")
	entered, leave := make(chan context.Context, 3), make(chan struct{})
	held := serving.AddFunction(b, "held", func(ctx context.Context, _ int) (int, error) {
		entered <- ctx
		<-leave
		return 0, nil
	})
	quick := serving.AddFunction(b, "quick", func(ctx context.Context, n int) (int, error) { return n, nil })
	inA := make(chan context.Context, 1)
	goOn := make(chan struct{})
	r := caller(t, serving.Config{}, func(w http.ResponseWriter, r *http.Request) error {
		inA <- r.Context()
		<-goOn
		n, err := quick.Call(r.Context(), 42)
		_, _ = io.WriteString(w, strings.Repeat("x", n))
		return err
	}, b)
	over := make(chan context.Context, 2)
	go func() {
		ctx := <-inA
		over <- ctx
		over <- ctx
		goOn <- struct{}{}
	}()
	checkStatus(t, r.get("/"), 200)

	inFlight := make(chan answer, 1)
	go func() { inFlight <- r.get("/") }()
	servingtest.Receive(t, "the handler", inA)
	background := make(chan error, 1)
	go func() {
		_, err := held.Call(context.Background(), 0)
		background <- err
	}()
	inHeld := servingtest.Receive(t, "the call", entered)

	done := r.shutdown(t.Context())
	if _, err := quick.Call(t.Context(), 0); !errors.Is(err, serving.ErrShuttingDown) {
		t.Errorf("a new call: %v, want ErrShuttingDown", err)
	}
	if _, err := quick.Call(<-over, 0); !errors.Is(err, serving.ErrShuttingDown) {
		t.Errorf("a call for a request that is over: %v, want ErrShuttingDown", err)
	}
	if n, err := quick.Call(inHeld, 1); n != 1 || err != nil {
		t.Errorf("a call inside of one in flight: %d, %v", n, err)
	}
	batch := scope.NewCall(scope.FromContext(inHeld).Replica)
	inBatch := scope.ContextWithCall(context.WithoutCancel(<-over), batch) // its first member is over, others are not
	if n, err := quick.Call(inBatch, 1); n != 1 || err != nil {
		t.Errorf("a call inside of a batch: %d, %v", n, err)
	}
	batch.End()
	if _, err := quick.Call(inBatch, 1); !errors.Is(err, serving.ErrShuttingDown) {
		t.Errorf("a call after its batch: %v, want ErrShuttingDown", err)
	}
	goOn <- struct{}{}
	if got := servingtest.Receive(t, "the answer", inFlight); got.Status != 200 || len(got.Body) != 42 {
		t.Errorf("the request in flight: %+v", got)
	}
	select {
	case err := <-done:
		t.Errorf("Shutdown returned (%v) while a call runs", err)
	default:
	}
	close(leave)
	if err := servingtest.Receive(t, "the call's end", background); err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := servingtest.Receive(t, "Shutdown", done); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := quick.Call(inHeld, 1); !errors.Is(err, serving.ErrShuttingDown) {
		t.Errorf("a call after all: %v, want ErrShuttingDown", err)
	}
}

// TestHandlesConcurrentSafe: whatever happens to calls, in the end every slot is
// free and nothing is counted as under way.
func TestHandlesConcurrentSafe(t *testing.T) {
	c := functions("C", serving.WithMaxOngoingRequests(2))
	left := make(chan int, 1)
	go func() {
		for range left {
		}
	}()
	numbers := serving.AddStream(c, "", count(left))
	b := functions("B", serving.WithReplicas(2), serving.WithMaxOngoingRequests(2), serving.WithMaxQueuedRequests(4))
	sum := serving.AddFunction(b, "", func(ctx context.Context, i int) (int, error) {
		if i%7 == 0 {
			panic(i)
		}
		total := 0
		for n, err := range numbers.Stream(ctx, i%5+1) {
			if err != nil || i%3 == 0 && n == 1 {
				return total, err
			}
			total += n
		}
		return total, nil
	})
	r := caller(t, serving.Config{}, func(http.ResponseWriter, *http.Request) error { return nil }, b, c)
	var ends sync.Map // kind of end → how many
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if (g+i)%4 == 0 {
					go cancel()
				}
				_, err := sum.Call(ctx, i)
				cancel()
				n, _ := ends.LoadOrStore(fmt.Sprintf("%T", err), new(atomic.Int32))
				n.(*atomic.Int32).Add(1)
			}
		})
	}
	wg.Wait()
	close(left)
	for _, kind := range []string{"<nil>", "*tracing.PanicError"} {
		if n, ok := ends.Load(kind); !ok || n.(*atomic.Int32).Load() == 0 {
			t.Errorf("no call ended with %s: the test does not show much", kind)
		}
	}
	if n := r.ongoing(); n != 0 {
		t.Errorf("%v slots are taken", n)
	}
	if requests, handlers := r.server.Counter().Counts(); requests != 0 || handlers != 0 {
		t.Errorf("under way: %d requests, %d handlers", requests, handlers)
	}
}

// TestModelID: a handle names the model; the caller's own is not handed on.
func TestModelID(t *testing.T) {
	type seen struct{ Middle, Last string }
	c, b := functions("C"), functions("B")
	last := serving.AddFunction(c, "", func(ctx context.Context, _ int) (string, error) { return serving.ModelID(ctx), nil })
	middle := serving.AddFunction(b, "", func(ctx context.Context, _ int) (seen, error) {
		id, err := last.Call(ctx, 0)
		return seen{serving.ModelID(ctx), id}, err
	})
	r := caller(t, serving.Config{}, func(_ http.ResponseWriter, r *http.Request) error {
		if id := serving.ModelID(r.Context()); id != "" {
			t.Errorf("in A: model %q", id)
		}
		got, err := middle.WithModelID("m1").Call(r.Context(), 0)
		if want := (seen{Middle: "m1"}); got != want {
			t.Errorf("with a model: %+v, want %+v", got, want)
		}
		if got, _ := middle.Call(r.Context(), 0); got != (seen{}) {
			t.Errorf("WithModelID changed the handle itself: %+v", got)
		}
		return err
	}, b, c)
	checkStatus(t, r.get("/"), 200)
	models := map[string]int{}
	for _, s := range r.spans.take(t, 3+8) {
		if id, ok := attr(s, "multiplexed_model_id"); ok && id.AsString() != "" {
			models[family(s)+" "+id.AsString()]++
		}
	}
	if diff := cmp.Diff(map[string]int{"route_to_replica B m1": 1, "replica_handle_request B m1": 1}, models); diff != "" {
		t.Errorf("spans with a model (-want +got):\n%s", diff)
	}
	if id := serving.ModelID(t.Context()); id != "" {
		t.Errorf("outside of a call: %q", id)
	}
}

func TestFaultsOfDeploymentsInApps(t *testing.T) {
	handler := http.NotFoundHandler()
	idle := functions("idle")
	twice := functions("twice")
	serving.AddFunction(twice, "", func(context.Context, int) (int, error) { return 0, nil })
	serving.AddFunction(twice, "__call__", func(context.Context, int) (int, error) { return 0, nil })
	serving.AddFunction[int, int](twice, "a b", nil)
	_, err := serving.New(serving.Config{}, []*serving.App{
		serving.NewApp("a", serving.NewDeployment("A", handler), serving.WithDeployments(idle, nil), serving.WithDeployments(twice)),
		serving.NewApp("b", serving.NewDeployment("B", handler), serving.WithDeployments(twice, functions("B")), serving.WithRoutePrefix("/b")),
	})
	faults := `deployment "twice": method "__call__": added twice
method "a b": want 1 to 63 letters, digits, '-', '_' or '.', or "" for __call__
method "a b": no function`
	want := `app "a": deployment "idle": no functions: nothing can call it; see AddFunction
deployment 1 of WithDeployments is nil
` + faults + `
app "b": ` + faults + `
deployment "B": name used twice
app "b": deployment "twice" already belongs to app "a": build one for each`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}
