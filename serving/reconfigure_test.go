package serving_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// capacity fills the slots and the queue of the deployment, and returns the number of slots
// and the error of the full queue.
func (b *bench) capacity() (slots int, full *serving.QueueFullError) {
	d := b.d.Built()
	ended, cancel := context.WithCancel(b.t.Context())
	cancel()
	var held []*router.Assignment
	for {
		// A request by HTTP whose client has left gets a slot, if it need not wait.
		a, err := d.Assign(ended, spans.RouterStart{Protocol: spans.HTTP})
		if err != nil {
			break
		}
		held = append(held, a)
	}
	waiting, leave := context.WithCancel(b.t.Context())
	var mu sync.Mutex
	for range 20 {
		go func() {
			_, err := d.Assign(waiting, spans.RouterStart{})
			if err, is := errors.AsType[*serving.QueueFullError](err); is {
				mu.Lock()
				defer mu.Unlock()
				full = err
			}
		}()
	}
	synctest.Wait()
	leave()
	synctest.Wait()
	for _, a := range held {
		_ = a.Run(nothing{})
	}
	return len(held), full
}

// nothing is a call that does nothing.
type nothing struct{}

func (nothing) Describe() spans.ReplicaStart { return spans.ReplicaStart{} }
func (nothing) Invoke(context.Context) error { return nil }
func (nothing) End(context.Context, error) (spans.ReplicaResult, error) {
	return spans.ReplicaResult{}, nil
}

// TestApplyChangesWhatDiffers: what configs do not say stays, also what
// Reconfigure has set; what they no longer say is as the code has it.
func TestApplyChangesWhatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{}
		b := newBench(t, p, serving.WithUserConfig("code"), serving.WithMaxQueuedRequests(7))
		s := b.Server
		b.StartReplicas()
		b.wantStates("HEALTHY: RUNNING")
		apply := func(c serving.DeploymentConfig) error {
			c.Name = "D"
			return s.Apply(t.Context(), []serving.AppConfig{{Deployments: []serving.DeploymentConfig{c}}})
		}
		two, nine := 2, 9
		wantHeld := func(replicas, ongoing, queued int, config string) {
			t.Helper()
			synctest.Wait()
			w := b.Status()[0]
			if w.NumReplicas != replicas || w.MaxOngoingRequests != ongoing || w.MaxQueuedRequests != queued || len(w.Replicas) != replicas {
				t.Errorf("%+v, want %d %d %d", w, replicas, ongoing, queued)
			}
			b.wantConfigs(slices.Repeat([]string{config}, replicas)...)
			if free, full := b.capacity(); free != replicas*ongoing || full.Limit != queued {
				t.Errorf("%d slots and %v, want %d slots and a queue of %d", free, full, replicas*ongoing, queued)
			}
		}
		for _, step := range []struct {
			config serving.DeploymentConfig
			want   func()
		}{
			{serving.DeploymentConfig{NumReplicas: &two, MaxOngoingRequests: &nine}, func() { wantHeld(2, 9, 7, `"code"`) }},
			{serving.DeploymentConfig{UserConfig: "file", MaxQueuedRequests: &nine}, func() { wantHeld(1, 5, 9, `"file"`) }},
			{serving.DeploymentConfig{UserConfig: "file"}, func() { wantHeld(1, 5, 7, `"file"`) }},
		} {
			if err := apply(step.config); err != nil {
				t.Error(err)
			}
			step.want()
		}
		if err := s.Reconfigure(t.Context(), "a", "D", "hand"); err != nil {
			t.Error(err)
		}
		if err := apply(serving.DeploymentConfig{UserConfig: "file", NumReplicas: &two}); err != nil {
			t.Error(err)
		}
		wantHeld(2, 5, 7, `"hand"`)
		if err := s.Apply(t.Context(), nil); err != nil {
			t.Error(err)
		}
		wantHeld(1, 5, 7, `"code"`)

		// A config that is not taken is tried again, though the file is the same.
		fails := func(context.Context, int) error { return errBoom }
		p.Set(&p.Reconfigure, fails)
		for range 2 {
			if err := apply(serving.DeploymentConfig{UserConfig: "bad"}); fmt.Sprint(err) != `app "a": deployment "D": boom` {
				t.Errorf("error %v", err)
			}
			p.Set(&p.Reconfigure, nil)
			time.Sleep(time.Second) // where its successor has failed, too
			b.wantStates("HEALTHY: RUNNING")
			p.Set(&p.Reconfigure, fails)
		}
		p.Set(&p.Reconfigure, nil)
		b.mustEnd()
	})
}

// TestFaultsOfConfigs: all are told, and nothing is changed.
func TestFaultsOfConfigs(t *testing.T) {
	b := newBench(t, &probe{})
	zero := 0
	second := time.Duration(0)
	err := b.Apply(t.Context(), []serving.AppConfig{
		{Name: "b", From: "f:1"},
		{RoutePrefix: "x", From: "f:2", Deployments: []serving.DeploymentConfig{
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
	err = b.Apply(t.Context(), []serving.AppConfig{{RoutePrefix: "/other"}})
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
		if err := b.Reconfigure(t.Context(), c.app, c.deployment, c.config); fmt.Sprint(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	b.mustEnd()
}

// Apply compares a route prefix with the prefix in force, which may be that of
// the configs at New and not that of the code.
func TestApplyComparesWithThePrefixInForce(t *testing.T) {
	app := serving.NewApp("a", serving.NewDeployment("D", noHandler), serving.WithRoutePrefix("/code"))
	configs := []serving.AppConfig{{RoutePrefix: "/file"}}
	s, err := serving.New(serving.Config{Apps: configs}, []*serving.App{app})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		configs []serving.AppConfig
		want    string
	}{
		{configs, "<nil>"},
		{nil, `app "a": the route prefix stays "/file" until the service is restarted, then it is "/code"`},
		{[]serving.AppConfig{{RoutePrefix: "/next"}}, `app "a": the route prefix stays "/file" until the service is restarted, then it is "/next"`},
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
	_, err := serving.New(serving.Config{}, []*serving.App{serving.NewApp("a", serving.NewDeployment("D", noHandler, serving.WithUserConfig(1)))})
	if want := `app "a": deployment "D": it has a user config, and no PerReplica whose value could take it`; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	synctest.Test(t, func(t *testing.T) {
		d := serving.NewDeployment("D", noHandler, serving.WithUserConfig(1))
		serving.PerReplica(d, func(context.Context) (int, error) { return 1, nil })
		s, err := serving.New(serving.Config{}, []*serving.App{serving.NewApp("a", d)}, serving.WithLogger(discard))
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{t: t, Server: s}
		b.StartReplicas()
		b.wantStates("UNHEALTHY:")
		if got := b.Status()[0].Error; got != router.ErrNoReconfigurer.Error() {
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
			config, err := serving.NewUserConfig(c.config)
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
