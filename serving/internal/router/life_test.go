package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

var errBoom = errors.New("boom")

// constructorOf returns a constructor that makes the values of a probe.
func constructorOf(p *servingtest.Probe, key any) Constructor {
	return Constructor{Key: key, Make: func(ctx context.Context) (Value, error) {
		i, err := p.New(ctx)
		return Value{Local: i, Reconfigure: i.Reconfigure, CheckHealth: i.CheckHealth, Stop: i.Stop}, err
	}}
}

// bench is a deployment with a probe, whose server does not listen: it runs by the clock of
// a bubble.
type bench struct {
	*ReplicaSet
	t     *testing.T
	p     *servingtest.Probe
	lines *servingtest.Log
}

// setting changes the settings of a bench.
type setting func(*Settings)

func withReplicas(n int) setting { return func(s *Settings) { s.Replicas = n } }

func withConfig(config string) setting { return func(s *Settings) { s.Config = config } }

func newBench(t *testing.T, p *servingtest.Probe, settings ...setting) *bench {
	t.Helper()
	return newBenchOf(t, p, []Constructor{constructorOf(p, "only")}, settings...)
}

func newBenchOf(t *testing.T, p *servingtest.Probe, constructors []Constructor, settings ...setting) *bench {
	t.Helper()
	c := Config{App: "a", Name: "D", Constructors: constructors, Settings: Settings{
		Replicas: 1, MaxOngoing: 5, MaxQueued: -1,
		HealthPeriod: 10 * time.Second, HealthTimeout: 30 * time.Second,
		WaitLoop: 2 * time.Second, StopTimeout: 20 * time.Second,
	}}
	for _, set := range settings {
		set(&c.Settings)
	}
	b := &bench{t: t, p: p, lines: new(servingtest.Log)}
	b.ReplicaSet, _ = New(newServer(t, slog.New(slog.NewJSONHandler(b.lines, nil))), c).Replicas.(*ReplicaSet)
	return b
}

// end stops the replicas, within a minute of the bubble.
func (b *bench) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b.Stop()
	late, cancelLate := context.WithTimeout(context.Background(), time.Minute+inflight.CloseGrace)
	defer cancelLate()
	return b.Wait(ctx, late)
}

func (b *bench) mustEnd() {
	b.t.Helper()
	if err := b.end(); err != nil {
		b.t.Error(err)
	}
}

// states gives the deployment's state and those of its replicas.
func (b *bench) states() string {
	s := b.Status()
	text := s.State.String() + ":"
	for _, r := range s.Replicas {
		text += " " + r.State.String()
	}
	return text
}

func (b *bench) wantStates(want string) {
	b.t.Helper()
	synctest.Wait()
	if got := b.states(); got != want {
		b.t.Errorf("after %v: %s, want %s", b.Status().Error, got, want)
	}
}

func (b *bench) wantNotes(want ...string) {
	b.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, b.p.Take()); diff != "" {
		b.t.Errorf("(-want +got):\n%s", diff)
	}
}

// messages are the log's, with the level.
func (b *bench) messages() (all []string) {
	for line := range strings.Lines(b.lines.Text()) {
		_, rest, _ := strings.Cut(line, `"level":"`)
		level, rest, _ := strings.Cut(rest, `","msg":"`)
		message, _, _ := strings.Cut(rest, `","`)
		all = append(all, level+" "+message)
	}
	return all
}

// failUpTo gives a hook that fails for the values whose number is not above n.
func failUpTo(n int) func(context.Context, int) error {
	return func(_ context.Context, i int) error {
		if i <= n {
			return errBoom
		}
		return nil
	}
}

// ways are those in which user code fails.
var ways = map[string]struct {
	hook func(context.Context, int) error
	text string
}{
	"error":  {func(context.Context, int) error { return errBoom }, "boom"},
	"panic":  {func(context.Context, int) error { panic("boom") }, "panic: boom"},
	"goexit": {func(context.Context, int) error { runtime.Goexit(); return nil }, cause.ErrGoexit.Error()},
}

// TestStartIsTriedAgain: a start that fails is tried again after 1 s, then 2 s,
// in all min(3 x replicas, 20) times; then the deployment is unavailable, until
// somebody changes something.
func TestStartIsTriedAgain(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, &servingtest.Probe{Construct: way.hook})
				waits := make(chan error, 1)
				go func() {
					_, _, err := b.router.acquire(t.Context(), "")
					waits <- err
				}()
				began := time.Now()
				b.Start()
				for i, at := range []time.Duration{0, time.Second, 3 * time.Second} {
					time.Sleep(time.Until(began.Add(at)))
					b.wantNotes(fmt.Sprintf("make %d", i+1))
				}
				err := <-waits
				down, is := errors.AsType[*cause.DeploymentUnavailableError](err)
				if !is || down.Tries != 3 || down.Reason.Error() != way.text {
					t.Errorf("the request that waited got %v (%+v)", err, down)
				}
				if want := "Deployment(name='D', app='a') is unavailable because it failed to deploy."; fmt.Sprint(err) != want || b.Unready() != want {
					t.Errorf("error %v, reason %v, want %s", err, b.Unready(), want)
				}
				time.Sleep(time.Hour)
				b.wantNotes()
				b.wantStates("DEPLOY_FAILED:")
				want := []string{"WARN replica failed to start",
					"ERROR deployment is unavailable: its replicas do not start; its requests fail until it is reconfigured, or the service is restarted"}
				if diff := cmp.Diff(want, b.messages()); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
				b.p.Set(&b.p.Construct, nil)
				if err := b.Changes.apply(t.Context(), func(w Settings) Settings { w.Replicas = 2; return w }); err != nil {
					t.Error(err)
				}
				b.wantStates("HEALTHY: RUNNING RUNNING")
				if m, _, err := b.router.acquire(t.Context(), ""); err != nil {
					t.Error(err)
				} else {
					b.router.release(m, "")
				}
				b.mustEnd()
			})
		})
	}
}

func TestTriesGoByReplicas(t *testing.T) {
	for replicas, want := range map[int]int{1: 3, 2: 6, 6: 18, 7: 20, 9: 20} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, &servingtest.Probe{Construct: ways["error"].hook}, withReplicas(replicas))
			b.Start()
			time.Sleep(time.Hour)
			b.wantStates("DEPLOY_FAILED:")
			// Those of the last round were begun together.
			if most := (want + replicas - 1) / replicas * replicas; b.p.Made() < want || b.p.Made() > most {
				t.Errorf("%d replicas: %d starts, want %d to %d", replicas, b.p.Made(), want, most)
			}
			b.mustEnd()
		})
	}
}

// TestStartSucceedsLate: what waits for the first replica is served by it.
func TestStartSucceedsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &servingtest.Probe{Construct: failUpTo(2)})
		b.Start()
		began := time.Now()
		if b.Unready() != "Deployment(name='D', app='a') has no replica that takes requests yet." {
			t.Errorf("reason %q", b.Unready())
		}
		m, wait, err := b.router.acquire(t.Context(), "")
		if err != nil || wait != 3*time.Second || time.Since(began) != wait {
			t.Errorf("acquired after %v, %v", wait, err)
		}
		b.wantStates("HEALTHY: RUNNING")
		if b.Unready() != "" {
			t.Errorf("reason %q", b.Unready())
		}
		b.router.release(m, "")
		b.mustEnd()
		b.wantNotes("make 1", "make 2", "make 3", "stop 3") // what was not made is not stopped
	})
}

// TestLastReplicaIsTriedForEver: once one has run, starts have no last try, and
// the back-off grows to 64 s.
func TestLastReplicaIsTriedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sick atomic.Bool
		p := &servingtest.Probe{}
		p.Construct = func(_ context.Context, n int) error {
			if n > 1 && n < 30 {
				return errBoom
			}
			return nil
		}
		p.Check = func(_ context.Context, n int) error {
			if sick.Load() && n == 1 {
				return errBoom
			}
			return nil
		}
		b := newBench(t, p)
		b.Start()
		b.wantStates("HEALTHY: RUNNING")
		sick.Store(true)
		time.Sleep(10 * time.Minute)
		b.wantStates("UNHEALTHY:")
		made := b.p.Made()
		time.Sleep(64 * time.Second)
		synctest.Wait()
		if b.p.Made() != made+1 {
			t.Errorf("%d starts within 64 s, want 1", b.p.Made()-made)
		}
		time.Sleep(time.Hour)
		b.wantStates("HEALTHY: RUNNING")
		b.mustEnd()
	})
}

// TestHealthChecks: three failures in a row replace a replica, whichever way its
// check fails; two and a success do not.
func TestHealthChecks(t *testing.T) {
	hang := func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
	stuck := make(chan struct{})
	for name, c := range map[string]struct {
		check func(context.Context, int) error
		after time.Duration // until the third failure
		text  string
	}{
		"error": {ways["error"].hook, 30 * time.Second, "boom"},
		"panic": {ways["panic"].hook, 30 * time.Second, "panic: boom"},
		"hangs": {hang, 3 * 40 * time.Second, "health check has not returned within 30s"},
		"stuck": {func(context.Context, int) error { <-stuck; return nil }, 3 * 40 * time.Second, "health check has not returned within 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				checked := 0
				p := &servingtest.Probe{}
				p.Check = func(ctx context.Context, n int) error {
					if n > 1 {
						return nil
					}
					if checked++; checked == 1 || checked == 4 && name == "error" {
						return nil // the first, and one that breaks a row
					}
					return c.check(ctx, n)
				}
				stuck = make(chan struct{})
				b := newBench(t, p)
				b.Start()
				b.wantStates("HEALTHY: RUNNING")
				if name == "error" { // two failures and a success
					time.Sleep(30 * time.Second)
					b.wantStates("HEALTHY: RUNNING")
				}
				time.Sleep(c.after - time.Nanosecond)
				b.wantNotes("make 1")
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				notes := b.p.Take()
				slices.Sort(notes) // both at a time
				if diff := cmp.Diff([]string{"make 2", "stop 1"}, notes); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				b.wantStates("HEALTHY: RUNNING")
				if name == "stuck" && checked != 2 {
					t.Errorf("%d checks: one that hangs has others beside it", checked)
				}
				line := b.lines.Lines(t, "replica is unhealthy; another takes its place")
				if len(line) != 1 || line[0]["error"] != "3 health checks in a row have failed: "+c.text {
					t.Errorf("log: %v", line)
				}
				close(stuck)
				b.mustEnd()
			})
		})
	}
}

// TestUnhealthyReplicaDrains: it gets no more requests, while its successor is
// constructed, and ends when its last request has.
func TestUnhealthyReplicaDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &servingtest.Probe{Construct: func(_ context.Context, n int) error { time.Sleep(time.Duration(n-1) * time.Minute); return nil }}
		first := true
		p.Check = func(_ context.Context, n int) error {
			if n == 1 && !first {
				return errBoom
			}
			first = false
			return nil
		}
		b := newBench(t, p, func(s *Settings) { s.WaitLoop, s.StopTimeout = time.Second, time.Hour })
		b.Start()
		m, _, err := b.router.acquire(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		b.wantStates("UNHEALTHY: STOPPING STARTING")
		next, wait, err := b.router.acquire(t.Context(), "")
		if err != nil || next == m || wait != time.Minute {
			t.Errorf("the next request waited %v for %v, %v: want a minute, for the successor", wait, next, err)
		}
		b.wantStates("HEALTHY: STOPPING RUNNING")
		b.p.Take()
		b.router.release(m, "")
		b.wantNotes("stop 1")
		b.wantStates("HEALTHY: RUNNING")
		b.router.release(next, "")
		b.mustEnd()
	})
}

// TestFirstCheckIsPartOfTheStart: what it fails with is a failed start.
func TestFirstCheckIsPartOfTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &servingtest.Probe{Check: failUpTo(1)})
		b.Start()
		b.wantStates("UNHEALTHY:")
		if want := "first health check: boom"; b.Status().Error != want {
			t.Errorf("error %q, want %q", b.Status().Error, want)
		}
		time.Sleep(time.Second)
		b.wantStates("HEALTHY: RUNNING")
		b.mustEnd()
		if diff := cmp.Diff([]string{"WARN replica failed to start", "INFO deployment is healthy"}, b.messages()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// TestScale: the number of replicas changes while calls run; those that are one
// too many are the youngest, and finish.
func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &servingtest.Probe{}, withReplicas(2), func(s *Settings) { s.MaxOngoing = 1 })
		b.Start()
		b.wantStates("HEALTHY: RUNNING RUNNING")
		var held []*member
		for range 2 {
			m, _, err := b.router.acquire(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, m)
		}
		scale := func(n int) {
			if err := b.Changes.apply(t.Context(), func(w Settings) Settings { w.Replicas = n; return w }); err != nil {
				t.Error(err)
			}
		}
		oldest := b.Status().Replicas[0].ID
		scale(4)
		b.wantStates("HEALTHY: RUNNING RUNNING RUNNING RUNNING")
		scale(1)
		b.wantStates("HEALTHY: RUNNING STOPPING")
		for _, m := range held {
			b.router.release(m, "")
		}
		b.wantStates("HEALTHY: RUNNING")
		if got := b.Status().Replicas[0].ID; got != oldest {
			t.Errorf("%s stayed, want the oldest, %s", got, oldest)
		}
		stops := slices.DeleteFunc(b.p.Take(), func(note string) bool { return strings.HasPrefix(note, "make") })
		if len(stops) != 3 {
			t.Errorf("%v, want three stops", stops)
		}
		b.mustEnd()
	})
}

// TestStopOrder: calls first, then what they left with the replica, then the
// values in the reverse order of their construction.
func TestStopOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &servingtest.Probe{}
		second := constructorOf(p, "second")
		construct := second.Make
		second.Make = func(ctx context.Context) (Value, error) {
			if c := scope.FromContext(ctx); c == nil || c.Replica.Deployment != "D" {
				t.Errorf("the constructor runs in %v", c)
			}
			return construct(ctx)
		}
		b := newBenchOf(t, p, []Constructor{constructorOf(p, "first"), second, constructorOf(p, "third")})
		b.Start()
		m, _, err := b.router.acquire(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		r := m.replica
		in := scope.ContextWithCall(t.Context(), scope.NewCall(r.scope))
		if got, ok := LocalValue(in, "third"); !ok || got.(*servingtest.Instance).N != 3 {
			t.Errorf("LocalValue gives %v, %v, want the third", got, ok)
		}
		if got, ok := LocalValue(in, "fourth"); ok {
			t.Errorf("LocalValue gives %v for a key of another deployment", got)
		}
		r.scope.OnStop(func(context.Context) { p.Note("batch") })
		r.scope.OnStop(func(context.Context) { p.Note("models") })
		b.p.Take()
		go func() {
			time.Sleep(5 * time.Second)
			p.Note("call ends")
			b.router.release(m, "")
		}()
		b.mustEnd()
		b.wantNotes("call ends", "models", "batch", "stop 3", "stop 2", "stop 1")
	})
}

// TestStopWithoutTime: where the drain has taken all of it, a replica without
// calls is stopped all the same, and code that heeds its context is no fault.
func TestStopWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &servingtest.Probe{Stop: func(ctx context.Context, _ int) error { <-ctx.Done(); return nil }}
		b := newBench(t, p, withReplicas(8))
		b.Start()
		synctest.Wait()
		p.Take()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.Stop()
		late, cancelLate := context.WithTimeout(t.Context(), inflight.CloseGrace)
		defer cancelLate()
		if err := b.Wait(ctx, late); err != nil {
			t.Error(err)
		}
		if got := len(p.Take()); got != 8 {
			t.Errorf("%d replicas were stopped, want 8", got)
		}
		if diff := cmp.Diff([]string{"INFO deployment is healthy"}, b.messages()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// TestHooksNameTheirReplica: in lines that user code logs outside of requests.
func TestHooksNameTheirReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := new(servingtest.Log)
		log := slog.New(tracing.NewLogHandler(slog.NewJSONHandler(lines, nil)))
		say := func(what string) servingtest.Hook {
			return func(ctx context.Context, _ int) error { log.InfoContext(ctx, what); return nil }
		}
		b := newBench(t, &servingtest.Probe{Construct: say("construct"), Reconfigure: say("reconfigure"), Check: say("check"), Stop: say("stop")}, withConfig("1"))
		b.Start()
		synctest.Wait()
		id := b.Status().Replicas[0].ID
		b.mustEnd()
		for _, what := range []string{"construct", "reconfigure", "check", "stop"} {
			for _, line := range lines.Lines(t, what) {
				if line["app"] != "a" || line["deployment"] != "D" || line["replica"] != id {
					t.Errorf("%s: %v, want replica %s", what, line, id)
				}
			}
			if len(lines.Lines(t, what)) == 0 {
				t.Errorf("%s was not called", what)
			}
		}
	})
}

// TestStopIsBounded: user code that does not return is named, and left behind.
func TestStopIsBounded(t *testing.T) {
	stuck := make(chan struct{})
	hang := func(context.Context, int) error { <-stuck; return nil }
	for name, c := range map[string]struct {
		p    *servingtest.Probe
		want string
	}{
		"construct": {&servingtest.Probe{Construct: hang}, `1 replicas have not ended, still running: ["construct of ID"]`},
		"check":     {&servingtest.Probe{Check: hang}, `1 replicas have not ended, still running: ["health check of ID"]`},
		"stop":      {&servingtest.Probe{Stop: hang}, `0 replicas have not ended, still running: ["stop of ID"]`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck = make(chan struct{})
				b := newBench(t, c.p, func(s *Settings) { s.HealthPeriod, s.HealthTimeout = time.Second, time.Hour })
				b.Start()
				synctest.Wait()
				id := b.Status().Replicas[0].ID
				began := time.Now()
				err := b.end()
				want := `stop deployment "D" of app "a": ` + strings.ReplaceAll(c.want, "ID", "a#D#"+id)
				if name == "check" { // nobody waits for it once the replica is to stop
					want = strings.Replace(want, "1 replicas", "0 replicas", 1)
				}
				if fmt.Sprint(err) != want {
					t.Errorf("error %v\nwant %s", err, want)
				}
				if took := time.Since(began); took > time.Minute+inflight.CloseGrace {
					t.Errorf("it took %v", took)
				}
				close(stuck) // the bubble waits for the rest
			})
		})
	}
}

// TestSlowStartIsTold: once, and the start goes on.
func TestSlowStartIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &servingtest.Probe{Construct: func(context.Context, int) error { time.Sleep(5 * time.Minute); return nil }}
		b := newBench(t, p)
		b.Start()
		time.Sleep(6 * time.Minute)
		b.mustEnd()
		if diff := cmp.Diff([]string{"WARN replica is still starting", "INFO deployment is healthy"}, b.messages()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// TestPanicHasItsStack: in the log, for whoever is to mend it.
func TestPanicHasItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &servingtest.Probe{Construct: ways["panic"].hook})
		b.Start()
		synctest.Wait()
		lines := b.lines.Lines(t, "replica failed to start")
		if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]["stack"]), "life_test.go") {
			t.Errorf("log: %v", lines)
		}
		if _, is := errors.AsType[*tracing.PanicError](b.condition.fault); !is {
			t.Errorf("fault %v", b.condition.fault)
		}
		b.mustEnd()
	})
}

// TestHollowErrorsOfHooks: an error whose methods panic is a panic of the hook that
// returned it.
func TestHollowErrorsOfHooks(t *testing.T) {
	fails := func(context.Context, int) error { return (*hollow)(nil) }
	for name, p := range map[string]*servingtest.Probe{"construct": {Construct: fails}, "check": {Check: fails}, "stop": {Stop: fails}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, p)
				b.Start()
				synctest.Wait()
				if _, is := errors.AsType[*tracing.PanicError](b.condition.fault); !is && name != "stop" {
					t.Errorf("fault %v", b.condition.fault)
				}
				b.mustEnd()
				if p.Stop != nil {
					if lines := b.lines.Lines(t, "replica does not stop as it should"); len(lines) != 1 {
						t.Errorf("%d log lines, want 1", len(lines))
					}
				}
			})
		})
	}
}

// hollow is an error whose methods panic for the nil pointer.
type hollow struct{ inner error }

func (e *hollow) Error() string { return e.inner.Error() }
