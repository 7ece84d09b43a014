package serving

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// replicaSet keeps the replicas of one deployment: as many as its settings want, each
// with the user config that they want. It lists the replicas that take calls to the
// router.
//
// After each change of its fields, reconcileLocked starts and stops replicas: a replica
// has started, has failed to start, is found unhealthy or has stopped; other settings
// are wanted; the server stops. Nothing waits under its lock. The life of one replica is
// in replicalife.go, changes of the settings are in apply.go.
type replicaSet struct {
	app        string
	deployment *Deployment
	router     *router
	log        *slog.Logger
	make       func() *replica
	changed    func() // called without a lock after changes; nil for none
	hooks      *hooks
	changes    *changes
	over       chan struct{} // closed when the set stops, and nothing of it is left

	mu        sync.Mutex
	want      settings
	replicas  lives // oldest first, without the replicas that have ended
	phase     setPhase
	starts    starts
	condition condition
}

// setPhase only moves forward.
type setPhase int

const (
	setBuilt setPhase = iota
	setStarted
	setStopping
)

func newReplicaSet(app string, d *Deployment, want settings, router *router, log *slog.Logger) *replicaSet {
	s := &replicaSet{
		app:        app,
		deployment: d,
		router:     router,
		log:        log.With("app", app, "deployment", d.name),
		over:       make(chan struct{}),
		want:       want,
		starts:     starts{backoff: exponential},
	}
	s.hooks = newHooks(func() { s.mu.Lock(); s.unlock() })
	s.changes = newChanges(s, want)
	return s
}

// start starts the replicas. Replicas that have nothing to construct run when it returns,
// the others are constructed in the background.
func (s *replicaSet) start() {
	s.mu.Lock()
	defer s.unlock()
	s.phase = max(s.phase, setStarted)
}

// unlock makes the changes that have become necessary, unlocks, and writes to the log.
func (s *replicaSet) unlock() {
	s.reconcileLocked()
	s.condition.note(s.log, s.stateLocked(), s.want.replicas, s.starts.down, len(s.deployment.locals) > 0)
	lines := s.condition.takeLines()
	s.mu.Unlock()
	for _, line := range lines {
		line()
	}
	if s.changed != nil {
		s.changed()
	}
}

// reconcileLocked starts and stops replicas until there are as many as wanted.
func (s *replicaSet) reconcileLocked() {
	switch s.phase {
	case setBuilt:
		return
	case setStopping:
		s.checkOverLocked()
		return
	case setStarted:
	}
	for n := s.replicas.count(ReplicaStarting) + s.replicas.count(ReplicaRunning); n > s.want.replicas; n-- {
		s.replicas.surplus().stopLocked()
	}
	for n := s.replicas.count(ReplicaUnhealthy); n > 0 && n+s.replicas.count(ReplicaRunning) > s.want.replicas; n-- {
		s.replicas.first(ReplicaUnhealthy).stopLocked() // its successor runs
	}
	if s.starts.paused() {
		return
	}
	for n := s.replicas.count(ReplicaStarting) + s.replicas.count(ReplicaRunning); n < s.want.replicas; n++ {
		s.startLocked()
	}
}

// startLocked adds a replica. A replica that has nothing to construct runs at once.
func (s *replicaSet) startLocked() {
	l := newLife(s)
	s.replicas = append(s.replicas, l)
	if len(s.deployment.locals) == 0 {
		close(l.lived)
		l.config = s.want.config
		l.runsLocked()
		return
	}
	go l.live() // ends by stopLocked, and retire waits for it
}

// clearLocked forgets the failed starts.
func (s *replicaSet) clearLocked() {
	if s.starts.clear() {
		s.router.fail(nil)
	}
}

// listLocked lists the replicas that take calls to the router, also replicas that are
// to be replaced.
func (s *replicaSet) listLocked() {
	var list []runner
	for _, l := range s.replicas {
		if l.state == ReplicaRunning || l.state == ReplicaUnhealthy {
			list = append(list, l.replica)
		}
	}
	s.router.update(list)
}

// remove forgets a replica that has ended.
func (s *replicaSet) remove(l *life) {
	s.mu.Lock()
	defer s.unlock()
	s.replicas = slices.DeleteFunc(s.replicas, func(x *life) bool { return x == l })
}

// stop begins the stop of all replicas.
func (s *replicaSet) stop() {
	s.mu.Lock()
	defer s.unlock()
	s.phase = setStopping
	s.starts.stopTimer()
	for _, l := range s.replicas {
		l.stopLocked()
	}
}

func (s *replicaSet) checkOverLocked() {
	if len(s.replicas) > 0 || len(s.hooks.left()) > 0 {
		return
	}
	select {
	case <-s.over:
	default:
		close(s.over)
	}
}

// wait waits until all has stopped, or until ctx ends. Then it ends the contexts of the
// user code that still runs, and waits a moment more, until late ends.
func (s *replicaSet) wait(ctx, late context.Context) error {
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
	}
	s.hooks.cut(ErrShuttingDown)
	select {
	case <-s.over:
		return nil
	case <-late.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.hooks.left()
	if len(s.replicas) == 0 && len(left) == 0 {
		return nil // both were there: it ended in the last moment
	}
	return fmt.Errorf("stop deployment %q of app %q: %d replicas have not ended, still running: %q",
		s.deployment.name, s.app, len(s.replicas), left)
}

// stateLocked returns the state of the deployment.
func (s *replicaSet) stateLocked() DeploymentState {
	switch {
	case s.phase == setStopping:
		return DeploymentStopping
	case s.starts.down != nil:
		return DeploymentUnavailable
	case s.phase == setStarted && s.replicas.count(ReplicaRunning) >= s.want.replicas && s.replicas.count(ReplicaUnhealthy) == 0:
		return DeploymentHealthy
	case s.condition.fault != nil:
		return DeploymentUnhealthy
	}
	return DeploymentUpdating
}

// reason returns why the deployment takes no calls; empty if it does.
func (s *replicaSet) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.starts.down != nil:
		return s.starts.down.Error()
	case s.replicas.count(ReplicaRunning)+s.replicas.count(ReplicaUnhealthy) > 0:
		return ""
	}
	return fmt.Sprintf("Deployment(name='%s', app='%s') has no replica that takes requests yet.", s.deployment.name, s.app)
}

// settings returns the settings in force.
func (s *replicaSet) settings() settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want
}

// lives are the replicas of a set, oldest first.
type lives []*life

func (s lives) count(state ReplicaState) (n int) {
	for _, l := range s {
		if l.state == state {
			n++
		}
	}
	return n
}

// first returns the oldest replica in a state. There must be one.
func (s lives) first(state ReplicaState) *life {
	return s[slices.IndexFunc(s, func(l *life) bool { return l.state == state })]
}

// surplus returns the replica to stop if there are too many: the youngest that has not
// started yet, else the youngest.
func (s lives) surplus() (found *life) {
	for _, l := range s {
		switch {
		case l.state != ReplicaStarting && l.state != ReplicaRunning:
		case found == nil || l.state == ReplicaStarting || found.state == ReplicaRunning:
			found = l
		}
	}
	return found
}

// The bounds on starts, Ray's.
const (
	triesPerReplica = 3
	mostTries       = 20
	leastBackoff    = time.Second
	mostBackoff     = 64 * time.Second
)

func exponential(rounds int) time.Duration {
	return min(mostBackoff, leastBackoff<<min(rounds-1, 10))
}

// starts are the failed starts of a set. The set's mu guards it.
type starts struct {
	// backoff returns how long to wait before the next start after a number of
	// rounds that failed, 1 or more.
	backoff func(rounds int) time.Duration
	everRan bool                        // a replica has taken calls
	fails   int                         // starts that failed in a row
	rounds  int                         // back-offs since a start succeeded
	retry   *time.Timer                 // until the next start; nil for none
	down    *DeploymentUnavailableError // nil while there may be replicas
}

// paused reports whether no replica is to be started now.
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
