package serving

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// configs gives what each replica has taken, oldest first.
func (b *bench) configs() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.replicas {
		all = append(all, r.config.String())
	}
	return all
}

func (b *bench) reconfigureTo(ctx context.Context, config any) error {
	c, err := newUserConfig(config)
	if err != nil {
		return err
	}
	return b.changes.apply(ctx, func(w settings) settings { w.config = c; return w })
}

// TestReconfigure: every replica takes it, also one that starts meanwhile; those
// that are started later do, after their construction.
func TestReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{}
		b := newBench(t, p, WithReplicas(2), WithUserConfig(map[string]int{"v": 1}))
		p.reconfigure = func(context.Context, int) error { time.Sleep(time.Minute); return nil }
		b.start()
		time.Sleep(time.Minute)
		b.wantStates("HEALTHY: RUNNING RUNNING")
		if diff := cmp.Diff([]string{`{"v":1}`, `{"v":1}`}, b.configs()); diff != "" {
			t.Errorf("after the start (-want +got):\n%s", diff)
		}
		// A third starts, with the old config, while the others take the new one.
		if err := b.changes.apply(t.Context(), func(w settings) settings { w.replicas = 3; return w }); err != nil {
			t.Error(err)
		}
		if err := b.reconfigureTo(t.Context(), map[string]int{"v": 2}); err != nil {
			t.Error(err)
		}
		b.wantStates("HEALTHY: RUNNING RUNNING RUNNING")
		if diff := cmp.Diff(slices.Repeat([]string{`{"v":2}`}, 3), b.configs()); diff != "" {
			t.Errorf("after the change (-want +got):\n%s", diff)
		}
		b.p.take()
		if err := b.reconfigureTo(t.Context(), map[string]int{"v": 2}); err != nil { // the same
			t.Error(err)
		}
		b.wantNotes()
		b.mustEnd()
	})
}

// TestReconfigureFails: whichever way a replica fails to take a config, all is as
// it was, and that replica is replaced; it takes calls until its successor does.
func TestReconfigureFails(t *testing.T) {
	hang := func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
	for name, way := range map[string]struct {
		hook func(context.Context, int) error
		text string
	}{
		"error":  ways["error"],
		"panic":  ways["panic"],
		"goexit": ways["goexit"],
		"hangs":  {hang, "reconfigure has not returned: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probe{}
				b := newBench(t, p, WithReplicas(3), WithUserConfig("old"))
				b.start()
				b.wantStates("HEALTHY: RUNNING RUNNING RUNNING")
				before := b.status()
				second := b.replicas[1].replica.values[0].(*instance).n
				p.set(&p.construct, func(context.Context, int) error { time.Sleep(time.Minute); return nil })
				p.set(&p.reconfigure, func(ctx context.Context, n int) error {
					if n == second {
						return way.hook(ctx, n)
					}
					return nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := b.reconfigureTo(ctx, "new"); fmt.Sprint(err) != way.text {
					t.Errorf("error %v, want %v", err, way.text)
				}
				b.wantStates("UNHEALTHY: RUNNING UNHEALTHY RUNNING STARTING")
				b.router.mu.Lock()
				listed := len(b.router.members)
				b.router.mu.Unlock()
				if listed != 3 {
					t.Errorf("%d replicas take calls, want 3: the one that failed still does", listed)
				}
				time.Sleep(time.Minute)
				b.wantStates("HEALTHY: RUNNING RUNNING RUNNING")
				after := b.status()
				if after.Replicas[0].ID != before.Replicas[0].ID || after.Replicas[1].ID != before.Replicas[2].ID {
					t.Errorf("other replicas were replaced: %v, then %v", before.Replicas, after.Replicas)
				}
				if diff := cmp.Diff(slices.Repeat([]string{`"old"`}, 3), b.configs()); diff != "" {
					t.Errorf("configs (-want +got):\n%s", diff)
				}
				b.mustEnd()
			})
		})
	}
}

// TestNoWayBack: those that have taken a config which others did not, and had
// none before, are replaced, too.
func TestNoWayBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{}
		b := newBench(t, p, WithReplicas(2))
		b.start()
		b.wantStates("HEALTHY: RUNNING RUNNING")
		before := b.status()
		second := b.replicas[1].replica.values[0].(*instance).n
		p.set(&p.reconfigure, func(_ context.Context, n int) error {
			if n == second {
				return errBoom
			}
			return nil
		})
		if err := b.reconfigureTo(t.Context(), 1); !errors.Is(err, errBoom) {
			t.Errorf("error %v", err)
		}
		b.wantStates("HEALTHY: RUNNING RUNNING")
		for _, r := range b.status().Replicas {
			if slices.ContainsFunc(before.Replicas, func(old ReplicaStatus) bool { return old.ID == r.ID }) {
				t.Errorf("%s is still there", r.ID)
			}
		}
		if diff := cmp.Diff([]string{"", ""}, b.configs()); diff != "" {
			t.Errorf("configs (-want +got):\n%s", diff)
		}
		b.mustEnd()
	})
}

// TestBadConfigAtStart is a failed start; a good one has the deployment try anew.
func TestBadConfigAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &probe{reconfigure: failUpTo(3)}, WithUserConfig("bad"))
		b.start()
		time.Sleep(time.Minute)
		b.wantStates("DEPLOY_FAILED:")
		if err := b.reconfigureTo(t.Context(), "good"); err != nil {
			t.Error(err)
		}
		b.wantStates("HEALTHY: RUNNING")
		if diff := cmp.Diff([]string{`"good"`}, b.configs()); diff != "" {
			t.Errorf("configs (-want +got):\n%s", diff)
		}
		b.mustEnd()
		if err := b.reconfigureTo(t.Context(), "late"); !errors.Is(err, errStopped) {
			t.Errorf("after the stop: %v", err)
		}
	})
}

// TestChangesWaitForEachOther: a change that waits for another gives up with its
// context.
func TestChangesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{reconfigure: func(context.Context, int) error { time.Sleep(time.Hour); return nil }}
		b := newBench(t, p)
		b.start()
		first := make(chan error, 1)
		synctest.Wait()
		go func() { first <- b.reconfigureTo(t.Context(), 1) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.reconfigureTo(ctx, 2); fmt.Sprint(err) != "another change is under way: context deadline exceeded" {
			t.Errorf("the second: %v", err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		b.mustEnd()
	})
}

// TestApplyChangesWhatDiffers: what configs do not say stays, also what
// Reconfigure has set; what they no longer say is as the code has it.
func TestApplyChangesWhatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{}
		b := newBench(t, p, WithUserConfig("code"), WithMaxQueuedRequests(7))
		s := b.server
		b.start()
		b.wantStates("HEALTHY: RUNNING")
		apply := func(c DeploymentConfig) error {
			c.Name = "D"
			return s.Apply(t.Context(), []AppConfig{{Deployments: []DeploymentConfig{c}}})
		}
		two, nine := 2, 9
		wantHeld := func(replicas, ongoing, queued int, config string) {
			t.Helper()
			synctest.Wait()
			w := b.settings()
			if w.replicas != replicas || w.maxOngoing != ongoing || w.maxQueued != queued || w.config.String() != config {
				t.Errorf("%+v, want %d %d %d %s", w, replicas, ongoing, queued, config)
			}
			if r := b.replicas[0]; r.replica.limit() != ongoing || b.router.members[0].limit != ongoing || b.router.maxQueued != queued || r.config.String() != config || len(b.replicas) != replicas {
				t.Errorf("%d replicas, limits %d, %d, %d, config %s", len(b.replicas), r.replica.limit(), b.router.members[0].limit, b.router.maxQueued, r.config)
			}
		}
		for _, step := range []struct {
			config DeploymentConfig
			want   func()
		}{
			{DeploymentConfig{NumReplicas: &two, MaxOngoingRequests: &nine}, func() { wantHeld(2, 9, 7, `"code"`) }},
			{DeploymentConfig{UserConfig: "file", MaxQueuedRequests: &nine}, func() { wantHeld(1, 5, 9, `"file"`) }},
			{DeploymentConfig{UserConfig: "file"}, func() { wantHeld(1, 5, 7, `"file"`) }},
		} {
			if err := apply(step.config); err != nil {
				t.Error(err)
			}
			step.want()
		}
		if err := s.Reconfigure(t.Context(), "a", "D", "hand"); err != nil {
			t.Error(err)
		}
		if err := apply(DeploymentConfig{UserConfig: "file", NumReplicas: &two}); err != nil {
			t.Error(err)
		}
		wantHeld(2, 5, 7, `"hand"`)
		if err := s.Apply(t.Context(), nil); err != nil {
			t.Error(err)
		}
		wantHeld(1, 5, 7, `"code"`)

		// A config that is not taken is tried again, though the file is the same.
		p.set(&p.reconfigure, ways["error"].hook)
		for range 2 {
			if err := apply(DeploymentConfig{UserConfig: "bad"}); fmt.Sprint(err) != `app "a": deployment "D": boom` {
				t.Errorf("error %v", err)
			}
			p.set(&p.reconfigure, nil)
			time.Sleep(time.Second) // where its successor has failed, too
			b.wantStates("HEALTHY: RUNNING")
			p.set(&p.reconfigure, ways["error"].hook)
		}
		p.set(&p.reconfigure, nil)
		b.mustEnd()
	})
}

// TestFaultsOfConfigs: all are told, and nothing is changed.
func TestFaultsOfConfigs(t *testing.T) {
	b := newBench(t, &probe{})
	zero := 0
	second := time.Duration(0)
	err := b.server.Apply(t.Context(), []AppConfig{
		{Name: "b", From: "f:1"},
		{RoutePrefix: "x", From: "f:2", Deployments: []DeploymentConfig{
			{Name: "E", From: "f:3"},
			{Name: "D", From: "f:4", NumReplicas: &zero, HealthCheckPeriod: &second, UserConfig: func() {}},
			{Name: "D", From: "f:5"},
		}},
		{Name: "a"},
	})
	want := `f:1: there is no app "b"; want one of a
f:2: app "a": route prefix "x": want "/" or a clean path such as /api, without wildcards, outside /-/
f:3: app "a" has no deployment "E"; want one of D
f:4: app "a": deployment "D": user config: json: unsupported type: func()
replicas 0: want 1 or more
health check period 0s: want more than zero
f:5: app "a": there is something of deployment "D" already at f:4
app "a": there is something of it already at f:2`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	err = b.server.Apply(t.Context(), []AppConfig{{RoutePrefix: "/other"}})
	if want := `app "a": the route prefix stays "/" until the service is restarted, then it is "/other"`; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	for name, c := range map[string]struct {
		app, deployment string
		config          any
		want            string
	}{
		"app":        {"x", "D", 1, `reconfigure: there is no app "x"; want one of a`},
		"deployment": {"a", "x", 1, `reconfigure: app "a" has no deployment "x"; want one of D`},
		"no JSON":    {"a", "D", make(chan int), `reconfigure deployment "D" of app "a": user config: json: unsupported type: chan int`},
	} {
		if err := b.server.Reconfigure(t.Context(), c.app, c.deployment, c.config); fmt.Sprint(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	b.mustEnd()
}

// Apply compares a route prefix with the prefix in force, which may be that of
// the configs at New and not that of the code.
func TestApplyComparesWithThePrefixInForce(t *testing.T) {
	app := NewApp("a", NewDeployment("D", noHandler), WithRoutePrefix("/code"))
	configs := []AppConfig{{RoutePrefix: "/file"}}
	s, err := New(Config{Apps: configs}, []*App{app})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		configs []AppConfig
		want    string
	}{
		{configs, "<nil>"},
		{nil, `app "a": the route prefix stays "/file" until the service is restarted, then it is "/code"`},
		{[]AppConfig{{RoutePrefix: "/next"}}, `app "a": the route prefix stays "/file" until the service is restarted, then it is "/next"`},
		{configs, "<nil>"},
	} {
		if err := s.Apply(t.Context(), step.configs); fmt.Sprint(err) != step.want {
			t.Errorf("apply %v: error %v, want %s", step.configs, err, step.want)
		}
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestConfigForNobody: a config that no code takes is a fault where it can be
// seen at once, and a failed start where it cannot.
func TestConfigForNobody(t *testing.T) {
	_, err := New(Config{}, []*App{NewApp("a", NewDeployment("D", noHandler, WithUserConfig(1)))})
	if want := `app "a": deployment "D": it has a user config, and no PerReplica whose value could take it`; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	synctest.Test(t, func(t *testing.T) {
		d := NewDeployment("D", noHandler, WithUserConfig(1))
		PerReplica(d, func(context.Context) (int, error) { return 1, nil })
		s, err := New(Config{}, []*App{NewApp("a", d)}, WithLogger(discard))
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{t: t, replicaSet: s.all.order[0]}
		b.start()
		b.wantStates("UNHEALTHY:")
		if got := b.status().Error; got != errNoReconfigurer.Error() {
			t.Errorf("error %q", got)
		}
		b.mustEnd()
	})
}

func TestUserConfig(t *testing.T) {
	type options struct {
		Text string
		N    int `json:"n"`
	}
	for name, c := range map[string]struct {
		config any
		want   options
		err    string
	}{
		"value":    {map[string]any{"text": "a", "n": 1}, options{"a", 1}, ""},
		"nothing":  {nil, options{"kept", 0}, ""},
		"a struct": {options{"b", 2}, options{"b", 2}, ""},
		"unknown":  {map[string]any{"txt": "a"}, options{"kept", 0}, `user config: json: unknown field "txt"`},
		"type":     {map[string]any{"n": "1"}, options{"kept", 0}, "user config: json: cannot unmarshal string into Go struct field options.n of type int"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := newUserConfig(c.config)
			if err != nil {
				t.Fatal(err)
			}
			got := options{Text: "kept"}
			err = config.Decode(&got)
			if c.err == "" && err != nil || c.err != "" && !strings.Contains(fmt.Sprint(err), c.err) {
				t.Errorf("error %v, want %s", err, c.err)
			}
			if got != c.want || config.IsZero() != (c.config == nil) {
				t.Errorf("%+v, want %+v; zero %v", got, c.want, config.IsZero())
			}
		})
	}
}
