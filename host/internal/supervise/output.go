package supervise

import (
	"slices"
	"sync"
)

// output counts the lines of a plugin's processes that did not reach the log or the
// standard output. Safe for concurrent use.
type output struct {
	mu    sync.Mutex
	alive []Peer
	// These count lines of processes that have ended: suppressed counts lines that were
	// not logged, unprinted counts lines that did not reach standard output.
	suppressed, unprinted uint64
}

func (o *output) watch(p Peer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alive = append(o.alive, p)
}

func (o *output) unwatch(p Peer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alive = slices.DeleteFunc(o.alive, func(other Peer) bool { return other == p })
	o.suppressed += p.Suppressed()
	o.unprinted += p.Unprinted()
}

// add adds the counts of a process that has ended before watch was called, or the
// counts of an earlier Plugin.
func (o *output) add(suppressed, unprinted uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suppressed += suppressed
	o.unprinted += unprinted
}

func (o *output) stats() (suppressed, unprinted uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	suppressed, unprinted = o.suppressed, o.unprinted
	for _, p := range o.alive {
		suppressed += p.Suppressed()
		unprinted += p.Unprinted()
	}
	return suppressed, unprinted
}
