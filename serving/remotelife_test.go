package serving_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
	"github.com/servetrace/servetrace/test/servingtest"
)

// TestRemoteCallsMeetInBatches: calls of two processes are in one batch of the callee, whose
// span is a child of one, and has links to the other three.
func TestRemoteCallsMeetInBatches(t *testing.T) {
	deployment := func() (*serving.Deployment, *serving.Handle[int, int]) {
		d := functions("B")
		b := batching.New("all", func(_ context.Context, in []int) ([]int, error) {
			out := make([]int, len(in))
			for i := range in {
				out[i] = 100*len(in) + in[i]
			}
			return out, nil
		}, batching.WithMaxBatchSize(4), batching.WithWaitTimeout(servingtest.Patience))
		return d, serving.AddFunction(d, "", b.Do)
	}
	there, _ := deployment()
	b := callee(t, there)
	var calls sync.WaitGroup
	for range 2 {
		here, call := deployment()
		callerOf(t, nil2, []*rig{b}, here)
		for n := range 2 {
			calls.Go(func() {
				if out, err := call.Call(t.Context(), n); out != 400+n || err != nil {
					t.Errorf("call %d: %d, %v, want a batch of 4", n, out, err)
				}
			})
		}
	}
	calls.Wait()
	for _, s := range b.spans.take(t, 5) {
		if strings.HasPrefix(s.Name(), "batch_execute") && len(s.Links()) != 3 {
			t.Errorf("the span of the batch has %d links, want 3", len(s.Links()))
		}
	}
}

// ailing is a value of a replica with a config, which can become sick.
type ailing struct {
	config atomic.Pointer[string]
	sick   atomic.Bool
}

// Reconfigure implements [serving.Reconfigurer].
func (p *ailing) Reconfigure(_ context.Context, c serving.UserConfig) error {
	text := c.String()
	p.config.Store(&text)
	return nil
}

// CheckHealth implements [serving.HealthChecker].
func (p *ailing) CheckHealth(context.Context) error {
	if p.sick.Load() {
		return errors.New("sick")
	}
	return nil
}

// TestRemoteReplicasChange: a new config holds for calls from other processes, and a sick
// replica is replaced without a failed call.
func TestRemoteReplicasChange(t *testing.T) {
	var made atomic.Pointer[ailing]
	deployment := func() (*serving.Deployment, *serving.Handle[int, string]) {
		d := functions("B", serving.WithUserConfig("one"), serving.WithHealthCheck(10*time.Millisecond, servingtest.Patience))
		value := serving.PerReplica(d, func(context.Context) (*ailing, error) {
			p := new(ailing)
			made.Store(p)
			return p, nil
		})
		return d, serving.AddFunction(d, "", func(ctx context.Context, _ int) (string, error) {
			return fmt.Sprintf("%s of %p", *value.Get(ctx).config.Load(), value.Get(ctx)), nil
		})
	}
	there, _ := deployment()
	b := callee(t, there)
	here, call := deployment()
	a := callerOf(t, nil2, []*rig{b}, here)
	want := func(config string, p *ailing) bool {
		t.Helper()
		out, err := call.Call(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		return out == fmt.Sprintf("%q of %p", config, p)
	}
	servingtest.Await(t, "the first config", func() bool { return want("one", made.Load()) })
	if err := b.server.Reconfigure(t.Context(), "a", "B", "two"); err != nil {
		t.Fatal(err)
	}
	first := made.Load()
	if !want("two", first) {
		t.Error("the call has the old config")
	}
	if err := a.server.Reconfigure(t.Context(), "a", "B", "three"); err == nil || !strings.Contains(err.Error(), "reconfigure it there") {
		t.Errorf("a new config in the caller: %v", err)
	}
	first.sick.Store(true)
	servingtest.Await(t, "a call of the next replica", func() bool { return made.Load() != first && want("two", made.Load()) })
}
