package supervise

import (
	"errors"
	"fmt"
	"sync"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/internal/wire"
)

// trial records the answers of a new process on probation. Safe for concurrent use.
type trial struct {
	// lenient is true if the old process did not deliver either, because the back end
	// may be down. Then an answer that asks to send the batch again counts as a
	// delivery.
	lenient bool
	news    chan struct{} // gets a value if passed or failed has changed; capacity 1

	mu     sync.Mutex
	passed int   // number of batches that were delivered, see lenient
	failed error // the reason why the new process has failed, or nil
	over   bool  // the probation is over, and record does nothing
}

// record takes the answer to a batch, and returns the answer. If the answer means that
// the new process fails its probation, the process gets no further batches. record then
// returns another answer, which puts the batch back into the queue.
func (t *trial) record(l *pipeline.Lane, it *pipeline.Item, ans pipeline.Answer) pipeline.Answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || ans.Lost && !ans.Said { // upgrade.await handles the end of the process
		return ans
	}
	delivered := ans.Err == nil && ans.Rejected < uint64(it.Left())
	if delivered || t.lenient && ans.Err != nil && !ans.Err.Final {
		t.passed++
		t.notify()
		return ans
	}
	if t.failed == nil {
		t.failed = fmt.Errorf("it does not deliver: %w", answerError(ans))
		l.SetMode(pipeline.TakesNone)
		t.notify()
	}
	return pipeline.Answer{Err: &wire.Error{Code: wire.CodeRetry, Err: t.failed}, Took: ans.Took, Lost: true}
}

// notify makes upgrade.await look at the record. It never blocks.
func (t *trial) notify() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// answerError returns the error of an answer after which no span was delivered.
func answerError(ans pipeline.Answer) error {
	if ans.Err != nil {
		return ans.Err
	}
	return errors.New("its back end rejects a whole batch: " + ans.Remark)
}

func (t *trial) state() (passed int, failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.passed, t.failed
}

// end ends the probation, so that record changes nothing any more. It returns the
// reason if the new process has failed.
func (t *trial) end() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return t.failed
}
