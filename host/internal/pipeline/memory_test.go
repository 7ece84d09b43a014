package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestSmallBuffersDoNotCrowdOutLargeOnes: parts, which are small, must not end
// the reuse of the buffers of whole batches.
func TestSmallBuffersDoNotCrowdOutLargeOnes(t *testing.T) {
	m := newMemory(32 << 20)
	for range 2 * spareArenas {
		m.recycle(make([]byte, 2000))
	}
	large := m.arena(768 << 10)[:768<<10]
	m.recycle(large)
	if again := m.arena(768 << 10)[:1]; &again[0] != &large[0] {
		t.Error("a large buffer is not reused where small ones were before it")
	}
	if len(m.spare) > spareArenas {
		t.Errorf("%d spare buffers, at most %d are kept", len(m.spare), spareArenas)
	}
}

// TestAccountHasTheRoomThatBatchesTake: batches that wait while others come and go must
// not use memory that is not charged. A buffer of an earlier, larger batch would be such
// memory.
func TestAccountHasTheRoomThatBatchesTake(t *testing.T) {
	m := newMemory(32 << 20)
	const waiting = 40
	var queue []*batch
	room := func() (n, bytes int64) {
		for _, b := range queue {
			n += int64(cap(b.data)) + batchOverhead
			bytes += int64(len(b.data)) + batchOverhead
		}
		return n, bytes
	}
	for i := range 50 * waiting {
		if len(queue) == waiting { // the first makes room, as in a full queue
			queue[0].Release()
			queue = queue[1:]
		}
		size := 100_000 + i*7919%100_000
		queue = append(queue, newBatch(m, m.arena(size)[:size]))
		if n, bytes := room(); m.used.Load() != n || n > bytes*4/3 {
			t.Fatalf("batch %d: %d bytes on the account, %d bytes of room, for %d bytes of spans", i, m.used.Load(), n, bytes)
		}
	}
}

// TestBatchesKeepTheirBytes: the buffers go from the encoder to a batch and, when that
// is done with, back; a batch that waits must not see of it.
func TestBatchesKeepTheirBytes(t *testing.T) {
	const perBatch, batches = 50, 12
	p, q := newTestPipeline(Settings{BatchSpans: perBatch})
	ended := 0
	for range 8 {
		for range perBatch * batches / 2 {
			addSpan(p, fmt.Sprintf("span %06d", ended))
			ended++
		}
		p.encoder.cycle(false)
		waiting := q.items.fresh[q.items.head:]
		names := spanNames(t, waiting)
		for i, name := range names {
			if want := fmt.Sprintf("span %06d", ended-len(names)+i); name != want {
				t.Fatalf("of %d batches that wait, span %d is %q, want %q", len(waiting), i, name, want)
			}
		}
		for range len(waiting) - batches/2 {
			p.mu.Lock()
			q.dropOldestLocked(time.Now(), reasonQueueFull)
			p.mu.Unlock()
		}
	}
	p.intake.disarm()
	q.DropRest()
}

// spanNames returns the sorted names of all spans of a list. The spans come from several
// shards.
func spanNames(t *testing.T, list []*Item) (names []string) {
	t.Helper()
	for _, it := range list {
		var req coltracepb.ExportTraceServiceRequest
		if err := proto.Unmarshal(it.Batch.data, &req); err != nil {
			t.Fatal(err)
		}
		for _, span := range req.ResourceSpans[0].ScopeSpans[0].Spans {
			names = append(names, span.Name)
		}
	}
	slices.Sort(names)
	return names
}
