package router

import "slices"

// lives holds the replicas of a set that have not ended. The set's mu guards it.
type lives struct {
	list   []*life                  // oldest first
	counts [ReplicaStopping + 1]int // number of replicas in each state
}

func (s *lives) add(l *life) {
	s.list = append(s.list, l)
	s.counts[l.state]++
}

func (s *lives) remove(l *life) {
	s.list = slices.DeleteFunc(s.list, func(other *life) bool { return other == l })
	s.counts[l.state]--
}

func (s *lives) move(l *life, to ReplicaState) {
	s.counts[l.state]--
	s.counts[to]++
	l.state = to
}

func (s *lives) count(states ...ReplicaState) (n int) {
	for _, state := range states {
		n += s.counts[state]
	}
	return n
}

// oldest returns the n oldest replicas in a state. If fewer are in that state, it returns
// all of them.
func (s *lives) oldest(state ReplicaState, n int) (found []*life) {
	for _, l := range s.list {
		if l.state == state && len(found) < n {
			found = append(found, l)
		}
	}
	return found
}

// surplus returns the n replicas to stop if there are n too many. It chooses replicas that
// have not started yet before running replicas, and the youngest first.
func (s *lives) surplus(n int) (found []*life) {
	for _, state := range []ReplicaState{ReplicaStarting, ReplicaRunning} {
		for _, l := range slices.Backward(s.list) {
			if l.state == state && len(found) < n {
				found = append(found, l)
			}
		}
	}
	return found
}
