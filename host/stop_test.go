package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/launch"
)

// TestShutdownDuringTheEndOfAPluginOfNoUse: a plugin that refused its
// configuration and ends slowly does not hold a Shutdown that has less time.
func TestShutdownDuringTheEndOfAPluginOfNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := fakeHost(t, func(int) (*fakePlugin, error) {
			plugin := newFakePlugin(nil)
			plugin.configure = status.Error(codes.InvalidArgument, "no token")
			plugin.slowEnd = true
			return plugin, nil
		}, nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if err := h.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("Shutdown took %v of 100ms", took)
		}
	})
}

// TestShutdownDoesNotWaitForARefusedConfiguration: spans wait for a plugin that refuses
// its configuration, but a further start with it would not deliver them.
func TestShutdownDoesNotWaitForARefusedConfiguration(t *testing.T) {
	for name, change := range map[string]func(*host.Config){
		"by the plugin": nil,
		"file not there": func(c *host.Config) {
			c.PluginConfigs = map[string]host.PluginConfig{"plugin": {File: "/nowhere/plugin.yaml"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := fakeHost(t, func(int) (*fakePlugin, error) {
					plugin := newFakePlugin(nil)
					plugin.configure = status.Error(codes.InvalidArgument, "no token")
					return plugin, nil
				}, change)
				endSpans(h, 3)
				time.Sleep(time.Second)
				begun := time.Now()
				err := h.Shutdown(t.Context())
				if err == nil || !strings.Contains(err.Error(), "3 spans not delivered") || !strings.Contains(err.Error(), "not run as it is") {
					t.Errorf("Shutdown = %v", err)
				}
				if took := time.Since(begun); took != 0 {
					t.Errorf("Shutdown took %v", took)
				}
			})
		})
	}
}

// TestShutdownTriesAMendedPlugin: a plugin that refused its configuration is started once
// more, because the cause may be removed.
func TestShutdownTriesAMendedPlugin(t *testing.T) {
	refused := true
	live(t, func(int) (*fakePlugin, error) {
		plugin := newFakePlugin(well)
		if refused {
			plugin.configure = status.Error(codes.InvalidArgument, "no token")
		}
		return plugin, nil
	}, nil, func(l *lived) {
		l.pass(10 * time.Second)
		endSpans(l.Host, 3)
		refused = false
		if err := l.Shutdown(l.t.Context()); err != nil {
			t.Error(err)
		}
		if got := l.Stats().Exporters[0].Delivered; got != 3 {
			t.Errorf("%d spans delivered, want 3", got)
		}
	})
}

// TestShutdownTriesAPluginInItsPause: a plugin whose starts fail gets further starts until
// the time for the rest of the spans ends, and none if no span waits.
func TestShutdownTriesAPluginInItsPause(t *testing.T) {
	for name, c := range map[string]struct{ spans, fail, more int }{
		"mended at the third start": {spans: 3, fail: 2, more: 3},
		"nothing waits":             {fail: 2},
	} {
		t.Run(name, func(t *testing.T) {
			fail := 1000
			live(t, func(n int) (*fakePlugin, error) {
				if n <= fail {
					return nil, &launch.Error{Reason: launch.ReasonNotPlugin, Path: "/fake/plugin", Err: errors.New("it ended")}
				}
				return newFakePlugin(well), nil
			}, nil, func(l *lived) {
				l.pass(10 * time.Second)
				l.wantState(host.StateBroken)
				endSpans(l.Host, c.spans)
				before := int(l.launches.Load())
				fail = before + c.fail
				if err := l.Shutdown(l.t.Context()); err != nil {
					t.Error(err)
				}
				if got := int(l.launches.Load()) - before; got != c.more {
					t.Errorf("%d launches while the host stops, want %d", got, c.more)
				}
				if got := l.Stats().Exporters[0].Delivered; got != uint64(c.spans) {
					t.Errorf("%d spans delivered, want %d", got, c.spans)
				}
			})
		})
	}
}
