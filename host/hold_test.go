package host_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/supervise"
	"github.com/servetrace/servetrace/internal/wire"
)

// retryLater is the answer of a back end that wants to be left alone.
func retryLater(after time.Duration) error {
	return wire.ToStatus(&wire.Error{Code: wire.CodeRetry, After: after, Err: errors.New("429 too many")})
}

// TestRetryAfterHoldsBackAllBatches: a back end that asks for a pause gets no batch. The
// other exporter has another back end.
func TestRetryAfterHoldsBackAllBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		throttled := newFakePlugin(func(_ context.Context, n int) error {
			if n == 1 {
				return retryLater(20 * time.Second)
			}
			return nil
		})
		other := newFakePlugin(func(context.Context, int) error { return nil })
		h, err := host.New(host.Config{Plugins: "a=/fake/plugin,b=/fake/plugin"}, host.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		h.Supervisor().Connect = func(_ context.Context, _ *supervise.Settings, p supervise.Plan, _ *slog.Logger) (supervise.Peer, error) {
			return map[string]*fakePlugin{"a": throttled, "b": other}[p.Name], nil
		}
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for range 10 {
			endSpans(h, 1)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		counts := h.Stats().Exporters
		if got := throttled.called(); got != 1 {
			t.Errorf("%d calls to the one that wants to be left alone, want 1", got)
		}
		if got, want := counts[0].HeldUntil, begin.Add(host.DefaultBatchAge+20*time.Second); !got.Equal(want) {
			t.Errorf("held until %v, want %v", got, want)
		}
		if counts[1].Delivered != 10 || !counts[1].HeldUntil.IsZero() {
			t.Errorf("the other delivered %d, held until %v", counts[1].Delivered, counts[1].HeldUntil)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if got := h.Stats().Exporters[0]; got.Delivered != 10 || !got.HeldUntil.IsZero() {
			t.Errorf("%d delivered, held until %v; want all 10", got.Delivered, got.HeldUntil)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestRetryAfterOfHours: the back end gets a batch every MaxAge, older batches are
// dropped, and the rest is delivered when the back end is back.
func TestRetryAfterOfHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		plugin := newFakePlugin(func(context.Context, int) error {
			if time.Since(begin) < 10*time.Minute {
				return retryLater(3 * time.Hour)
			}
			return nil
		})
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil)
		for range 11 * 60 {
			endSpans(h, 1)
			time.Sleep(time.Second)
		}
		time.Sleep(host.DefaultMaxAge)
		synctest.Wait()
		late := 0
		for _, at := range plugin.calls {
			if at < 10*time.Minute {
				late++
			}
		}
		if most := 11 * wire.DefaultMaxConcurrency; late > most {
			t.Errorf("%d calls in ten minutes, want at most %d", late, most)
		}
		got := h.Stats().Exporters[0]
		if got.Delivered < 60 || got.Dropped["max_age"]+got.Delivered != 11*60 {
			t.Errorf("delivered %d, dropped %v; want the last minute delivered and all others dropped", got.Delivered, got.Dropped)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestEndMakesAllDue: Shutdown sends the waiting batches at once, without their pauses.
func TestEndMakesAllDue(t *testing.T) {
	for name, answer := range map[string]error{
		"backoff": status.Error(codes.Unavailable, "down"), "asked for": retryLater(time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				down := true
				plugin := newFakePlugin(func(context.Context, int) error {
					if down {
						return answer
					}
					return nil
				})
				h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil)
				for range 30 {
					endSpans(h, 1)
					time.Sleep(time.Second)
				}
				synctest.Wait()
				down = false
				begin := time.Now()
				if err := h.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
				if got := h.Stats().Exporters[0].Delivered; got != 30 {
					t.Errorf("%d delivered, want all 30", got)
				}
				if took := time.Since(begin); took > time.Second {
					t.Errorf("the end took %v, though the back end was there", took)
				}
			})
		})
	}
}

// TestNewProcessIsNotHeldBack: it may have another back end.
func TestNewProcessIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newFakePlugin(func(context.Context, int) error { return retryLater(50 * time.Second) })
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			if n == 1 {
				return first, nil
			}
			return newFakePlugin(func(context.Context, int) error { return nil }), nil
		}, nil)
		endSpans(h, 3)
		time.Sleep(time.Second)
		if err := h.Reload(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := h.Stats().Exporters[0].Delivered; got != 3 {
			t.Errorf("%d delivered, want 3", got)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
