package supervise

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/wire"
)

// TestNothingIsSentToAPluginThatGoes: its sender may not know yet that it has
// ended, or is being killed, and must not try one batch again and again.
func TestNothingIsSentToAPluginThatGoes(t *testing.T) {
	for name, end := range map[string]func(f *peerFake, l *sender){
		"ended":  func(f *peerFake, _ *sender) { f.die() },
		"killed": func(f *peerFake, s *sender) { f.onKill = func() {}; s.kill("test") },
	} {
		t.Run(name, func(t *testing.T) {
			x, f := testPlugin(t), newPeerFake(nil)
			s := newSender(x, f)
			sealOne(x)
			end(f, s)
			if it := s.lane.Take(t.Context()); it != nil {
				t.Errorf("batch %s is taken for a plugin that goes", it.ID())
			}
		})
	}
}

// TestAttemptsAreCallsThatHadAConnection: a call that gRPC did not send is no attempt,
// and the batch is sent again as if it never failed.
func TestAttemptsAreCallsThatHadAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connected, attempts := false, []string(nil)
		x, f := testPlugin(t), newPeerFake(func(ctx context.Context, method string, args any) error {
			if method != wire.ExportMethod {
				return nil
			}
			sent, _ := metadata.FromOutgoingContext(ctx)
			attempts = append(attempts, sent.Get(wire.MetaAttempt)...)
			if !connected {
				return status.Error(codes.Unavailable, "error reading from server: EOF")
			}
			args.(*wire.Outgoing).Buffers().Free()
			return nil
		})
		s := newSender(x, f)
		s.lane.Open(limitsOf(nil))
		defer s.lane.Close()
		sealOne(x)
		for i := range 5 {
			connected = i == 4
			time.Sleep(200 * time.Millisecond)
			it := s.lane.Take(t.Context())
			s.settle(it, s.send(t.Context(), it))
			if got := it.Attempt; !connected && got != 0 || connected && got != 1 {
				t.Errorf("%d attempts after call %d", got, i+1)
			}
		}
		for _, got := range attempts {
			if got != strconv.Itoa(1) {
				t.Errorf("the plugin is told attempt %s, want 1", got)
			}
		}
		if got := x.sup.pipeline.Stats().Queues[x.Queue].Delivered; got != 10 {
			t.Errorf("%d spans delivered, want 10", got)
		}
	})
}
