package router

import "slices"

// lives are the replicas of a set that have not ended. The set's mu guards them.
type lives struct {
	list   []*life                  // oldest first
	counts [ReplicaStopping + 1]int // by state
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

// oldest returns the n oldest replicas in a state, or fewer if there are not so many.
func (s *lives) oldest(state ReplicaState, n int) (found []*life) {
	for _, l := range s.list {
		if l.state == state && len(found) < n {
			found = append(found, l)
		}
	}
	return found
}

// surplus returns the n replicas to stop if there are too many: first the youngest replicas
// that have not started yet, then the youngest running replicas.
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
