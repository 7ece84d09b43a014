package batching

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/tracing"
)

// upper is a batched function that takes a second and writes its batches down.
func (b *book) upper(_ context.Context, ins []string) ([]string, error) {
	b.note(ins)
	<-time.After(time.Second) // in bubbles, where it takes no time
	outs := make([]string, len(ins))
	for i, in := range ins {
		outs[i] = strings.ToUpper(in)
	}
	return outs, nil
}

// TestBatchStartTimes scripts when requests come and looks which batches run,
// when, and when the answers are there. Each batch takes a second.
func TestBatchStartTimes(t *testing.T) {
	type come struct {
		at    time.Duration // after the one before
		in    string
		model string
	}
	const ms = time.Millisecond
	for _, tc := range []struct {
		name string
		opts []Option
		come []come
		want []string
		last time.Duration // when the last answer is there
	}{
		{
			name: "full",
			opts: []Option{WithMaxBatchSize(3), WithWaitTimeout(time.Hour)},
			come: []come{{0, "a", ""}, {5 * ms, "b", ""}, {5 * ms, "c", ""}},
			want: []string{"[a b c] at 10ms"},
			last: 1010 * ms,
		},
		{
			name: "wait is over",
			come: []come{{0, "a", ""}, {9 * ms, "b", ""}},
			want: []string{"[a b] at 10ms"},
			last: 1010 * ms,
		},
		{
			name: "no wait: what came while the one before ran",
			opts: []Option{WithWaitTimeout(0)},
			come: []come{{0, "a", ""}, {1 * ms, "b", ""}, {1 * ms, "c", ""}},
			want: []string{"[a] at 0s", "[b c] at 1s"},
			last: 2 * time.Second,
		},
		{
			name: "one at a time: full, and waits for the one that runs",
			opts: []Option{WithMaxBatchSize(2)},
			come: []come{{0, "a", ""}, {0, "b", ""}, {1 * ms, "c", ""}, {1 * ms, "d", ""}, {1 * ms, "e", ""}},
			want: []string{"[a b] at 0s", "[c d] at 1s", "[e] at 2s"},
			last: 3 * time.Second,
		},
		{
			name: "two at a time",
			opts: []Option{WithMaxBatchSize(2), WithMaxConcurrentBatches(2)},
			come: []come{{0, "a", ""}, {0, "b", ""}, {1 * ms, "c", ""}, {1 * ms, "d", ""}, {1 * ms, "e", ""}},
			want: []string{"[a b] at 0s", "[c d] at 2ms", "[e] at 1s"},
			last: 2 * time.Second,
		},
		{
			name: "the wait begins anew with the first that is left",
			opts: []Option{WithMaxBatchSize(2), WithMaxConcurrentBatches(9)},
			come: []come{{0, "a", ""}, {5 * ms, "b", ""}, {1 * ms, "c", ""}},
			want: []string{"[a b] at 5ms", "[c] at 16ms"},
			last: 1016 * ms,
		},
		{
			name: "by model",
			opts: []Option{WithMaxBatchSize(2), WithMaxConcurrentBatches(9)},
			come: []come{{0, "a", "m"}, {1 * ms, "b", "n"}, {1 * ms, "c", "m"}, {1 * ms, "d", ""}},
			want: []string{"[a c] at 2ms", "[b] at 11ms", "[d] at 13ms"},
			last: 1013 * ms,
		},
		{
			name: "of several models the first that came, one at a time",
			opts: []Option{WithMaxBatchSize(2)},
			come: []come{{0, "a", "m"}, {20 * ms, "b", "n"}, {1 * ms, "c", "o"}, {1 * ms, "d", "o"}, {1 * ms, "e", "n"}},
			want: []string{"[a] at 10ms", "[b e] at 1.01s", "[c d] at 2.01s"},
			last: 3010 * ms,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := newRig(), newBook()
				b := New("upper", log.upper, tc.opts...)
				var answers []<-chan answer
				for _, c := range tc.come {
					time.Sleep(c.at)
					answers = append(answers, ask(b.Do, r.call(t.Context(), c.model), c.in))
					synctest.Wait()
				}
				for i, ch := range answers {
					if a := <-ch; a.Out != strings.ToUpper(tc.come[i].in) || a.Err != "" {
						t.Errorf("answer to %q is %+v", tc.come[i].in, a)
					}
				}
				last := time.Since(log.began)
				if diff := cmp.Diff(tc.want, log.all()); diff != "" || last != tc.last {
					t.Errorf("the last answer at %v, want %v; batches (-want +got):\n%s", last, tc.last, diff)
				}
			})
		})
	}
}

// TestBatchesKeepRaysBounds is six requests at once, at most three in a batch, two batches
// at a time: exactly two batches.
func TestBatchesKeepRaysBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRig(), newBook()
		b := New("upper", log.upper, WithMaxBatchSize(3), WithWaitTimeout(time.Second), WithMaxConcurrentBatches(2))
		var answers []<-chan answer
		for range 6 {
			answers = append(answers, ask(b.Do, r.call(t.Context(), ""), "x"))
		}
		for _, ch := range answers {
			<-ch
		}
		if diff := cmp.Diff([]string{"[x x x] at 0s", "[x x x] at 0s"}, log.all()); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

func TestEachReplicaHasItsOwnBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newBook()
		b := New("upper", log.upper)
		one := ask(b.Do, newRig().call(t.Context(), ""), "a")
		other := ask(b.Do, newRig().call(t.Context(), ""), "b")
		<-one
		<-other
		got := log.all()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"[a] at 10ms", "[b] at 10ms"}, got); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

// TestFailureOfABatch has two requests in a batch that does not go well: both
// get the same, and the next batch is none the worse.
func TestFailureOfABatch(t *testing.T) {
	wrong := errors.New("no luck")
	for _, tc := range []struct {
		name   string
		f      func(context.Context, []string) ([]string, error)
		want   string
		wanted error // that it matches
		logged int
	}{
		{"error", func(context.Context, []string) ([]string, error) { return nil, wrong }, "no luck", wrong, 0},
		{"too few", func(context.Context, []string) ([]string, error) { return []string{"A"}, nil },
			`batched function "f" returned 1 results for 2 requests: want one result per request, in the same order`, nil, 0},
		{"too many", func(context.Context, []string) ([]string, error) { return make([]string, 3), nil },
			`batched function "f" returned 3 results for 2 requests: want one result per request, in the same order`, nil, 0},
		{"panic", func(context.Context, []string) ([]string, error) { panic(wrong) }, "panic: no luck", wrong, 1},
		{"Goexit", func(context.Context, []string) ([]string, error) { runtime.Goexit(); return nil, nil },
			"batched function called runtime.Goexit", nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := newRig(), newBook()
				b := New("f", func(ctx context.Context, ins []string) ([]string, error) {
					if ins[0] == "good" {
						return log.upper(ctx, ins)
					}
					return tc.f(ctx, ins)
				}, WithMaxBatchSize(2), WithWaitTimeout(time.Hour))
				for range 2 {
					errs := make(chan error, 2)
					for range 2 {
						go func() {
							_, err := b.Do(r.call(t.Context(), ""), "x")
							errs <- err
						}()
					}
					for range 2 {
						err := <-errs
						if err == nil || err.Error() != tc.want || tc.wanted != nil && !errors.Is(err, tc.wanted) {
							t.Errorf("error %v, want %q", err, tc.want)
						}
						if p, ok := errors.AsType[*tracing.PanicError](err); ok != (tc.name == "panic") ||
							ok && !strings.Contains(string(p.Stack), "TestFailureOfABatch") {
							t.Errorf("error %#v", err)
						}
					}
				}
				one, other := ask(b.Do, r.call(t.Context(), ""), "good"), ask(b.Do, r.call(t.Context(), ""), "good")
				if a := []answer{<-one, <-other}; a[0].Out != "GOOD" || a[1].Out != "GOOD" {
					t.Errorf("afterwards: %+v", a)
				}
				if n := r.log.Count("batched function panicked"); n != 2*tc.logged {
					t.Errorf("%d panics of two are logged, want %d", n, 2*tc.logged)
				}
				if tc.logged > 0 && r.log.Count("TestFailureOfABatch") == 0 {
					t.Error("the log has no stack")
				}
			})
		})
	}
}

// TestRequestLeavesBatch has one of three leave, before its batch begins or while it runs.
func TestRequestLeavesBatch(t *testing.T) {
	gone := errors.New("gone fishing")
	for _, tc := range []struct {
		name string
		when time.Duration
		want []string
	}{
		{"before: taken out", 5 * time.Millisecond, []string{"[a c] at 10ms"}},
		{"while it runs: for the others it goes on", 500 * time.Millisecond, []string{"[a b c] at 10ms"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := newRig(), newBook()
				var cause error
				b := New("upper", func(ctx context.Context, ins []string) ([]string, error) {
					outs, err := log.upper(ctx, ins)
					cause = context.Cause(ctx)
					return outs, err
				})
				a := ask(b.Do, r.call(t.Context(), ""), "a")
				synctest.Wait()
				ctx, cancel := context.WithCancelCause(t.Context())
				leaver := ask(b.Do, r.call(ctx, ""), "b")
				synctest.Wait()
				c := ask(b.Do, r.call(t.Context(), ""), "c")
				time.Sleep(tc.when)
				cancel(gone)
				if diff := cmp.Diff(answer{Err: "gone fishing", At: tc.when}, <-leaver); diff != "" {
					t.Errorf("who leaves (-want +got):\n%s", diff)
				}
				want := []answer{{Out: "A", At: 1010 * time.Millisecond}, {Out: "C", At: 1010 * time.Millisecond}}
				if diff := cmp.Diff(want, []answer{<-a, <-c}); diff != "" {
					t.Errorf("who stays (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.want, log.all()); diff != "" || cause != nil {
					t.Errorf("the batch's context ended by %v; batches (-want +got):\n%s", cause, diff)
				}
			})
		})
	}
}

// TestContextEndsWithLastCaller has the context of a batch end with its last caller, and
// not by a deadline of one of them.
func TestContextEndsWithLastCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		began := time.Now()
		var ended time.Duration
		b := New("f", func(ctx context.Context, ins []string) ([]string, error) {
			if d, ok := ctx.Deadline(); ok {
				t.Errorf("the batch has a deadline: %v", d)
			}
			<-ctx.Done()
			ended = time.Since(began)
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) || err.Error() != "every request of the batch has ended: context canceled" {
				t.Errorf("the batch's context ended by: %v", err)
			}
			return nil, ctx.Err()
		})
		var answers []<-chan answer
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
			defer cancel()
			answers = append(answers, ask(b.Do, r.call(ctx, ""), "x"))
		}
		for i, ch := range answers {
			want := answer{Err: "context deadline exceeded", At: time.Duration(i+1) * time.Second}
			if diff := cmp.Diff(want, <-ch); diff != "" {
				t.Errorf("answer %d (-want +got):\n%s", i, diff)
			}
		}
		synctest.Wait()
		if ended != 3*time.Second {
			t.Errorf("the batch's context ended after %v", ended)
		}
	})
}

// TestAbandonedRequestsDoNotRun has requests leave that would fill a batch, all but one
// before the batch is formed: nothing runs, and no goroutine waits for them.
func TestAbandonedRequestsDoNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRig(), newBook()
		b := New("upper", log.upper, WithWaitTimeout(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		first := ask(b.Do, r.call(ctx, "m"), "a")
		second := ask(b.Do, r.call(ctx, ""), "b")
		synctest.Wait()
		cancel()
		<-first
		<-second
		synctest.Wait()
		q, err := b.queueFor(r.call(t.Context(), ""))
		if err != nil {
			t.Fatal(err)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.workers != 0 || q.leading || q.waiting.n != 0 || len(q.waiting.byModel) != 0 || len(log.all()) != 0 {
			t.Errorf("%d workers, leading %v, %d wait, %d models, batches %v", q.workers, q.leading, q.waiting.n, len(q.waiting.byModel), log.all())
		}
	})
}

func TestTuningWhileRequestsWait(t *testing.T) {
	for _, tc := range []struct {
		name string
		tune func(*Batcher[string, string]) error
		want []string
	}{
		{"smaller", func(b *Batcher[string, string]) error { return b.SetMaxBatchSize(1) },
			[]string{"[a] at 1m0s", "[b] at 1m1s"}},
		{"just full", func(b *Batcher[string, string]) error { return b.SetMaxBatchSize(2) },
			[]string{"[a b] at 1m0s"}},
		{"shorter", func(b *Batcher[string, string]) error { return b.SetWaitTimeout(90 * time.Second) },
			[]string{"[a b] at 1m30s"}},
		{"over", func(b *Batcher[string, string]) error { return b.SetWaitTimeout(0) },
			[]string{"[a b] at 1m0s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := newRig(), newBook()
				b := New("upper", log.upper, WithWaitTimeout(time.Hour))
				one := ask(b.Do, r.call(t.Context(), ""), "a")
				synctest.Wait()
				other := ask(b.Do, r.call(t.Context(), ""), "b")
				time.Sleep(time.Minute)
				if err := tc.tune(b); err != nil {
					t.Error(err)
				}
				<-one
				<-other
				if diff := cmp.Diff(tc.want, log.all()); diff != "" {
					t.Errorf("batches (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestWrongSettings(t *testing.T) {
	r := newRig()
	ctx := r.call(t.Context(), "")
	echo := func(_ context.Context, ins []string) ([]string, error) { return ins, nil }
	for _, tc := range []struct {
		b    *Batcher[string, string]
		want string
	}{
		{New("f", echo, WithMaxBatchSize(0)), `batcher "f": max batch size 0: want 1 or more`},
		{New("f", echo, WithWaitTimeout(-1), WithMaxConcurrentBatches(0)),
			"batcher \"f\": wait timeout -1ns: want 0 or more\nmax concurrent batches 0: want 1 or more"},
		{New("", echo), `batcher "": empty name: want a name for spans and metrics`},
		{New("f", echo, WithBuffer(0), WithPatience(-1)),
			"batcher \"f\": buffer 0: want 1 or more outputs\npatience -1ns: want 0 or more"},
		{New("f", echo, WithSizeFunc(func([]int) int { return 1 })),
			`batcher "f": size function is a func([]int) int: want a func([]string) int`},
	} {
		if _, err := tc.b.Do(ctx, "x"); err == nil || err.Error() != tc.want {
			t.Errorf("error %v, want %s", err, tc.want)
		}
	}
	b := New("f", echo)
	for _, tc := range []struct {
		err  error
		want string
	}{
		{b.SetMaxBatchSize(-1), `batcher "f": max batch size -1: want 1 or more`},
		{b.SetWaitTimeout(-time.Second), `batcher "f": wait timeout -1s: want 0 or more`},
	} {
		if tc.err == nil || tc.err.Error() != tc.want {
			t.Errorf("error %v, want %s", tc.err, tc.want)
		}
	}
	if b.maxSize.Load() != defaultMaxBatchSize || b.wait.Load() != int64(defaultWaitTimeout) {
		t.Error("what is wrong was set")
	}
}

func TestOutsideOfAReplica(t *testing.T) {
	b := New("f", func(_ context.Context, ins []string) ([]string, error) { return ins, nil })
	_, err := b.Do(t.Context(), "x")
	if want := `batcher "f": the context belongs to no replica: pass the context of a request, or one derived from it`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestContextThatHasEnded does not even wait.
func TestContextThatHasEnded(t *testing.T) {
	b := New("f", func(_ context.Context, ins []string) ([]string, error) {
		t.Error("it ran")
		return ins, nil
	}, WithWaitTimeout(0))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("was over"))
	if _, err := b.Do(newRig().call(ctx, ""), "x"); err == nil || err.Error() != "was over" {
		t.Errorf("error %v", err)
	}
}

// TestReplicaStops waits for a batch whose callers have all left, and refuses
// what comes later.
func TestReplicaStops(t *testing.T) {
	for _, tc := range []struct {
		name string
		time time.Duration // that the replica has for it
		want time.Duration // that it takes
	}{
		{"waits for the batch", time.Minute, time.Second},
		{"has no more time", 300 * time.Millisecond, 300 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := newRig(), newBook()
				b := New("upper", log.upper, WithMaxBatchSize(1))
				ctx, cancel := context.WithCancel(t.Context())
				leaver := ask(b.Do, r.call(ctx, ""), "x")
				synctest.Wait()
				cancel()
				<-leaver
				began := time.Now()
				stop, cancel := context.WithTimeout(t.Context(), tc.time)
				defer cancel()
				r.replica.Stop(stop)
				if took := time.Since(began); took != tc.want {
					t.Errorf("the stop took %v, want %v", took, tc.want)
				}
				_, err := b.Do(r.call(t.Context(), ""), "x")
				if want := `batcher "upper": the replica has stopped`; err == nil || err.Error() != want {
					t.Errorf("error %v, want %s", err, want)
				}
				if len(b.queues) != 0 {
					t.Error("the batcher still knows the queue")
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// TestStopBeforeFirstRequest refuses as well.
func TestStopBeforeFirstRequest(t *testing.T) {
	r := newRig()
	b := New("f", func(_ context.Context, ins []string) ([]string, error) { return ins, nil })
	r.replica.Stop(t.Context())
	if _, err := b.Do(r.call(t.Context(), ""), "x"); err == nil || err.Error() != `batcher "f": the replica has stopped` {
		t.Errorf("error %v", err)
	}
}

func TestWarnIfBatchesCannotFill(t *testing.T) {
	const text = "batches cannot be filled"
	echo := func(_ context.Context, ins []string) ([]string, error) { return ins, nil }
	for _, tc := range []struct {
		opts []Option
		want int
	}{
		{[]Option{WithMaxBatchSize(100)}, 0},
		{[]Option{WithMaxBatchSize(50), WithMaxConcurrentBatches(2)}, 0},
		{[]Option{WithMaxBatchSize(101)}, 1},
		{[]Option{WithMaxBatchSize(51), WithMaxConcurrentBatches(2)}, 1},
		{[]Option{WithMaxBatchSize(1000), WithSizeFunc(func(ins []string) int { return 100 * len(ins) })}, 0},
	} {
		r := newRig()
		b := New("f", echo, append(tc.opts, WithWaitTimeout(0))...)
		for range 3 {
			if _, err := b.Do(r.call(t.Context(), ""), "x"); err != nil {
				t.Error(err)
			}
		}
		if n := r.log.Count(text); n != tc.want {
			t.Errorf("%d warnings, want %d", n, tc.want)
		}
	}
	r := newRig()
	b := New("f", echo, WithWaitTimeout(0))
	if _, err := b.Do(r.call(t.Context(), ""), "x"); err != nil {
		t.Error(err)
	}
	for i, n := range []int{101, 50, 101} { // for the worse, better, and again
		if err := b.SetMaxBatchSize(n); err != nil {
			t.Error(err)
		}
		if got, want := r.log.Count(text), []int{1, 1, 2}[i]; got != want {
			t.Errorf("%d warnings after size %d, want %d", got, n, want)
		}
	}
}

// TestTheBatchHasACallOfItsOwn: what is held for the batch is held until it is
// done, although the call that it was begun with has ended.
func TestTheBatchHasACallOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		var released time.Duration
		began := time.Now()
		b := New("f", func(ctx context.Context, ins []string) ([]string, error) {
			call := scope.FromContext(ctx)
			call.OnEnd(func() { released = time.Since(began) })
			time.Sleep(time.Second)
			if call.Ended() || call.Replica != r.replica || identity.RequestFromContext(ctx).ModelID != "m" {
				t.Errorf("call %+v, request %+v", call, identity.RequestFromContext(ctx))
			}
			return ins, nil
		}, WithMaxBatchSize(2), WithWaitTimeout(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		firstCall := r.call(ctx, "m")
		first := ask(b.Do, firstCall, "a")
		synctest.Wait()
		second := ask(b.Do, r.call(t.Context(), "m"), "b")
		synctest.Wait()
		cancel()
		<-first
		scope.FromContext(firstCall).End()
		<-second
		if released != time.Second {
			t.Errorf("released after %v", released)
		}
	})
}

// TestContextEndsAsTheBatchIsFormed: one whose context has ended, and who has not
// seen it yet, is not run.
func TestContextEndsAsTheBatchIsFormed(t *testing.T) {
	for _, opts := range [][]Option{nil, {WithSizeFunc(func(ins []string) int { return len(ins) })}} {
		synctest.Test(t, func(t *testing.T) {
			r, log := newRig(), newBook()
			b := New("upper", log.upper, opts...)
			ctx, cancel := context.WithCancel(t.Context())
			q, err := b.queueFor(r.call(ctx, ""))
			if err != nil {
				t.Fatal(err)
			}
			if err := q.add(&item[string, string]{ctx: r.call(ctx, ""), in: "gone", done: make(chan struct{}, 1)}); err != nil {
				t.Fatal(err)
			}
			stays := ask(b.Do, r.call(t.Context(), ""), "stays")
			synctest.Wait()
			cancel()
			<-stays
			if diff := cmp.Diff([]string{"[stays] at 10ms"}, log.all()); diff != "" {
				t.Errorf("batches (-want +got):\n%s", diff)
			}
		})
	}
}
