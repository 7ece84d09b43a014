package router

import (
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// The bounds on failed starts, and on the pauses after them, as in Ray. If
// no replica of a deployment has ever run, the deployment becomes unavailable after
// triesPerReplica failed starts for each replica, at most mostTries.
const (
	triesPerReplica = 3
	mostTries       = 20
	leastBackoff    = time.Second
	mostBackoff     = 64 * time.Second
)

// exponential returns the duration of a pause. It doubles with each round.
func exponential(rounds int) time.Duration {
	return min(mostBackoff, leastBackoff<<min(rounds-1, 10))
}

// starts records the failed starts of a set. The set's mu guards it.
type starts struct {
	// backoff returns the duration of a pause before the next start; exponential except in
	// tests. rounds is the number of pauses since the last successful start, including this
	// pause.
	backoff func(rounds int) time.Duration
	everRan bool                              // a replica has taken calls at some time
	fails   int                               // number of failed starts since a successful start
	rounds  int                               // number of pauses since a successful start
	retry   *time.Timer                       // ends the current pause; nil if there is none
	down    *cause.DeploymentUnavailableError // set if no further starts follow; otherwise nil
}

// paused reports whether no replica may be started now.
func (s *starts) paused() bool { return s.down != nil || s.retry != nil }

// clear forgets the failed starts and ends the pause. It reports whether down was set.
func (s *starts) clear() (wasDown bool) {
	wasDown = s.down != nil
	s.fails, s.rounds, s.down = 0, 0, nil
	s.stopTimer()
	return wasDown
}

func (s *starts) stopTimer() {
	if s.retry != nil {
		s.retry.Stop()
		s.retry = nil
	}
}
