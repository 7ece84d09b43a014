package pluginsdk

import (
	"maps"
	"slices"
	"sync"
)

// maxTeeRecords is the largest number of batches that a teeMemory holds.
const maxTeeRecords = 1024

// teeMemory holds the final answers of a Tee's exporters to batches that the host will send
// again, because other exporters returned retryable errors. It is safe for concurrent use.
// The zero value is empty.
type teeMemory struct {
	mu sync.Mutex
	// answers holds the answers by the batch's id, and then by the exporter's index. A nil
	// error means that this exporter has delivered the batch.
	answers map[string]map[int]error
	order   []string // the keys of answers; the oldest batch is first
}

// recall returns a copy of the answers to a batch, by the exporter's index.
func (m *teeMemory) recall(id string) map[int]error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.answers[id])
}

// remember stores the final answer of an exporter to a batch. If there are more than
// maxTeeRecords batches, it removes the oldest. It ignores a batch without an id.
func (m *teeMemory) remember(id string, exporter int, answer error) {
	if id == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answers == nil {
		m.answers = map[string]map[int]error{}
	}
	if m.answers[id] == nil {
		m.answers[id] = map[int]error{}
		m.order = append(m.order, id)
	}
	m.answers[id][exporter] = answer
	if len(m.order) > maxTeeRecords {
		delete(m.answers, m.order[0])
		m.order = slices.Delete(m.order, 0, 1)
	}
}

// forget removes the answers to a batch that the host will not send again.
func (m *teeMemory) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.answers, id)
	if i := slices.Index(m.order, id); i >= 0 {
		m.order = slices.Delete(m.order, i, i+1)
	}
}
