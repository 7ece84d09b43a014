package multiplexing_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving/multiplexing"
)

// TestModelsNeverExceedRoom has requests end while their model is loading or waits for
// room.
func TestModelsNeverExceedRoom(t *testing.T) {
	const ms = time.Millisecond
	type visit struct {
		id    string
		from  time.Duration
		until time.Duration // when it leaves; 0: it stays until it has the model
	}
	for _, tc := range []struct {
		name   string
		max    int
		visits []visit
		want   []string
	}{
		{"a model that is unloaded while nobody waits for it to come back", 2,
			[]visit{
				{"a", 0, 0}, {"b", 1000 * ms, 0},
				{"c", 2000 * ms, 2600 * ms}, {"d", 2500 * ms, 2600 * ms}, // for which a and b make room
				{"b", 3100 * ms, 3200 * ms}, {"b", 3300 * ms, 0},
			},
			[]string{
				"load a at 0s", "load b at 1s",
				"unload a at 2s", "unload b at 2.5s", "unloaded a at 3s", "unloaded b at 3.5s", "load b at 3.5s",
			}},
		{"a load that nobody waits for and that goes on", 1,
			[]visit{{"a", 0, 500 * ms}, {"b", 600 * ms, 0}},
			[]string{"load a at 0s", "unload a at 1s", "unloaded a at 2s", "load b at 2s"}},
		{"the next load of a model, which takes no more room than the one that nobody waits for", 2,
			[]visit{{"a", 0, 0}, {"b", 1000 * ms, 1500 * ms}, {"b", 1600 * ms, 0}},
			[]string{"load a at 0s", "load b at 1s", "unload b at 2s", "unloaded b at 3s", "load b at 3s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, s := newRig(), newShop()
				m := multiplexing.New(func(ctx context.Context, id string) (string, error) {
					return s.load(context.WithoutCancel(ctx), id)
				}, multiplexing.WithUnload(s.unload), multiplexing.WithMaxModels(tc.max))
				var all sync.WaitGroup
				for _, v := range tc.visits {
					all.Go(func() {
						time.Sleep(v.from)
						ctx, leave := context.WithCancelCause(t.Context())
						defer leave(nil)
						if v.until > 0 {
							time.AfterFunc(v.until-v.from, func() { leave(errByChance) })
						}
						ctx, end := r.call(ctx, v.id)
						defer end()
						if _, err := m.Get(ctx); v.until == 0 && err != nil || v.until > 0 && !errors.Is(err, errByChance) {
							t.Errorf("%+v: %v", v, err)
						}
					})
				}
				all.Wait()
				if diff := cmp.Diff(tc.want, s.all()); diff != "" {
					t.Errorf("what happens (-want +got):\n%s", diff)
				}
				r.replica.Stop(t.Context())
			})
		})
	}
}
