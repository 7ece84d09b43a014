package router

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// ReplicaSet runs the replicas of one deployment. It keeps their number and their user
// config as in its settings. It adds each replica to the router when the replica can take
// calls, and removes it when the replica stops. Its methods are safe for concurrent use.
//
// Whenever a field has changed, the method unlock calls reconcileLocked, which starts and
// stops replicas as necessary. A field changes when a replica has started, has failed, is
// unhealthy or has stopped, when the settings change, and when the server stops. No method
// waits while it holds the lock. The type life handles a single replica.
type ReplicaSet struct {
	Changes *Changes

	config *Config
	shared *Shared
	router *router
	log    *slog.Logger
	hooks  *hooks
	over   chan struct{} // closed when the set has stopped and all its goroutines have ended

	mu        sync.Mutex
	want      Settings  // the current settings, which the replicas must be made to match
	replicas  lives     // the replicas that have not ended
	phase     setPhase  // stage of the life of the set
	starts    starts    // the failed starts of replicas
	condition condition // the state and the fault that were logged last
}

var _ Replicas = (*ReplicaSet)(nil)

// setPhase is the phase of a set. It only moves forward.
type setPhase int

const (
	setBuilt setPhase = iota
	setStarted
	setStopping
)

func newReplicaSet(shared *Shared, c Config, r *router) *ReplicaSet {
	s := &ReplicaSet{
		config: &c,
		shared: shared,
		router: r,
		log:    shared.Log.With("app", c.App, "deployment", c.Name),
		over:   make(chan struct{}),
		want:   c.Settings,
		starts: starts{backoff: exponential},
	}
	s.hooks = newHooks(func() { s.mu.Lock(); s.unlock() })
	s.Changes = &Changes{set: s, turn: make(chan struct{}, 1), declared: c.Settings}
	return s
}

// Start starts the replicas. If the deployment has no constructors, the replicas take calls
// when Start returns. Otherwise they are constructed in the background. Later calls of Start
// do nothing.
func (s *ReplicaSet) Start() {
	s.mu.Lock()
	defer s.unlock()
	s.phase = max(s.phase, setStarted)
}

// unlock starts and stops replicas as necessary, and releases the lock. Without the lock, it
// writes the log lines of the changes and calls Changed.
func (s *ReplicaSet) unlock() {
	s.reconcileLocked()
	s.condition.note(s.log, s.stateLocked(), s.want.Replicas, s.starts.down, len(s.config.Constructors) > 0)
	lines := s.condition.takeLines()
	s.mu.Unlock()
	for _, line := range lines {
		line()
	}
	s.shared.Notify()
}

// reconcileLocked starts and stops replicas, so that their number becomes the number in the
// settings. It looks at each replica only if some must be stopped, so that it is cheap for
// many replicas.
func (s *ReplicaSet) reconcileLocked() {
	switch s.phase {
	case setBuilt:
		return
	case setStopping:
		s.checkOverLocked()
		return
	case setStarted:
	}
	if n := s.replicas.count(ReplicaStarting, ReplicaRunning) - s.want.Replicas; n > 0 {
		for _, l := range s.replicas.surplus(n) {
			l.stopLocked()
		}
	}
	// An unhealthy replica takes calls until its successor runs. So stop only as many of them
	// as there are running replicas in their place, the oldest first.
	if n := s.replicas.count(ReplicaUnhealthy); n > 0 {
		for _, l := range s.replicas.oldest(ReplicaUnhealthy, min(n, n+s.replicas.count(ReplicaRunning)-s.want.Replicas)) {
			l.stopLocked()
		}
	}
	if s.starts.paused() {
		return
	}
	for range s.want.Replicas - s.replicas.count(ReplicaStarting, ReplicaRunning) {
		s.startLocked()
	}
}

// startLocked adds and starts a replica. If the deployment has no constructors, the replica
// takes calls at once.
func (s *ReplicaSet) startLocked() {
	l := newLife(s)
	s.replicas.add(l)
	if len(s.config.Constructors) == 0 {
		close(l.lived)
		l.config = s.want.Config
		l.runsLocked()
		return
	}
	go l.live() // ends after stopLocked, and retire waits for its end
}

// clearLocked forgets the failed starts. If they have made the deployment unavailable, it
// accepts requests again.
func (s *ReplicaSet) clearLocked() {
	if s.starts.clear() {
		s.router.fail(nil)
	}
}

// remove removes a replica that has ended.
func (s *ReplicaSet) remove(l *life) {
	s.mu.Lock()
	defer s.unlock()
	s.replicas.remove(l)
}

// Stop begins the stop of all replicas. Wait waits for the end of the stop.
func (s *ReplicaSet) Stop() {
	s.mu.Lock()
	defer s.unlock()
	s.phase = setStopping
	s.starts.stopTimer()
	for _, l := range s.replicas.list {
		l.stopLocked()
	}
}

// checkOverLocked closes over if no replica is left and no user code runs.
func (s *ReplicaSet) checkOverLocked() {
	if len(s.replicas.list) > 0 || len(s.hooks.left()) > 0 {
		return
	}
	select {
	case <-s.over:
	default:
		close(s.over)
	}
}

// Wait waits until all replicas have stopped and returns nil. If ctx ends first, Wait ends
// the contexts of the user code that still runs, and waits on until late ends. Then the error
// names the code that still runs.
func (s *ReplicaSet) Wait(ctx, late context.Context) error {
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
	}
	s.hooks.cut(cause.ErrShuttingDown)
	select {
	case <-s.over:
		return nil
	case <-late.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.hooks.left()
	if len(s.replicas.list) == 0 && len(left) == 0 {
		return nil // late and over ended at the same time, and select chose late
	}
	return fmt.Errorf("stop deployment %q of app %q: %d replicas have not ended, still running: %q",
		s.config.Name, s.config.App, len(s.replicas.list), left)
}

func (s *ReplicaSet) stateLocked() DeploymentState {
	switch {
	case s.phase == setStopping:
		return DeploymentStopping
	case s.starts.down != nil:
		return DeploymentUnavailable
	case s.phase == setStarted && s.replicas.count(ReplicaRunning) >= s.want.Replicas && s.replicas.count(ReplicaUnhealthy) == 0:
		return DeploymentHealthy
	case s.condition.fault != nil:
		return DeploymentUnhealthy
	}
	return DeploymentUpdating
}

// Unready returns the reason for which no replica takes calls, or "" if a replica does.
func (s *ReplicaSet) Unready() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.starts.down != nil:
		return s.starts.down.Error()
	case s.replicas.count(ReplicaRunning, ReplicaUnhealthy) > 0:
		return ""
	}
	return fmt.Sprintf("Deployment(name='%s', app='%s') has no replica that takes requests yet.", s.config.Name, s.config.App)
}

// Declare implements [Replicas].
func (s *ReplicaSet) Declare(ctx context.Context, next Settings) error {
	return s.Changes.Declare(ctx, next)
}

// Reconfigure implements [Replicas].
func (s *ReplicaSet) Reconfigure(ctx context.Context, config string) error {
	return s.Changes.Reconfigure(ctx, config)
}

func (s *ReplicaSet) settings() Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want
}

// Status returns the status of the deployment and its replicas. It does not block.
func (s *ReplicaSet) Status() DeploymentStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	queued, _ := s.router.load()
	d := DeploymentStatus{
		App:                s.config.App,
		Name:               s.config.Name,
		State:              s.stateLocked(),
		NumReplicas:        s.want.Replicas,
		MaxOngoingRequests: s.want.MaxOngoing,
		MaxQueuedRequests:  s.want.MaxQueued,
		Queued:             queued,
		Replicas:           make([]ReplicaStatus, 0, len(s.replicas.list)),
	}
	if s.condition.fault != nil {
		d.Error = s.condition.fault.Error()
	}
	for _, l := range s.replicas.list {
		d.Replicas = append(d.Replicas, l.statusLocked())
	}
	return d
}
