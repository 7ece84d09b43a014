package host

import "testing"

// TestSmallBuffersDoNotCrowdOutLargeOnes: parts, which are small, must not end
// the reuse of the buffers of whole batches.
func TestSmallBuffersDoNotCrowdOutLargeOnes(t *testing.T) {
	m := newMemory(DefaultQueueBytes)
	for range 2 * spareArenas {
		m.recycle(make([]byte, 2000))
	}
	large := m.arena(DefaultBatchBytes)[:DefaultBatchBytes]
	m.recycle(large)
	if again := m.arena(DefaultBatchBytes)[:1]; &again[0] != &large[0] {
		t.Error("a large buffer is not reused where small ones were before it")
	}
	if len(m.spare) > spareArenas {
		t.Errorf("%d spare buffers, at most %d are kept", len(m.spare), spareArenas)
	}
}

// TestAccountHasTheRoomThatBatchesTake: batches that wait while others come and
// go must not gather room that nobody counts, as they did when each could get the
// largest buffer of one that went before it.
func TestAccountHasTheRoomThatBatchesTake(t *testing.T) {
	m := newMemory(DefaultQueueBytes)
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
		if len(queue) == waiting { // the first makes place, as in a full queue
			queue[0].release()
			queue = queue[1:]
		}
		size := 100_000 + i*7919%100_000
		queue = append(queue, newBatch(m, m.arena(size)[:size], 1))
		if n, bytes := room(); m.used.Load() != n || n > bytes*5/4 {
			t.Fatalf("batch %d: %d bytes on the account, %d bytes of room, for %d bytes of spans", i, m.used.Load(), n, bytes)
		}
	}
}
