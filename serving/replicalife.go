package serving

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/servetrace/servetrace/tracing"
)

// life is the life of one replica, beside its calls.
type life struct {
	set     *replicaSet
	replica *replica

	ctx   context.Context // of user code outside of calls; ends when the replica is to stop
	end   context.CancelCauseFunc
	lived chan struct{} // closed when start and checks are over

	// The set's mu guards the fields below.
	state  ReplicaState
	since  time.Time  // of the state
	config UserConfig // that the replica has taken
}

// newLife makes a replica that is to be started. The set's mu is held.
func newLife(s *replicaSet) *life {
	l := &life{set: s, replica: s.make(), since: time.Now(), lived: make(chan struct{})}
	l.replica.max.Store(int64(s.want.maxOngoing))
	l.replica.scope.MaxOngoing = s.want.maxOngoing
	l.ctx, l.end = context.WithCancelCause(s.hooks.ctx)
	return l
}

// errReplicaStops is the cause of the end of a life's context.
var errReplicaStops = errors.New("replica stops")

// longStart is how long a start takes before the log has a line about it.
const longStart = 30 * time.Second

// live is a replica's life until it is to stop: its start and its health checks.
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

func (l *life) uniqueID() string { return l.replica.info.ReplicaID.UniqueID }

// construct makes the replica's values. It waits however long that takes: the result of
// a constructor that returns late has to be stopped.
func (l *life) construct() error {
	began := time.Now()
	for _, make := range l.set.deployment.locals {
		var value any
		err := l.set.hooks.run(context.Background(), l.ctx, l.replica, "construct", func(ctx context.Context) (err error) {
			value, err = make(ctx)
			return err
		})
		if err != nil {
			return err
		}
		l.replica.values = append(l.replica.values, value)
	}
	l.replica.scope.Metrics.Constructed(time.Since(began))
	return nil
}

// configure has a replica that starts take the user config that is wanted.
func (l *life) configure() error {
	l.set.mu.Lock()
	config, has := l.set.want.config, l.config
	l.set.mu.Unlock()
	if config == has || config.IsZero() {
		return nil
	}
	return l.reconfigure(context.Background(), config)
}

// ready has a replica that has started take calls. It returns false if another user
// config is wanted meanwhile. A replica that is to stop is ready for that.
func (l *life) ready() bool {
	s := l.set
	s.mu.Lock()
	defer s.unlock()
	switch {
	case l.state != ReplicaStarting:
		return true
	case l.config != s.want.config && !s.want.config.IsZero():
		return false
	}
	l.config = s.want.config
	l.runsLocked()
	return true
}

// runsLocked notes that the replica takes calls.
func (l *life) runsLocked() {
	l.state, l.since = ReplicaRunning, time.Now()
	l.replica.scope.Metrics.Started()
	l.set.starts.everRan = true
	l.set.clearLocked()
	l.set.listLocked()
}

// reconfigure has the replica take a user config, and waits for it until patience ends.
func (l *life) reconfigure(patience context.Context, config UserConfig) error {
	began, takers := time.Now(), 0
	for _, value := range l.replica.values {
		taker, is := value.(Reconfigurer)
		if !is {
			continue
		}
		takers++
		err := l.set.hooks.run(patience, l.ctx, l.replica, "reconfigure", func(ctx context.Context) error {
			return taker.Reconfigure(ctx, config)
		})
		if err != nil {
			return err
		}
	}
	if takers == 0 {
		return errNoReconfigurer
	}
	l.replica.scope.Metrics.Reconfigured(time.Since(began))
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.config = config
	return nil
}

var errNoReconfigurer = errors.New("there is a user config, and no value of PerReplica has a method Reconfigure(context.Context, serving.UserConfig) error; add it, or take the user config away")

// startFailed ends a replica whose start has failed, and has another started after a
// pause, if there may be another.
func (l *life) startFailed(err error) {
	s := l.set
	s.mu.Lock()
	defer s.unlock()
	if l.state == ReplicaStopping {
		return // it was to stop before it was ready: that is no failure
	}
	l.stopLocked()
	s.starts.fails++
	s.condition.blame(s.log, l.uniqueID(), "replica failed to start", err)
	tries := s.starts.fails
	if !s.starts.everRan && tries >= min(triesPerReplica*s.want.replicas, mostTries) {
		s.starts.down = &DeploymentUnavailableError{App: s.app, Deployment: s.deployment.name, Tries: tries, Reason: err}
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

// condemn has the replica stopped and replaced at once, for err.
func (l *life) condemn(err error) {
	l.set.mu.Lock()
	defer l.set.unlock()
	if l.state == ReplicaStopping {
		return
	}
	l.stopLocked()
	l.set.condition.blame(l.set.log, l.uniqueID(), "replica is unhealthy; another takes its place", err)
}

// supersede has the replica replaced, for err. It takes calls until its successor does.
func (l *life) supersede(err error) {
	l.set.mu.Lock()
	defer l.set.unlock()
	if l.state != ReplicaRunning {
		return
	}
	l.state, l.since = ReplicaUnhealthy, time.Now()
	l.set.condition.blame(l.set.log, l.uniqueID(), "replica did not take the new user config; another takes its place", err)
}

// stopLocked has the replica take no more calls, finish the calls that it has, and end.
func (l *life) stopLocked() {
	if l.state == ReplicaStopping {
		return
	}
	l.state, l.since = ReplicaStopping, time.Now()
	idle := l.set.router.remove(l.replica)
	l.replica.stopped.Store(true) // a request that was given a slot and has not come yet goes elsewhere
	l.end(errReplicaStops)
	go l.retire(idle, l.set.want) // the set's wait waits for it
}

// retire ends a replica that the router no longer lists: its last calls, then the
// goroutines that these have left, then its values. with are the settings at the time.
func (l *life) retire(idle <-chan struct{}, with settings) {
	began := time.Now()
	r, s := l.replica, l.set
	<-l.lived
	finished := l.drain(idle, with)
	left := max(with.stopTimeout-time.Since(began), stopGrace)
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
	for _, value := range slices.Backward(r.values) {
		if stopper, is := value.(Stopper); is && finished {
			stop(stopper.Stop)
		}
	}
	r.scope.Metrics.Stopped(time.Since(began))
	s.remove(l)
}

// stopGrace is the least time that the values of a replica have for their stop, if its
// calls have used up its time.
const stopGrace = time.Second

// drain waits for a replica's last call. It returns false if a stop has no more time for
// that.
func (l *life) drain(idle <-chan struct{}, with settings) bool {
	limit := time.NewTimer(with.stopTimeout)
	defer limit.Stop()
	look := time.NewTicker(with.waitLoop)
	defer look.Stop()
	logged := false
	for {
		select {
		case <-idle:
			return true
		case <-l.set.hooks.ctx.Done():
			select {
			case <-idle: // its time is over, but its calls are too
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
			l.set.log.Warn("replica still has requests beyond its graceful shutdown timeout; those of clients are cut off",
				tracing.LogReplica, l.uniqueID(), "timeout", with.stopTimeout.String())
			close(l.replica.killed)
		}
	}
}
