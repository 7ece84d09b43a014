package supervise

import (
	"slices"
	"sync"
)

// lostLines counts the lines of a plugin's processes that did not reach the log or the
// standard output. Safe for concurrent use.
type lostLines struct {
	mu    sync.Mutex
	alive []Peer // their lines are not in the counts below
	// These count lines of processes that have ended: suppressed counts lines that were
	// not logged, unprinted counts lines that did not reach standard output.
	suppressed, unprinted uint64
}

// watch includes the lines of a process that runs.
func (l *lostLines) watch(p Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alive = append(l.alive, p)
}

// unwatch keeps the counts of a process that has ended.
func (l *lostLines) unwatch(p Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alive = slices.DeleteFunc(l.alive, func(other Peer) bool { return other == p })
	l.suppressed += p.Suppressed()
	l.unprinted += p.Unprinted()
}

// add adds the counts of a process that has ended before watch was called, or the
// counts of an earlier Plugin.
func (l *lostLines) add(suppressed, unprinted uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suppressed += suppressed
	l.unprinted += unprinted
}

// stats returns the present counts of all processes.
func (l *lostLines) stats() (suppressed, unprinted uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	suppressed, unprinted = l.suppressed, l.unprinted
	for _, p := range l.alive {
		suppressed += p.Suppressed()
		unprinted += p.Unprinted()
	}
	return suppressed, unprinted
}
