package router

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
)

// TestStartIsLinear: ten times as many replicas need about ten times as much memory for
// their start and for a change of their limits, not a hundred times.
func TestStartIsLinear(t *testing.T) {
	few, many := allocated(t, 300), allocated(t, 3000)
	if many > 20*few {
		t.Errorf("3000 replicas allocate %d bytes and 300 allocate %d: want at most 20 times as much", many, few)
	}
}

// allocated returns how many bytes the life of n replicas allocates.
func allocated(t *testing.T, n int) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	d := New(newServer(t, slog.New(slog.DiscardHandler)), Config{App: "a", Name: "D", Settings: Settings{
		Replicas: n, MaxOngoing: 5, MaxQueued: -1, WaitLoop: 1, StopTimeout: 1,
	}})
	runtime.ReadMemStats(&before)
	d.Replicas.Start()
	if got := len(d.Replicas.Status().Replicas); got != n {
		t.Fatalf("%d replicas run, want %d", got, n)
	}
	if _, _, err := d.Replicas.(*ReplicaSet).change(func(s Settings) Settings { s.MaxOngoing = 6; return s }); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	d.Replicas.Stop()
	if err := d.Replicas.Wait(context.Background(), context.Background()); err != nil {
		t.Error(err)
	}
	return after.TotalAlloc - before.TotalAlloc
}

// TestLivesCount: the counts by state are right after all changes, and the surplus are the
// youngest: first of the starting replicas, then of the running ones.
func TestLivesCount(t *testing.T) {
	var s lives
	all := make([]*life, 6)
	for i := range all {
		all[i] = new(life)
		s.add(all[i])
	}
	for _, i := range []int{0, 1, 3, 4} {
		s.move(all[i], ReplicaRunning)
	}
	s.move(all[4], ReplicaUnhealthy)
	s.remove(all[1])
	if len(s.list) != 5 || s.count(ReplicaStarting) != 2 || s.count(ReplicaRunning, ReplicaUnhealthy) != 3 || s.count(ReplicaStopping) != 0 {
		t.Errorf("counts %v of %d", s.counts, len(s.list))
	}
	if got := s.surplus(3); len(got) != 3 || got[0] != all[5] || got[1] != all[2] || got[2] != all[3] {
		t.Errorf("surplus %v", got)
	}
	if got := s.oldest(ReplicaRunning, 1); len(got) != 1 || got[0] != all[0] {
		t.Errorf("oldest %v", got)
	}
}
