package host

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/internal/wire"
)

// unstarted is a Host whose exporters have no plugins: tests move their parts
// by hand.
func unstarted(t *testing.T, plugins string) *Host {
	t.Helper()
	h, err := New(Config{Plugins: plugins, BatchSpans: 10}, WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.Shutdown(context.Background()) // what is left is lost
		if err := h.Stats().Check(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// TestNothingIsSentToAPluginThatGoes: its sender may not know yet that it has
// ended, or is being killed, and must not try one batch again and again.
func TestNothingIsSentToAPluginThatGoes(t *testing.T) {
	for name, end := range map[string]func(f *fakePlugin, l *sender){
		"ended":  func(f *fakePlugin, _ *sender) { f.die() },
		"killed": func(f *fakePlugin, s *sender) { f.onKill = func() {}; s.kill("test") },
	} {
		t.Run(name, func(t *testing.T) {
			h := unstarted(t, "/no/plugin")
			x, f := h.plugins[0], newFakePlugin(nil)
			s := newSender(x, f)
			batches(h, 1)
			end(f, s)
			if it := s.lane.Take(t.Context()); it != nil {
				t.Errorf("batch %s is taken for a plugin that goes", it.ID(""))
			}
		})
	}
}

// countedPlugin is a fake one that keeps the attempts that it was told.
type countedPlugin struct {
	*fakePlugin
	attempts []string
}

func (c *countedPlugin) Conn() grpc.ClientConnInterface { return c }

func (c *countedPlugin) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	sent, _ := metadata.FromOutgoingContext(ctx)
	c.attempts = append(c.attempts, sent.Get(wire.MetaAttempt)...)
	return c.fakePlugin.Invoke(ctx, method, args, reply, opts...)
}

// TestAttemptsAreCallsThatHadAConnection: what gRPC did not even take is no
// attempt, and is sent again as what never failed.
func TestAttemptsAreCallsThatHadAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := unstarted(t, "/no/plugin")
		x, c := h.plugins[0], &countedPlugin{fakePlugin: newFakePlugin(well)}
		connected := false
		c.begin = func(string) error {
			if connected {
				return nil
			}
			return errBroken
		}
		s := newSender(x, c)
		s.lane.Open(limitsOf(nil))
		defer s.lane.Close()
		batches(h, 1)
		for i := range 5 {
			connected = i == 4
			time.Sleep(firstRetry)
			it := s.lane.Take(t.Context())
			s.settle(it, s.send(t.Context(), it))
			if got := it.Attempt; !connected && got != 0 || connected && got != 1 {
				t.Errorf("%d attempts after call %d", got, i+1)
			}
		}
		for _, got := range c.attempts {
			if got != strconv.Itoa(1) {
				t.Errorf("the plugin is told attempt %s, want 1", got)
			}
		}
		if got := h.Stats().Exporters[0].Delivered; got != 10 {
			t.Errorf("%d spans delivered, want 10", got)
		}
	})
}
