package pipeline

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/wire"
)

// TestBlipMakesNoLongPause: a call in flight at the begin of an outage does not count as
// its probe.
func TestBlipMakesNoLongPause(t *testing.T) {
	o := outage{misses: outageAfter, more: true, away: true}
	now := time.Unix(1000, 0)
	for seq := range uint64(64) {
		o.missed(now, seq, false)
	}
	if pause := o.until.Sub(now); pause > probeFirst {
		t.Errorf("a pause of %v after no probe, want %v at most", pause, probeFirst)
	}
}

func TestOutageBeginsAfterSomeMisses(t *testing.T) {
	var o outage
	now := time.Now()
	for seq := range uint64(outageAfter) {
		if o.on() {
			t.Errorf("an outage after %d misses, want %d", seq, outageAfter)
		}
		now = now.Add(outageLeast/(outageAfter-1) + 1)
		o.missed(now, seq, false)
	}
	if !o.on() || !o.until.After(now) {
		t.Errorf("no outage after %d misses: %+v", outageAfter, o)
	}
}

// TestDroppedProbeIsFollowedByAnother: a probe that gets too old in flight leaves a
// pause as any other does, at the end of which the next is sent.
func TestDroppedProbeIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := newTestPipeline(Settings{MaxAge: 8 * time.Second})
		l := NewLane(q, func() bool { return false })
		l.Open(Limits{Spans: 100, Bytes: 1 << 20, Calls: 1})
		q.outage = outage{misses: outageAfter, more: true, away: true}
		seal(p, 10)
		it := l.Take(t.Context())
		time.Sleep(9*time.Second - time.Millisecond)
		seal(p, 10)
		time.Sleep(time.Millisecond)
		l.Settle(it, Answer{Err: wire.FromStatus(status.Error(codes.Unavailable, "away")), Reached: true, Said: true})
		begun := time.Now()
		l.Settle(l.Take(t.Context()), Answer{Reached: true, Said: true})
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the next batch was sent after %v, want a second at most", took)
		}
		if s := p.Stats().Queues[q]; s.Delivered != 10 || s.Dropped["max_age"] != 10 {
			t.Errorf("%d spans delivered, %v dropped; want one batch each", s.Delivered, s.Dropped)
		}
		l.Close()
	})
}
