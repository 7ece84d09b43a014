package multiplexing_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/serving/multiplexing"
	"github.com/servetrace/servetrace/tracing"
)

// TestLeastRecentlyUsed has one call after the other ask for a model each, with
// room for three. Loads and unloads take a second each.
func TestLeastRecentlyUsed(t *testing.T) {
	for _, tc := range []struct {
		name string
		max  int
		ids  string
		want []string
	}{
		{"all fit", 3, "a b c a b c a", []string{"load a at 0s", "load b at 1s", "load c at 2s"}},
		{"the oldest goes, before the new one comes", 3, "a b c d", []string{
			"load a at 0s", "load b at 1s", "load c at 2s", "unload a at 3s", "unloaded a at 4s", "load d at 4s",
		}},
		{"a use keeps it", 3, "a b c a d a", []string{
			"load a at 0s", "load b at 1s", "load c at 2s", "unload b at 3s", "unloaded b at 4s", "load d at 4s",
		}},
		{"one at a time", 1, "a b a", []string{
			"load a at 0s", "unload a at 1s", "unloaded a at 2s", "load b at 2s",
			"unload b at 3s", "unloaded b at 4s", "load a at 4s",
		}},
		{"any number", -1, "a b c d e a", []string{
			"load a at 0s", "load b at 1s", "load c at 2s", "load d at 3s", "load e at 4s",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, s := newRig(), newShop()
				m := s.models(multiplexing.WithMaxModels(tc.max))
				for id := range strings.SplitSeq(tc.ids, " ") {
					ctx, end := r.call(t.Context(), id)
					if a := <-s.ask(ctx, m); a.Model != "model "+id || a.Err != "" {
						t.Errorf("%q gives %+v", id, a)
					}
					end()
				}
				if diff := cmp.Diff(tc.want, s.all()); diff != "" {
					t.Errorf("what happens (-want +got):\n%s", diff)
				}
				r.replica.Stop(t.Context())
			})
		})
	}
}

// TestAnnounceBeforeLoadAndUnload checks that a model is announced before it is loaded,
// and withdrawn before it is unloaded.
func TestAnnounceBeforeLoadAndUnload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(), newShop()
		m := s.models(multiplexing.WithMaxModels(1))
		other := multiplexing.New(s.load) // of the same replica
		ask := func(m *multiplexing.Models[string], id string) {
			ctx, end := r.call(t.Context(), id)
			defer end()
			ch := s.ask(ctx, m)
			synctest.Wait()
			if told := r.router(); !strings.Contains(told[len(told)-1], id) {
				t.Errorf("while %q is being loaded, the router knows %q", id, told)
			}
			<-ch
		}
		ask(m, "b")
		ask(other, "a")
		ask(m, "c")
		s.fail = map[string]error{"d": errors.New("no luck")}
		ask(m, "d")
		r.replica.Stop(t.Context())
		want := []string{
			"b", "a b",
			"a c",      // b is being unloaded for it
			"a d", "a", // c is, and then there is no d
			"",
		}
		if diff := cmp.Diff(want, r.router()); diff != "" {
			t.Errorf("the router is told (-want +got):\n%s", diff)
		}
	})
}

// TestOneLoadForAll checks that one load serves all requests that wait for it, also two
// of one call.
func TestOneLoadForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(), newShop()
		m := s.models()
		var answers []<-chan gotten
		for range 3 {
			ctx, end := r.call(t.Context(), "a")
			defer end()
			answers = append(answers, s.ask(ctx, m), s.ask(ctx, m))
			time.Sleep(100 * time.Millisecond)
		}
		for _, ch := range answers {
			if diff := cmp.Diff(gotten{Model: "model a", At: time.Second}, <-ch); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		}
		if diff := cmp.Diff([]string{"load a at 0s"}, s.all()); diff != "" {
			t.Errorf("what happens (-want +got):\n%s", diff)
		}
	})
}

// TestFailedLoad checks that all waiting requests get the error, and that the next
// request tries again.
func TestFailedLoad(t *testing.T) {
	wrong := errors.New("no luck")
	for _, tc := range []struct {
		name   string
		break_ func(*shop) //nolint:revive // break is a keyword
		want   string
		wanted error
		logged int
	}{
		{"error", func(s *shop) { s.fail = map[string]error{"a": wrong} }, `load model "a": no luck`, wrong, 0},
		{"panic", func(s *shop) { s.panic = map[string]any{"a": wrong} }, `load model "a": panic: no luck`, wrong, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, s := newRig(), newShop()
				m := s.models()
				tc.break_(s)
				errs := make(chan error, 2)
				for range 2 {
					ctx, end := r.call(t.Context(), "a")
					go func() {
						defer end()
						_, err := m.Get(ctx)
						errs <- err
					}()
				}
				for range 2 {
					err := <-errs
					if err == nil || err.Error() != tc.want || !errors.Is(err, tc.wanted) {
						t.Errorf("error %v, want %s", err, tc.want)
					}
					if p, ok := errors.AsType[*tracing.PanicError](err); ok != (tc.logged > 0) || ok && len(p.Stack) == 0 {
						t.Errorf("error %#v", err)
					}
				}
				if n := r.log.Count("load of a model panicked"); n != tc.logged {
					t.Errorf("%d lines in the log, want %d", n, tc.logged)
				}
				s.fail, s.panic = nil, nil
				ctx, end := r.call(t.Context(), "a")
				defer end()
				if a := <-s.ask(ctx, m); a.Model != "model a" {
					t.Errorf("afterwards %+v", a)
				}
				if diff := cmp.Diff([]string{"load a at 0s", "load a at 1s"}, s.all()); diff != "" {
					t.Errorf("what happens (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestLoadCallsGoexit checks that runtime.Goexit in a load is an ordinary failure.
func TestLoadCallsGoexit(t *testing.T) {
	r := newRig()
	m := multiplexing.New(func(context.Context, string) (string, error) { runtime.Goexit(); return "", nil })
	ctx, end := r.call(t.Context(), "a")
	defer end()
	if _, err := m.Get(ctx); err == nil || err.Error() != `load model "a": function called runtime.Goexit` {
		t.Errorf("error %v", err)
	}
}

// TestLoadIsCancelledWithoutWaiters checks that a load goes on while any request waits.
func TestLoadIsCancelledWithoutWaiters(t *testing.T) {
	gone := errors.New("gone fishing")
	const ms = time.Millisecond
	for _, tc := range []struct {
		name  string
		leave []time.Duration // when each leaves; 0: not at all
		late  time.Duration   // when another comes; 0: none
		want  []gotten
		lines []string
	}{
		{"one leaves", []time.Duration{500 * ms, 0}, 0,
			[]gotten{{Err: "gone fishing", At: 500 * ms}, {Model: "model a", At: time.Second}},
			[]string{"load a at 0s"}},
		{"all leave", []time.Duration{500 * ms, 600 * ms}, 0,
			[]gotten{{Err: "gone fishing", At: 500 * ms}, {Err: "gone fishing", At: 600 * ms}},
			[]string{"load a at 0s", "cancelled a: no request waits for the model any more: context canceled at 600ms"}},
		{"another comes when all have left", []time.Duration{500 * ms}, 700 * ms,
			[]gotten{{Err: "gone fishing", At: 500 * ms}, {Model: "model a", At: 1700 * ms}},
			[]string{
				"load a at 0s", "cancelled a: no request waits for the model any more: context canceled at 500ms",
				"load a at 700ms",
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, s := newRig(), newShop()
				m := s.models()
				var answers []<-chan gotten
				for _, when := range tc.leave {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if when > 0 {
						time.AfterFunc(when, func() { cancel(gone) })
					}
					ctx, end := r.call(ctx, "a")
					defer end()
					answers = append(answers, s.ask(ctx, m))
				}
				if tc.late > 0 {
					time.Sleep(tc.late)
					ctx, end := r.call(t.Context(), "a")
					defer end()
					answers = append(answers, s.ask(ctx, m))
				}
				for i, ch := range answers {
					if diff := cmp.Diff(tc.want[i], <-ch); diff != "" {
						t.Errorf("answer %d (-want +got):\n%s", i, diff)
					}
				}
				synctest.Wait()
				if diff := cmp.Diff(tc.lines, s.all()); diff != "" {
					t.Errorf("what happens (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestCancelledLoadThatSucceeds checks that such a model is kept, or unloaded if a
// newer load needs its room.
func TestCancelledLoadThatSucceeds(t *testing.T) {
	for _, tc := range []struct {
		late time.Duration // when another asks
		want []string
	}{
		{2 * time.Second, []string{"load a at 0s"}},
		{700 * time.Millisecond, []string{"load a at 0s", "unload a at 1s", "unloaded a at 2s", "load a at 2s"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, s := newRig(), newShop()
			m := multiplexing.New(func(ctx context.Context, id string) (string, error) {
				return s.load(context.WithoutCancel(ctx), id)
			}, multiplexing.WithUnload(s.unload))
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			ctx, end := r.call(ctx, "a")
			<-s.ask(ctx, m)
			end()
			time.Sleep(tc.late - 500*time.Millisecond)
			ctx, end = r.call(t.Context(), "a")
			defer end()
			if a := <-s.ask(ctx, m); a.Model != "model a" {
				t.Errorf("%+v", a)
			}
			if diff := cmp.Diff(tc.want, s.all()); diff != "" {
				t.Errorf("what happens (-want +got):\n%s", diff)
			}
		})
	}
}

// TestModelsInUseStay has two calls use a model each, with room for one. Both models
// are held until a call ends.
func TestModelsInUseStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(), newShop()
		m := s.models(multiplexing.WithMaxModels(1))
		one, endOne := r.call(t.Context(), "a")
		<-s.ask(one, m)
		other, endOther := r.call(t.Context(), "b")
		<-s.ask(other, m) // does not wait for the first
		if a := <-s.ask(one, m); a.Model != "model a" || a.At != 2*time.Second {
			t.Errorf("in use: %+v", a)
		}
		synctest.Wait()
		s.note("the second ends")
		endOther() // b was used last, but a is in use
		time.Sleep(time.Minute)
		s.note("the first ends")
		endOne()
		time.Sleep(time.Minute)
		want := []string{
			"load a at 0s", "load b at 1s",
			"the second ends at 2s", "unload b at 2s", "unloaded b at 3s",
			"the first ends at 1m2s", // a is held, as there is room
		}
		if diff := cmp.Diff(want, s.all()); diff != "" {
			t.Errorf("what happens (-want +got):\n%s", diff)
		}
		r.replica.Stop(t.Context())
	})
}

// TestCallUsesSeveralModels checks that all models of a call are held until it ends,
// and then only as many as there is room for.
func TestCallUsesSeveralModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(), newShop()
		m := s.models(multiplexing.WithMaxModels(2))
		ctx, end := r.call(t.Context(), "")
		for _, id := range []string{"a", "b", "c", "a"} {
			if model, err := m.Load(ctx, id); err != nil || model != "model "+id {
				t.Errorf("%q gives %q, %v", id, model, err)
			}
		}
		end()
		time.Sleep(time.Minute)
		want := []string{"load a at 0s", "load b at 1s", "load c at 2s", "unload b at 3s", "unloaded b at 4s"}
		if diff := cmp.Diff(want, s.all()); diff != "" {
			t.Errorf("what happens (-want +got):\n%s", diff)
		}
		r.replica.Stop(t.Context())
	})
}

// TestLoadAgainDuringUnload checks that the model is loaded again after its unload has
// returned.
func TestLoadAgainDuringUnload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(), newShop()
		m := s.models(multiplexing.WithMaxModels(1))
		for _, id := range []string{"a", "b"} {
			ctx, end := r.call(t.Context(), id)
			ch := s.ask(ctx, m)
			if id == "b" {
				time.Sleep(500 * time.Millisecond) // a is being unloaded
				again, endAgain := r.call(t.Context(), "a")
				if a := <-s.ask(again, m); a.Model != "model a" {
					t.Errorf("%+v", a)
				}
				endAgain()
			}
			<-ch
			end()
		}
		time.Sleep(time.Minute)
		got := s.all()
		if want := []string{"load a at 0s", "unload a at 1s", "unloaded a at 2s"}; !cmp.Equal(want, got[:3]) ||
			!strings.Contains(strings.Join(got, "\n"), "load a at 2s") {
			t.Errorf("what happens: %q", got)
		}
		r.replica.Stop(t.Context())
	})
}

// TestReplicaStops checks that a stop unloads the loaded models and cancels the loads.
func TestReplicaStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(), newShop()
		m := s.models()
		ctx, end := r.call(t.Context(), "a")
		<-s.ask(ctx, m)
		end()
		ctx, end = r.call(t.Context(), "b")
		defer end()
		waits := s.ask(ctx, m)
		synctest.Wait()
		r.replica.Stop(t.Context())
		if a := <-waits; a.Err != `load model "b": multiplexing: the replica has stopped` {
			t.Errorf("who waited: %+v", a)
		}
		if _, err := m.Load(ctx, "a"); err == nil || err.Error() != "multiplexing: the replica has stopped" {
			t.Errorf("afterwards: %v", err)
		}
		got := strings.Join(s.all(), "\n")
		for _, want := range []string{"cancelled b: multiplexing: the replica has stopped at 1s", "unload a at 1s", "unloaded a at 2s"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in:\n%s", want, got)
			}
		}
	})
}

// TestReplicaStopsAtDeadline checks that a stop does not unload a model in use, and
// that the context of an unload ends at the deadline.
func TestReplicaStopsAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(), newShop()
		var told time.Duration
		m := multiplexing.New(s.load, multiplexing.WithUnload(func(ctx context.Context, id, model string) {
			if id == "slow" {
				<-ctx.Done()
				told = time.Since(s.began)
			}
			s.unload(ctx, id, model)
		}))
		ctx, end := r.call(t.Context(), "slow")
		<-s.ask(ctx, m)
		end()
		ctx, end = r.call(t.Context(), "used")
		<-s.ask(ctx, m)
		stop, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.replica.Stop(stop)
		s.note("stopped")
		time.Sleep(time.Minute)
		s.note("the call ends")
		end()
		time.Sleep(time.Minute)
		want := []string{
			"load slow at 0s", "load used at 1s", "stopped at 3s", "unload slow at 3s", "unloaded slow at 4s",
			"the call ends at 1m3s", "unload used at 1m3s", "unloaded used at 1m4s",
		}
		got := s.all()
		if len(got) > 3 && strings.HasPrefix(got[2], "unload slow") { // at the same time
			got[2], got[3] = got[3], got[2]
		}
		if diff := cmp.Diff(want, got); diff != "" || told != 3*time.Second {
			t.Errorf("told at %v; what happens (-want +got):\n%s", told, diff)
		}
	})
}

// TestUnloadPanics checks that the panic is logged and the room of the model is free.
func TestUnloadPanics(t *testing.T) {
	r := newRig()
	m := multiplexing.New(func(_ context.Context, id string) (string, error) { return id, nil },
		multiplexing.WithMaxModels(1), multiplexing.WithUnload(func(context.Context, string, string) { panic("oh") }))
	for _, id := range []string{"a", "b", "c"} {
		ctx, end := r.call(t.Context(), id)
		if model, err := m.Get(ctx); err != nil || model != id {
			t.Errorf("%q gives %q, %v", id, model, err)
		}
		end()
	}
	r.replica.Stop(t.Context())
	if n := r.log.Count("unload of a model panicked"); n != 3 {
		t.Errorf("%d lines in the log, want 3", n)
	}
}

func TestErrorsBeforeTheLoad(t *testing.T) {
	r := newRig()
	load := func(_ context.Context, id string) (string, error) { return id, nil }
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("was over"))
	call := func(ctx context.Context, id string) context.Context {
		ctx, end := r.call(ctx, id)
		t.Cleanup(end)
		return ctx
	}
	for _, tc := range []struct {
		m    *multiplexing.Models[string]
		ctx  context.Context //nolint:containedctx // it is the case
		want string
	}{
		{multiplexing.New(load), call(t.Context(), ""), "no model id: a request names its model by the HTTP header serve_multiplexed_model_id, " +
			"the gRPC metadata multiplexed_model_id, or the option WithModelID of a handle"},
		{multiplexing.New(load), t.Context(), "multiplexing: the context belongs to no replica: pass the context of a request, or one derived from it"},
		{multiplexing.New(load), call(ended, "a"), "was over"},
		{multiplexing.New(load, multiplexing.WithMaxModels(0)), call(t.Context(), "a"), "multiplexing: max models 0: want 1 or more, or -1 for any number"},
		{multiplexing.New(load, multiplexing.WithMaxModels(-2)), call(t.Context(), "a"), "multiplexing: max models -2: want 1 or more, or -1 for any number"},
		{multiplexing.New(load, multiplexing.WithUnload(func(context.Context, string, int) {})), call(t.Context(), "a"),
			"multiplexing: unload is a func(context.Context, string, int): want a func(context.Context, string, string)"},
	} {
		if _, err := tc.m.Get(tc.ctx); err == nil || err.Error() != tc.want {
			t.Errorf("error %v, want %s", err, tc.want)
		}
	}
	if _, err := multiplexing.New(load).Get(call(t.Context(), "")); !errors.Is(err, multiplexing.ErrNoModelID) {
		t.Errorf("error %v", err)
	}
}

// TestLoadHasACallOfItsOwn checks that models used by a load are held until the load
// ends.
func TestLoadHasACallOfItsOwn(t *testing.T) {
	r := newRig()
	released := false
	var asker *scope.Call
	m := multiplexing.New(func(ctx context.Context, id string) (string, error) {
		call := scope.FromContext(ctx)
		call.OnEnd(func() { released = true })
		if _, limited := ctx.Deadline(); limited || call == asker || call.Replica != r.replica || released {
			t.Errorf("deadline %v, call %p of %p, released %v", limited, call, call.Replica, released)
		}
		return id, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	ctx, end := r.call(ctx, "a")
	defer end()
	asker = scope.FromContext(ctx)
	if _, err := m.Get(ctx); err != nil || !released {
		t.Errorf("error %v, released %v", err, released)
	}
}
