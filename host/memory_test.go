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
