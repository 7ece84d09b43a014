package pipeline

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// fill sends batches of one span until there is no room, and returns their number.
func (p *spooling) fill(prefix string) (accepted int) {
	p.t.Helper()
	for ; ; accepted++ {
		err := p.send(fmt.Sprintf("%s%d", prefix, accepted), 20<<10)
		if errors.Is(err, ErrFull) {
			return accepted
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

func inMemory(cfg *Settings) { cfg.SpoolDir, cfg.BatchBytes = "", 400<<10 }

// A batch is sent in parts. Its sender gets its room back after the last part, not after
// the first: else accepted batches would be dropped although the exporter works.
func TestPartsKeepTheRoomOfABatch(t *testing.T) {
	p := newSpooling(t, "", inMemory)
	for i := range 10 {
		if err := p.send(fmt.Sprintf("s%d", i), 20<<10); err != nil {
			t.Fatal(err)
		}
	}
	request := p.queues["a"].items.fresh[0].Batch.data
	var large []byte
	for range 10 {
		large = append(large, request...)
	}
	p.deliver("a", 10)
	if _, err := p.Consume(large, "large"); err != nil {
		t.Fatal(err)
	}
	p.Flush()
	l := NewLane(p.queues["a"], func() bool { return false })
	l.Open(Limits{Spans: 1, Bytes: 1 << 20, Calls: 1})
	defer l.Close()
	for part := 1; part <= 10; part++ {
		if held := p.senders.held["large"]; held == 0 {
			t.Fatalf("the room of the batch is free before part %d of 10 is delivered", part)
		}
		l.Settle(l.Take(t.Context()), Answer{Reached: true, Said: true})
	}
	if held := p.senders.held["large"]; held != 0 {
		t.Errorf("the batch is delivered and holds %d bytes", held)
	}
}

// An exporter that drops each batch pushes nothing back, but it makes no room, either: a
// batch that the other exporter still has keeps its room.
func TestADeadExporterMakesNoRoom(t *testing.T) {
	p := newSpooling(t, "", inMemory)
	accepted := p.fill("s")
	p.mu.Lock()
	for now := time.Now(); p.queues["a"].items.oldest() != nil; {
		p.queues["a"].dropOldestLocked(now, reasonMaxAge)
	}
	p.mu.Unlock()
	if more := p.fill("s"); more > 0 {
		t.Errorf("%d batches are accepted, although the exporter that works has delivered none of %d", more, accepted)
	}
	if got := len(p.deliver("b", 2*accepted)); got != accepted {
		t.Errorf("%d batches are delivered, want all %d", got, accepted)
	}
	if more := p.fill("s"); more < accepted/2 {
		t.Errorf("%d batches are accepted after the delivery, want about %d again", more, accepted)
	}
}

// A batch that all exporters reject or drop frees its room.
func TestRoomOfLostBatches(t *testing.T) {
	p := newSpooling(t, "", inMemory)
	accepted := p.fill("s")
	for _, q := range p.queues {
		l := NewLane(q, func() bool { return false })
		l.Open(Limits{Spans: 1000, Bytes: 1 << 20, Calls: 1})
		for range accepted / 2 {
			l.Settle(l.Take(t.Context()), Answer{Reached: true, Said: true, Err: &wire.Error{Final: true, Err: errors.New("no")}})
		}
		l.Close()
		q.DropRest()
	}
	if p.senders.total != 0 || len(p.senders.held) != 0 {
		t.Errorf("%d bytes are held by %v", p.senders.total, p.senders.held)
	}
}
