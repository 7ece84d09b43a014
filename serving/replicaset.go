package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/servetrace/servetrace/tracing"
)

// replicaSet keeps the replicas of one deployment: as many as are wanted, each
// configured as is wanted. It lists those that take calls to the router.
//
// What it does follows from its fields, in reconcileLocked, after each change of
// them: a replica has started or failed to, is found unhealthy, or has stopped;
// other settings are wanted; the server stops. Nothing waits under its lock.
// The life of a single replica is in replicalife.go.
type replicaSet struct {
	app        string
	deployment *Deployment
	router     *router
	log        *slog.Logger
	make       func() *replica
	// backoff is how long to wait before the next start once that many rounds
	// of starts have failed, one or more.
	backoff func(rounds int) time.Duration
	// changed is told, without a lock held, that something may have; nil: nobody
	// asks.
	changed func()

	// hooks is the context of user code outside of calls. It ends when a stop
	// has no more time.
	hooks    context.Context
	cutHooks context.CancelCauseFunc
	over     chan struct{} // closed when it stops, and nothing of it is left
	changing chan struct{} // has one place: for who changes the settings

	mu       sync.Mutex
	want     settings
	declared settings   // what code and service file said last
	replicas []*replica // oldest first, without those that are gone
	started  bool
	stopping bool
	everRan  bool                        // one has taken calls
	fails    int                         // starts that failed in a row
	rounds   int                         // back-offs since one succeeded
	retry    *time.Timer                 // until the next start; nil for none
	fault    error                       // what went wrong since it was healthy
	down     *DeploymentUnavailableError // nil while it may get replicas
	state    DeploymentState             // as the log has it
	running  map[string]int              // user code that has not returned, by its name
	lines    []func()                    // for the log, once the lock is free
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

func newReplicaSet(app string, d *Deployment, want settings, router *router, log *slog.Logger) *replicaSet {
	s := &replicaSet{
		app:        app,
		deployment: d,
		router:     router,
		log:        log.With("app", app, "deployment", d.name),
		backoff:    exponential,
		over:       make(chan struct{}),
		changing:   make(chan struct{}, 1),
		want:       want,
		declared:   want,
		running:    map[string]int{},
	}
	s.hooks, s.cutHooks = context.WithCancelCause(context.Background())
	return s
}

// prepare has the replicas at once that need no construction.
func (s *replicaSet) prepare() {
	if len(s.deployment.locals) > 0 {
		return
	}
	s.mu.Lock()
	defer s.unlock()
	s.started = true
}

// start has the others constructed in the background.
func (s *replicaSet) start() {
	s.mu.Lock()
	defer s.unlock()
	s.started = true
}

// unlock does what has become necessary, unlocks, and tells the log.
func (s *replicaSet) unlock() {
	s.reconcileLocked()
	s.noteLocked()
	lines := s.lines
	s.lines = nil
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
	if s.stopping {
		s.checkOverLocked()
		return
	}
	if !s.started {
		return
	}
	for n := s.countLocked(ReplicaStarting) + s.countLocked(ReplicaRunning); n > s.want.replicas; n-- {
		s.stopLocked(s.surplusLocked())
	}
	for n := s.countLocked(ReplicaUnhealthy); n > 0 && n+s.countLocked(ReplicaRunning) > s.want.replicas; n-- {
		s.stopLocked(s.firstLocked(ReplicaUnhealthy)) // its successor runs
	}
	if s.down != nil || s.retry != nil {
		return
	}
	for n := s.countLocked(ReplicaStarting) + s.countLocked(ReplicaRunning); n < s.want.replicas; n++ {
		s.startLocked()
	}
}

func (s *replicaSet) countLocked(state ReplicaState) (n int) {
	for _, r := range s.replicas {
		if r.state == state {
			n++
		}
	}
	return n
}

func (s *replicaSet) firstLocked(state ReplicaState) *replica {
	i := slices.IndexFunc(s.replicas, func(r *replica) bool { return r.state == state })
	return s.replicas[i]
}

// surplusLocked is the replica that is missed least: the youngest that has not
// started yet, else the youngest.
func (s *replicaSet) surplusLocked() (found *replica) {
	for _, r := range s.replicas {
		switch {
		case r.state != ReplicaStarting && r.state != ReplicaRunning:
		case found == nil || r.state == ReplicaStarting || found.state == ReplicaRunning:
			found = r
		}
	}
	return found
}

// startLocked adds a replica. One that has nothing to construct runs at once.
func (s *replicaSet) startLocked() {
	r := s.make()
	r.since, r.lived = time.Now(), make(chan struct{})
	r.max.Store(int64(s.want.maxOngoing))
	r.scope.MaxOngoing = s.want.maxOngoing
	r.life, r.end = context.WithCancelCause(s.hooks)
	s.replicas = append(s.replicas, r)
	if len(s.deployment.locals) == 0 {
		close(r.lived)
		r.config = s.want.config
		s.ranLocked(r)
		return
	}
	go s.live(r) // ends by stopLocked, and retire waits for it
}

// ranLocked has a replica take calls.
func (s *replicaSet) ranLocked(r *replica) {
	r.state, r.since = ReplicaRunning, time.Now()
	r.scope.Metrics.Started()
	s.everRan = true
	s.clearLocked()
	s.listLocked()
}

// clearLocked forgets the failed starts.
func (s *replicaSet) clearLocked() {
	s.fails, s.rounds = 0, 0
	if s.retry != nil {
		s.retry.Stop()
		s.retry = nil
	}
	if s.down != nil {
		s.down = nil
		s.router.fail(nil)
	}
}

// listLocked tells the router who takes calls: also those that are to be
// replaced.
func (s *replicaSet) listLocked() {
	var list []runner
	for _, r := range s.replicas {
		if r.state == ReplicaRunning || r.state == ReplicaUnhealthy {
			list = append(list, r)
		}
	}
	s.router.update(list)
}

// startFailed is told of a replica that did not come to run.
func (s *replicaSet) startFailed(r *replica, err error) {
	s.mu.Lock()
	defer s.unlock()
	if r.state == ReplicaStopping {
		return // it was to stop before it was ready: that is no failure
	}
	s.stopLocked(r)
	s.fails++
	s.faultLocked(r, "replica failed to start", err)
	if tries := min(triesPerReplica*s.want.replicas, mostTries); !s.everRan && s.fails >= tries {
		s.down = &DeploymentUnavailableError{App: s.app, Deployment: s.deployment.name, Tries: s.fails, Reason: err}
		s.router.fail(s.down)
		return
	}
	if s.retry == nil && !s.stopping {
		s.rounds++
		s.retry = time.AfterFunc(s.backoff(s.rounds), s.tryAgain)
	}
}

// tryAgain ends a back-off.
func (s *replicaSet) tryAgain() {
	s.mu.Lock()
	defer s.unlock()
	s.retry = nil
}

// condemn has a replica stopped and replaced at once, for err.
func (s *replicaSet) condemn(r *replica, err error) {
	s.mu.Lock()
	defer s.unlock()
	if r.state == ReplicaStopping {
		return
	}
	s.stopLocked(r)
	s.faultLocked(r, "replica is unhealthy; another takes its place", err)
}

// supersede has a replica replaced, for err; it takes calls until its successor
// does.
func (s *replicaSet) supersede(r *replica, err error) {
	s.mu.Lock()
	defer s.unlock()
	if r.state != ReplicaRunning {
		return
	}
	r.state, r.since = ReplicaUnhealthy, time.Now()
	s.faultLocked(r, "replica did not take the new user config; another takes its place", err)
}

// faultLocked notes what went wrong, and has the log say it unless that is what
// it said last.
func (s *replicaSet) faultLocked(r *replica, text string, err error) {
	told := s.fault != nil && s.fault.Error() == err.Error()
	s.fault = err
	if told {
		return
	}
	args := []any{tracing.LogReplica, r.info.ReplicaID.UniqueID, "error", err}
	if p, ok := errors.AsType[*tracing.PanicError](err); ok {
		args = append(args, "stack", string(p.Stack))
	}
	s.lines = append(s.lines, func() { s.log.Warn(text, args...) })
}

// stopLocked has a replica take no more calls, finish those that it has, and end.
func (s *replicaSet) stopLocked(r *replica) {
	if r.state == ReplicaStopping {
		return
	}
	r.state, r.since = ReplicaStopping, time.Now()
	leaving := s.router.remove(r)
	r.stopped.Store(true) // whoever was given a slot and has not come yet goes elsewhere
	r.end(errReplicaStops)
	go s.retire(r, leaving, s.want) // wait waits for it
}

// gone forgets a replica that has ended.
func (s *replicaSet) gone(r *replica) {
	s.mu.Lock()
	defer s.unlock()
	s.replicas = slices.DeleteFunc(s.replicas, func(x *replica) bool { return x == r })
}

// stop begins the stop of all replicas.
func (s *replicaSet) stop() {
	s.mu.Lock()
	defer s.unlock()
	s.stopping = true
	if s.retry != nil {
		s.retry.Stop()
		s.retry = nil
	}
	for _, r := range s.replicas {
		s.stopLocked(r)
	}
}

func (s *replicaSet) checkOverLocked() {
	if len(s.replicas) > 0 || len(s.running) > 0 {
		return
	}
	select {
	case <-s.over:
	default:
		close(s.over)
	}
}

// wait waits until all has stopped, but not beyond ctx: then it ends the
// contexts of what still runs, and waits for a moment more, within late.
func (s *replicaSet) wait(ctx, late context.Context) error {
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
	}
	s.cutHooks(ErrShuttingDown)
	select {
	case <-s.over:
		return nil
	case <-late.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.replicas) == 0 && len(s.running) == 0 {
		return nil // both were there: it ended in the last moment
	}
	left := make([]string, 0, len(s.running))
	for name, n := range s.running {
		if n > 1 {
			name = fmt.Sprintf("%s (%d times)", name, n)
		}
		left = append(left, name)
	}
	slices.Sort(left)
	return fmt.Errorf("stop deployment %q of app %q: %d replicas have not ended, still running: %q",
		s.deployment.name, s.app, len(s.replicas), left)
}

// stateLocked says how the deployment is.
func (s *replicaSet) stateLocked() DeploymentState {
	switch {
	case s.stopping:
		return DeploymentStopping
	case s.down != nil:
		return DeploymentUnavailable
	case s.started && s.countLocked(ReplicaRunning) >= s.want.replicas && s.countLocked(ReplicaUnhealthy) == 0:
		return DeploymentHealthy
	case s.fault != nil:
		return DeploymentUnhealthy
	}
	return DeploymentUpdating
}

// noteLocked has the log say how the deployment is, where that has changed. One
// that has nothing to construct is always healthy, which is not worth a line.
func (s *replicaSet) noteLocked() {
	state := s.stateLocked()
	if state == s.state {
		return
	}
	before := s.state
	s.state = state
	replicas := s.want.replicas
	switch state {
	case DeploymentHealthy:
		s.fault = nil
		if len(s.deployment.locals) > 0 {
			s.lines = append(s.lines, func() { s.log.Info("deployment is healthy", "replicas", replicas, "before", before.String()) })
		}
	case DeploymentUnavailable:
		down := s.down
		s.lines = append(s.lines, func() {
			s.log.Error("deployment is unavailable: its replicas do not start; its requests fail until it is reconfigured, or the service is started anew",
				"tries", down.Tries, "error", down.Reason)
		})
	case DeploymentUpdating, DeploymentUnhealthy, DeploymentStopping:
		// The fault has its own line, and the others are somebody's wish.
	}
}

// reason says why the deployment takes no calls; empty where it does.
func (s *replicaSet) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down != nil:
		return s.down.Error()
	case s.countLocked(ReplicaRunning)+s.countLocked(ReplicaUnhealthy) > 0:
		return ""
	}
	return fmt.Sprintf("Deployment(name='%s', app='%s') has no replica that takes requests yet.", s.deployment.name, s.app)
}
