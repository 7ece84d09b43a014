package router

import (
	"container/list"
	"iter"
)

// lives are the replicas of a set that have not ended, oldest first. Adding, removing and
// counting takes the same time for any number of replicas. The set's mu guards them.
type lives struct {
	list   list.List                // the values are *life
	counts [ReplicaStopping + 1]int // by state
}

func (s *lives) add(l *life) {
	l.place = s.list.PushBack(l)
	s.counts[l.state]++
}

func (s *lives) remove(l *life) {
	s.list.Remove(l.place)
	s.counts[l.state]--
}

func (s *lives) move(l *life, to ReplicaState) {
	s.counts[l.state]--
	s.counts[to]++
	l.state = to
}

func (s *lives) total() int { return s.list.Len() }

func (s *lives) count(states ...ReplicaState) (n int) {
	for _, state := range states {
		n += s.counts[state]
	}
	return n
}

// all returns the replicas, oldest first. The caller may remove the current replica.
func (s *lives) all() iter.Seq[*life] {
	return func(yield func(*life) bool) {
		for at := s.list.Front(); at != nil; {
			next := at.Next()
			if !yield(at.Value.(*life)) {
				return
			}
			at = next
		}
	}
}

// oldest returns the n oldest replicas in a state, or fewer if there are not so many.
func (s *lives) oldest(state ReplicaState, n int) (found []*life) {
	for l := range s.all() {
		if len(found) >= n {
			break
		}
		if l.state == state {
			found = append(found, l)
		}
	}
	return found
}

// surplus returns the n replicas to stop if there are too many: first the youngest replicas
// that have not started yet, then the youngest running replicas.
func (s *lives) surplus(n int) (found []*life) {
	for _, state := range []ReplicaState{ReplicaStarting, ReplicaRunning} {
		for at := s.list.Back(); at != nil && len(found) < n; at = at.Prev() {
			if l := at.Value.(*life); l.state == state {
				found = append(found, l)
			}
		}
	}
	return found
}
