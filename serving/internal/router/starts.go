package router

import (
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// Ray's bounds on failed starts and on the pauses after them.
const (
	triesPerReplica = 3
	mostTries       = 20
	leastBackoff    = time.Second
	mostBackoff     = 64 * time.Second
)

func exponential(rounds int) time.Duration {
	return min(mostBackoff, leastBackoff<<min(rounds-1, 10))
}

// starts records the failed starts of a set. The set's mu guards it.
type starts struct {
	// backoff returns the pause before the next start. rounds counts the pauses since the
	// last success, with this pause.
	backoff func(rounds int) time.Duration
	everRan bool                              // a replica has taken calls at some time
	fails   int                               // number of failed starts in a row
	rounds  int                               // number of pauses since a start succeeded
	retry   *time.Timer                       // fires at the next start; nil: no pause
	down    *cause.DeploymentUnavailableError // nil while there may be replicas
}

// paused reports whether no replica may be started now.
func (s *starts) paused() bool { return s.down != nil || s.retry != nil }

// clear forgets the failed starts. It reports whether the deployment was down.
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
