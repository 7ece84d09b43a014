package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/tracing"
)

// life starts one replica, checks its health, and stops it. Calls do not use it.
type life struct {
	set     *ReplicaSet
	replica *Replica

	ctx   context.Context         // context of constructors, Reconfigure and health checks; ends when the replica must stop
	end   context.CancelCauseFunc // ends ctx
	lived chan struct{}           // closed when the method live has returned

	// The set's mu guards the fields below.
	state  ReplicaState // changed by enterLocked
	since  time.Time    // time of the last change of state
	config string       // the user config that the replica has taken
}

// newLife returns the life of a new replica, and does not start it. The caller must hold the
// set's mu.
func newLife(s *ReplicaSet) *life {
	l := &life{
		set:     s,
		replica: newReplica(s.shared, s.config, s.want.MaxOngoing, s.router),
		since:   time.Now(),
		lived:   make(chan struct{}),
	}
	l.ctx, l.end = context.WithCancelCause(s.hooks.ctx)
	return l
}

// enterLocked sets the state of the replica.
func (l *life) enterLocked(state ReplicaState) {
	l.set.replicas.move(l, state)
	l.since = time.Now()
}

// statusLocked returns the status of the replica.
func (l *life) statusLocked() ReplicaStatus {
	return ReplicaStatus{
		ID:      l.uniqueID(),
		State:   l.state,
		Since:   l.since,
		Ongoing: l.replica.scope.Metrics.Processing(),
		Models:  l.replica.models(),
	}
}

// errReplicaStops is the cause with which a life's context ends.
var errReplicaStops = errors.New("replica stops")

// longStart is the time after which the log reports that a replica is still starting.
const longStart = 30 * time.Second

// live starts the replica and then checks its health, until the replica must stop or its
// start has failed.
func (l *life) live() {
	defer close(l.lived)
	slow := time.AfterFunc(longStart, func() {
		l.set.log.Warn("replica is still starting", tracing.LogReplica, l.uniqueID(), "after", longStart.String())
	})
	err := l.construct()
	checks := &checks{life: l}
	for ready := false; err == nil && !ready; {
		if err = l.configure(); err == nil && !checks.passed {
			err = checks.first()
		}
		if err == nil {
			ready = l.ready()
		}
	}
	slow.Stop()
	if err != nil {
		l.startFailed(err)
		return
	}
	checks.run()
}

func (l *life) uniqueID() string { return l.replica.uniqueID() }

// construct calls the constructors and stores their values. It waits without a limit for a
// slow constructor, even if the replica must stop, because its value must be stopped later.
func (l *life) construct() error {
	began := time.Now()
	for _, c := range l.set.config.Constructors {
		made := value{key: c.Key}
		err := l.set.hooks.run(context.Background(), l.ctx, l.replica, "construct", func(ctx context.Context) (err error) {
			made.Value, err = c.Make(ctx)
			return err
		})
		if err != nil {
			return err
		}
		l.replica.values = append(l.replica.values, made)
	}
	l.replica.scope.Metrics.Constructed(time.Since(began))
	return nil
}

// configure passes the set's user config to a starting replica, unless the replica has it
// already.
func (l *life) configure() error {
	l.set.mu.Lock()
	config, has := l.set.want.Config, l.config
	l.set.mu.Unlock()
	if config == has || config == "" {
		return nil
	}
	return l.reconfigure(context.Background(), config)
}

// ready adds the replica to the router, so that it takes calls, and returns true. It adds
// nothing and returns false if the set's user config has changed meanwhile, so that the
// replica must first take it. It adds nothing and returns true if the replica must stop.
func (l *life) ready() bool {
	s := l.set
	s.mu.Lock()
	defer s.unlock()
	switch {
	case l.state != ReplicaStarting:
		return true
	case l.config != s.want.Config && s.want.Config != "":
		return false
	}
	l.config = s.want.Config
	l.runsLocked()
	return true
}

// runsLocked adds the replica to the router and records that it takes calls.
func (l *life) runsLocked() {
	l.enterLocked(ReplicaRunning)
	l.replica.scope.Metrics.Started()
	l.set.starts.everRan = true
	l.set.clearLocked()
	l.set.router.add(l.replica)
}

// reconfigure passes a user config to the replica's values that have a Reconfigure method.
// It waits for each until the context patience ends.
func (l *life) reconfigure(patience context.Context, config string) error {
	began, takers := time.Now(), 0
	for _, v := range l.replica.values {
		if v.Reconfigure == nil {
			continue
		}
		takers++
		err := l.set.hooks.run(patience, l.ctx, l.replica, "reconfigure", func(ctx context.Context) error {
			return v.Reconfigure(ctx, config)
		})
		if err != nil {
			return err
		}
	}
	if takers == 0 {
		return ErrNoReconfigurer
	}
	l.replica.scope.Metrics.Reconfigured(time.Since(began))
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.config = config
	return nil
}

// ErrNoReconfigurer is the error for a user config if no value of the deployment has a
// method that takes it.
var ErrNoReconfigurer = errors.New("there is a user config, and no value of PerReplica has a method Reconfigure(context.Context, serving.UserConfig) error; add it, or remove the user config")

// startFailed stops a replica after its start has failed with err. Another replica starts after
// a pause, unless the deployment stops, or becomes unavailable after too many failed starts.
func (l *life) startFailed(err error) {
	s := l.set
	s.mu.Lock()
	defer s.unlock()
	if l.state == ReplicaStopping {
		return // the start was interrupted because the replica must stop, so it has not failed
	}
	l.stopLocked()
	s.starts.fails++
	s.condition.blame(s.log, l.uniqueID(), "replica failed to start", err)
	tries := s.starts.fails
	if !s.starts.everRan && tries >= min(triesPerReplica*s.want.Replicas, mostTries) {
		s.starts.down = &cause.DeploymentUnavailableError{App: s.config.App, Deployment: s.config.Name, Tries: tries, Reason: err}
		s.router.fail(s.starts.down)
		return
	}
	if s.starts.retry == nil && s.phase != setStopping {
		s.starts.rounds++
		s.starts.retry = time.AfterFunc(s.starts.backoff(s.starts.rounds), func() {
			s.mu.Lock()
			defer s.unlock()
			s.starts.retry = nil
		})
	}
}

// condemn stops the replica because its health checks fail with err. Another replica starts
// at once.
func (l *life) condemn(err error) {
	l.set.mu.Lock()
	defer l.set.unlock()
	if l.state == ReplicaStopping {
		return
	}
	l.stopLocked()
	l.set.condition.blame(l.set.log, l.uniqueID(), "replica is unhealthy; another takes its place", err)
}

// supersede marks the replica as unhealthy, because it has refused a user config with err.
// The set starts another replica. This replica takes calls until the other replica takes
// calls.
func (l *life) supersede(err error) {
	l.set.mu.Lock()
	defer l.set.unlock()
	if l.state != ReplicaRunning {
		return
	}
	l.enterLocked(ReplicaUnhealthy)
	l.set.condition.blame(l.set.log, l.uniqueID(), "replica did not take the new user config; another takes its place", err)
}

// stopLocked begins the stop of the replica, if it has not begun. The replica takes no more
// calls. A goroutine waits for its last calls and ends it.
func (l *life) stopLocked() {
	if l.state == ReplicaStopping {
		return
	}
	l.enterLocked(ReplicaStopping)
	idle := l.set.router.remove(l.replica)
	l.end(errReplicaStops)
	go l.retire(idle, l.set.want) // ReplicaSet.Wait waits for it
}

// retire ends a replica that the router no longer uses. It waits until the last calls have
// ended, when idle is closed. Then it stops batching and multiplexing, then the replica's
// values, and removes the replica from the set. with are the settings at the time of the
// stop.
func (l *life) retire(idle <-chan struct{}, with Settings) {
	began := time.Now()
	r, s := l.replica, l.set
	<-l.lived
	finished := l.drain(idle, with)
	left := max(with.StopTimeout-time.Since(began), stopGrace)
	ctx, cancel := context.WithTimeout(s.hooks.ctx, left)
	defer cancel()
	stop := func(f func(context.Context) error) {
		if err := s.hooks.run(ctx, ctx, r, "stop", f); err != nil {
			s.log.Warn("replica does not stop as it should", tracing.LogReplica, l.uniqueID(), "hook", "stop", "error", err)
		}
	}
	stop(func(ctx context.Context) error {
		r.scope.Stop(ctx)
		return nil
	})
	for _, v := range slices.Backward(r.values) {
		if v.Stop != nil && finished {
			stop(v.Stop)
		}
	}
	r.cut(cause.ErrReplicaStopped) // releases the resources of the context; no call uses it
	r.scope.Metrics.Stopped(time.Since(began))
	s.remove(l)
}

// stopGrace is the least time for the stop of a replica's values. It applies if the last
// calls have used up the graceful shutdown timeout.
const stopGrace = time.Second

// drain waits until the replica's last call has ended and idle is closed, and returns true.
// After StopTimeout it cuts off the requests of clients, and continues to wait. It returns
// false if the server's shutdown runs out of time first.
func (l *life) drain(idle <-chan struct{}, with Settings) bool {
	limit := time.NewTimer(with.StopTimeout)
	defer limit.Stop()
	look := time.NewTicker(with.WaitLoop)
	defer look.Stop()
	logged := false
	for {
		select {
		case <-idle:
			return true
		case <-l.set.hooks.ctx.Done():
			select {
			case <-idle: // both channels are closed, and the calls have ended in time
				return true
			default:
				return false
			}
		case <-look.C:
			if !logged {
				l.set.log.Info("replica waits for its last requests", tracing.LogReplica, l.uniqueID())
			}
			logged = true
		case <-limit.C:
			l.set.log.Warn("replica still has requests after its graceful shutdown timeout; requests of clients are cut off",
				tracing.LogReplica, l.uniqueID(), "timeout", with.StopTimeout.String())
			l.replica.cut(cause.ErrReplicaStopped)
		}
	}
}
