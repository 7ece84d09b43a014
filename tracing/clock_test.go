package tracing

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestReadings: a span starts and ends at the readings that it is given, and so
// does what is told of its end.
func TestReadings(t *testing.T) {
	const ago = time.Hour
	r := newRecorder(t)
	boom := errors.New("boom")
	arrived := Clock() - ago
	assigned, returned, ended := arrived+time.Second, arrived+2*time.Second, arrived+3*time.Second
	ctx, proxy := r.StartProxy(t.Context(), ProxyStart{Request: &Request{}, At: arrived})
	ctx, router := r.StartRouter(ctx, RouterStart{})
	ctx, replica := r.StartReplica(ctx, ReplicaStart{Request: &Request{}, At: assigned})
	_, load := r.StartModelLoad(ctx, "m")
	load.End(boom)
	router.End(RouterResult{Outcome: RouterCanceled, Err: boom, At: assigned})
	replica.End(ReplicaResult{Err: boom, At: returned})
	proxy.End(ProxyResult{Err: boom, At: ended})

	spans := r.exporter.GetSpans()
	first := spans[3].StartTime
	if apart := time.Since(first) - ago; apart < -time.Minute || apart > time.Minute {
		t.Errorf("the first span started %v ago, want %v", time.Since(first), ago)
	}
	now := spans[0].StartTime.Sub(first)
	if now < ago || spans[1].StartTime.Sub(first) < ago {
		t.Errorf("what has no reading started %v and %v after the first span, want %v or more", now, spans[1].StartTime.Sub(first), ago)
	}
	type times struct{ Start, End, Event time.Duration }
	var got []times
	for _, s := range spans {
		if len(s.Events) != 1 {
			t.Fatalf("%q has %d events, want 1", s.Name, len(s.Events))
		}
		got = append(got, times{s.StartTime.Sub(first), s.EndTime.Sub(first), s.Events[0].Time.Sub(first)})
	}
	if load := got[0]; load.Event != load.End || load.End < load.Start {
		t.Errorf("the load: %v", load)
	}
	got[1].Start = 0 // its own
	want := []times{
		got[0],
		{0, assigned - arrived, assigned - arrived},
		{assigned - arrived, returned - arrived, returned - arrived},
		{0, ended - arrived, ended - arrived},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRecording: each span says whether it records, and a reading is worth it.
func TestRecording(t *testing.T) {
	for _, p := range []*Provider{Off(), sunk(t, 0), sunk(t, 1)} {
		ctx, proxy := p.StartProxy(context.Background(), ProxyStart{Request: &Request{}})
		ctx, router := p.StartRouter(ctx, RouterStart{})
		_, replica := p.StartReplica(ctx, ReplicaStart{Request: &Request{}})
		want := p.Enabled() && proxy.Context().IsValid()
		if got := []bool{proxy.Recording(), router.Recording(), replica.Recording()}; !cmp.Equal(got, []bool{want, want, want}) {
			t.Errorf("recording: %v, want %v", got, want)
		}
		replica.End(ReplicaResult{})
		router.End(RouterResult{})
		proxy.End(ProxyResult{})
	}
}
