package serving_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// probe makes the values of a deployment, which take the user config of package serving.
type probe struct {
	servingtest.Probe

	mu      sync.Mutex
	configs map[string]string // by replica, as taken
}

// instance is a value of a probe.
type instance struct {
	*servingtest.Instance
	p *probe
}

// make is the constructor of the values.
func (p *probe) make(ctx context.Context) (*instance, error) {
	i, err := p.New(ctx)
	return &instance{i, p}, err
}

// Reconfigure implements [serving.Reconfigurer].
func (i *instance) Reconfigure(ctx context.Context, c serving.UserConfig) error {
	err := i.Instance.Reconfigure(ctx, c.String())
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
	serving.PerReplica(d, p.make)
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
