package serving_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
)

// probe makes the values of a deployment and notes the calls of their methods.
type probe struct {
	reconfigure, check hook // nil: nothing; guarded by mu once they may be called
	construct          hook

	mu      sync.Mutex
	made    int
	log     []string
	configs map[string]string // by replica, as taken
}

// hook is a method of the n-th value.
type hook = func(ctx context.Context, n int) error

// instance is the n-th value that was made.
type instance struct {
	p *probe
	n int
}

func (p *probe) new(ctx context.Context) (*instance, error) {
	p.mu.Lock()
	p.made++
	n := p.made
	p.mu.Unlock()
	p.note("make %d", n)
	return &instance{p, n}, p.call(ctx, &p.construct, n)
}

// call runs a hook of the probe.
func (p *probe) call(ctx context.Context, which *hook, n int) error {
	p.mu.Lock()
	f := *which
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, n)
}

// set changes a hook of the probe.
func (p *probe) set(which *hook, f hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*which = f
}

func (p *probe) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

func (p *probe) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

// take returns and forgets the notes.
func (p *probe) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := p.log
	p.log = nil
	return log
}

func (i *instance) Reconfigure(ctx context.Context, c serving.UserConfig) error {
	err := i.p.call(ctx, &i.p.reconfigure, i.n)
	if info, _ := serving.ReplicaContext(ctx); err == nil {
		i.p.mu.Lock()
		defer i.p.mu.Unlock()
		if i.p.configs == nil {
			i.p.configs = map[string]string{}
		}
		i.p.configs[info.ReplicaID.UniqueID] = c.String()
	}
	return err
}

func (i *instance) CheckHealth(ctx context.Context) error { return i.p.call(ctx, &i.p.check, i.n) }

func (i *instance) Stop(context.Context) error {
	i.p.note("stop %d", i.n)
	return nil
}

// bench is a server with a probe that never listens: it runs by the clock of a bubble.
type bench struct {
	*serving.Server
	t *testing.T
	p *probe
	d *serving.Deployment
}

func newBench(t *testing.T, p *probe, opts ...serving.DeploymentOption) *bench {
	t.Helper()
	d := serving.NewDeployment("D", noHandler, opts...)
	serving.PerReplica(d, p.new)
	s, err := serving.New(serving.Config{}, []*serving.App{serving.NewApp("a", d)}, serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Server: s, t: t, p: p, d: d}
}

func (b *bench) mustEnd() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.Shutdown(ctx); err != nil {
		b.t.Error(err)
	}
}

// wantStates checks the states of the deployment and its replicas.
func (b *bench) wantStates(want string) {
	b.t.Helper()
	synctest.Wait()
	s := b.Status()[0]
	got := s.State.String() + ":"
	for _, r := range s.Replicas {
		got += " " + r.State.String()
	}
	if got != want {
		b.t.Errorf("after %v: %s, want %s", s.Error, got, want)
	}
}

// wantConfigs checks the configs that the replicas have taken, oldest first.
func (b *bench) wantConfigs(want ...string) {
	b.t.Helper()
	synctest.Wait()
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	var got []string
	for _, r := range b.Status()[0].Replicas {
		got = append(got, b.p.configs[r.ID])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("configs (-want +got):\n%s", diff)
	}
}
