package router

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// ReplicaSet keeps the replicas of one deployment: as many as its settings say, each with
// the user config of the settings. It adds the replicas that take calls to the router's
// list. Its methods are safe for concurrent use.
//
// After each change of its fields, reconcileLocked starts and stops replicas. Such
// changes are: a replica has started, has failed to start, is found unhealthy or has
// stopped; other settings are wanted; the server stops. Nothing waits under its lock. The
// life of one replica is in replicalife.go.
type ReplicaSet struct {
	Changes *Changes

	config *Config
	shared *Shared
	router *router
	log    *slog.Logger
	hooks  *hooks
	over   chan struct{} // closed when the set has stopped and all its goroutines have ended

	mu        sync.Mutex
	want      Settings
	replicas  lives
	phase     setPhase
	starts    starts
	condition condition
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

// Start starts the replicas. Replicas without constructors take calls when Start returns.
// Other replicas are constructed in the background. Later calls do nothing.
func (s *ReplicaSet) Start() {
	s.mu.Lock()
	defer s.unlock()
	s.phase = max(s.phase, setStarted)
}

// unlock starts and stops replicas as necessary, unlocks, writes to the log, and calls
// Changed.
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

// reconcileLocked starts and stops replicas until their number is the wanted number. It
// scans the replicas only if there are too many or unhealthy replicas. Otherwise its work
// is proportional to the number of replicas that it starts.
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
	// Stop as many of the oldest unhealthy replicas as there are running successors.
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

// startLocked adds a replica. A replica without constructors takes calls at once.
func (s *ReplicaSet) startLocked() {
	l := newLife(s)
	s.replicas.add(l)
	if len(s.config.Constructors) == 0 {
		close(l.lived)
		l.config = s.want.Config
		l.runsLocked()
		return
	}
	go l.live() // stopLocked ends it, and retire waits for it
}

// clearLocked forgets the failed starts.
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

// Wait waits until all replicas have stopped, or ctx ends. In the second case it ends
// the contexts of the user code that still runs, and waits until late ends. The error
// names the remaining code.
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
		return nil // both channels were closed, because the set ended at the last moment
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

// Unready returns the reason for which the deployment takes no calls, or "".
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

// Status returns the state of the deployment and its replicas. It does not block.
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
