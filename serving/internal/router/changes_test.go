package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/servetrace/servetrace/test/servingtest"
)

// configs gives what each replica has taken, oldest first.
func (b *bench) configs() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.replicas.list {
		all = append(all, l.config)
	}
	return all
}

// instances returns the instances of the replicas, oldest first.
func (b *bench) instances() (all []*servingtest.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.replicas.list {
		all = append(all, l.replica.values[0].Local.(*servingtest.Instance))
	}
	return all
}

// TestReconfigure: every replica takes it, also one that starts meanwhile; those
// that are started later do, after their construction.
func TestReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &servingtest.Probe{}
		b := newBench(t, p, withReplicas(2), withConfig(`{"v":1}`))
		p.Reconfigure = func(context.Context, int) error { time.Sleep(time.Minute); return nil }
		b.Start()
		time.Sleep(time.Minute)
		b.wantStates("HEALTHY: RUNNING RUNNING")
		if diff := cmp.Diff([]string{`{"v":1}`, `{"v":1}`}, b.configs()); diff != "" {
			t.Errorf("after the start (-want +got):\n%s", diff)
		}
		// A third starts, with the old config, while the others take the new one.
		if err := b.Changes.apply(t.Context(), func(w Settings) Settings { w.Replicas = 3; return w }); err != nil {
			t.Error(err)
		}
		if err := b.Changes.Reconfigure(t.Context(), `{"v":2}`); err != nil {
			t.Error(err)
		}
		b.wantStates("HEALTHY: RUNNING RUNNING RUNNING")
		if diff := cmp.Diff(slices.Repeat([]string{`{"v":2}`}, 3), b.configs()); diff != "" {
			t.Errorf("after the change (-want +got):\n%s", diff)
		}
		b.p.Take()
		if err := b.Changes.Reconfigure(t.Context(), `{"v":2}`); err != nil { // the same
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
				p := &servingtest.Probe{}
				b := newBench(t, p, withReplicas(3), withConfig(`"old"`))
				b.Start()
				b.wantStates("HEALTHY: RUNNING RUNNING RUNNING")
				before := b.Status()
				second := b.instances()[1].N
				p.Set(&p.Construct, func(context.Context, int) error { time.Sleep(time.Minute); return nil })
				p.Set(&p.Reconfigure, func(ctx context.Context, n int) error {
					if n == second {
						return way.hook(ctx, n)
					}
					return nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := b.Changes.Reconfigure(ctx, `"new"`); fmt.Sprint(err) != way.text {
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
				after := b.Status()
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
		p := &servingtest.Probe{}
		b := newBench(t, p, withReplicas(2))
		b.Start()
		b.wantStates("HEALTHY: RUNNING RUNNING")
		before := b.Status()
		second := b.instances()[1].N
		p.Set(&p.Reconfigure, func(_ context.Context, n int) error {
			if n == second {
				return errBoom
			}
			return nil
		})
		if err := b.Changes.Reconfigure(t.Context(), "1"); !errors.Is(err, errBoom) {
			t.Errorf("error %v", err)
		}
		b.wantStates("HEALTHY: RUNNING RUNNING")
		for _, r := range b.Status().Replicas {
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
		b := newBench(t, &servingtest.Probe{Reconfigure: failUpTo(3)}, withConfig(`"bad"`))
		b.Start()
		time.Sleep(time.Minute)
		b.wantStates("DEPLOY_FAILED:")
		if err := b.Changes.Reconfigure(t.Context(), `"good"`); err != nil {
			t.Error(err)
		}
		b.wantStates("HEALTHY: RUNNING")
		if diff := cmp.Diff([]string{`"good"`}, b.configs()); diff != "" {
			t.Errorf("configs (-want +got):\n%s", diff)
		}
		b.mustEnd()
		if err := b.Changes.Reconfigure(t.Context(), `"late"`); !errors.Is(err, errStopped) {
			t.Errorf("after the stop: %v", err)
		}
	})
}

// TestChangesWaitForEachOther: a change that waits for another gives up with its
// context.
func TestChangesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &servingtest.Probe{Reconfigure: func(context.Context, int) error { time.Sleep(time.Hour); return nil }}
		b := newBench(t, p)
		b.Start()
		first := make(chan error, 1)
		synctest.Wait()
		go func() { first <- b.Changes.Reconfigure(t.Context(), "1") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Changes.Reconfigure(ctx, "2"); fmt.Sprint(err) != "another change is under way: context deadline exceeded" {
			t.Errorf("the second: %v", err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		b.mustEnd()
	})
}
