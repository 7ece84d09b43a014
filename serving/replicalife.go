package serving

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/tracing"
)

// lifetime is what a replica has of its life beside its calls. Fields without a
// remark are guarded by its set's mu.
type lifetime struct {
	life  context.Context // of user code outside of calls; ends when it is to stop
	end   context.CancelCauseFunc
	lived chan struct{} // closed when start and checks are over

	state  ReplicaState
	since  time.Time  // when it came to be in that state
	config UserConfig // that it has taken

	// values are those of PerReplica, in their order. They are complete before
	// the replica takes a call, and do not change then.
	values []any
}

// replicaIn returns the replica in which user code with the context ctx runs; nil
// outside of a replica.
func replicaIn(ctx context.Context) *replica {
	c := scope.FromContext(ctx)
	if c == nil {
		return nil
	}
	r, _ := c.Replica.Runner.(*replica)
	return r
}

// errReplicaStops is why the context of user code outside of calls ended.
var errReplicaStops = errors.New("replica stops")

// longStart is when a start that takes its time is worth a line of the log.
const longStart = 30 * time.Second

// live is a replica's life until it is to stop: it starts it, and looks after
// its health.
func (s *replicaSet) live(r *replica) {
	defer close(r.lived)
	slow := time.AfterFunc(longStart, func() {
		s.log.Warn("replica is still starting", tracing.LogReplica, r.info.ReplicaID.UniqueID, "after", longStart.String())
	})
	err := s.construct(r)
	checks := &checks{set: s, replica: r}
	for ready := false; err == nil && !ready; {
		if err = s.configure(r); err == nil && !checks.passed {
			err = checks.first()
		}
		if err == nil {
			ready = s.ready(r)
		}
	}
	slow.Stop()
	if err != nil {
		s.startFailed(r, err)
		return
	}
	checks.run()
}

// construct makes the replica's values. It waits however long that takes: what
// a constructor has made when it returns late has to be stopped.
func (s *replicaSet) construct(r *replica) error {
	began := time.Now()
	for _, make := range s.deployment.locals {
		var value any
		err := s.hook(context.Background(), r.life, r, "construct", func(ctx context.Context) (err error) {
			value, err = make(ctx)
			return err
		})
		if err != nil {
			return err
		}
		r.values = append(r.values, value)
	}
	r.scope.Metrics.Constructed(time.Since(began))
	return nil
}

// configure has a replica that starts take the user config that is wanted.
func (s *replicaSet) configure(r *replica) error {
	s.mu.Lock()
	config, has := s.want.config, r.config
	s.mu.Unlock()
	if config == has || config.IsZero() {
		return nil
	}
	return s.reconfigure(context.Background(), r, config)
}

// ready has a replica that has started take calls. It gives false where another
// user config is wanted meanwhile. One that is to stop is ready for that.
func (s *replicaSet) ready(r *replica) bool {
	s.mu.Lock()
	defer s.unlock()
	switch {
	case r.state != ReplicaStarting:
		return true
	case r.config != s.want.config && !s.want.config.IsZero():
		return false
	}
	r.config = s.want.config
	s.ranLocked(r)
	return true
}

// reconfigure has a replica take a user config, and waits for it until patience
// ends. It notes what the replica has.
func (s *replicaSet) reconfigure(patience context.Context, r *replica, config UserConfig) error {
	began, takers := time.Now(), 0
	for _, value := range r.values {
		taker, is := value.(Reconfigurer)
		if !is {
			continue
		}
		takers++
		err := s.hook(patience, r.life, r, "reconfigure", func(ctx context.Context) error {
			return taker.Reconfigure(ctx, config)
		})
		if err != nil {
			return err
		}
	}
	if takers == 0 {
		return errNoReconfigurer
	}
	r.scope.Metrics.Reconfigured(time.Since(began))
	s.mu.Lock()
	defer s.mu.Unlock()
	r.config = config
	return nil
}

var errNoReconfigurer = errors.New("there is a user config, and no value of PerReplica has a method Reconfigure(context.Context, serving.UserConfig) error; add it, or take the user config away")

// retire ends a replica that the router no longer lists: its last calls, then
// what these left with it, then its values. with are the settings at the time.
func (s *replicaSet) retire(r *replica, idle <-chan struct{}, with settings) {
	began := time.Now()
	<-r.lived
	finished := s.drain(r, idle, with)
	left := max(with.stopTimeout-time.Since(began), stopGrace)
	ctx, cancel := context.WithTimeout(s.hooks, left)
	defer cancel()
	s.tell(r, "stop", s.hook(ctx, ctx, r, "stop", func(ctx context.Context) error {
		r.scope.Stop(ctx)
		return nil
	}))
	for _, value := range slices.Backward(r.values) {
		if stopper, is := value.(Stopper); is && finished {
			s.tell(r, "stop", s.hook(ctx, ctx, r, "stop", stopper.Stop))
		}
	}
	r.scope.Metrics.Stopped(time.Since(began))
	s.gone(r)
}

// stopGrace is what the values of a replica have at least for their stop, where
// its calls have used up its time.
const stopGrace = time.Second

// drain waits for a replica's last call. It gives false where a stop has no more
// time for that.
func (s *replicaSet) drain(r *replica, idle <-chan struct{}, with settings) bool {
	limit := time.NewTimer(with.stopTimeout)
	defer limit.Stop()
	look := time.NewTicker(with.waitLoop)
	defer look.Stop()
	told := false
	for {
		select {
		case <-idle:
			return true
		case <-s.hooks.Done():
			select {
			case <-idle: // its time is over, but its calls are too
				return true
			default:
				return false
			}
		case <-look.C:
			if !told {
				s.log.Info("replica waits for its last requests", tracing.LogReplica, r.info.ReplicaID.UniqueID)
			}
			told = true
		case <-limit.C:
			s.log.Warn("replica still has requests beyond its graceful shutdown timeout; those of clients are cut off",
				tracing.LogReplica, r.info.ReplicaID.UniqueID, "timeout", with.stopTimeout.String())
			close(r.killed)
		}
	}
}

// tell has the log say what a hook failed with.
func (s *replicaSet) tell(r *replica, hook string, err error) {
	if err != nil {
		s.log.Warn("replica does not stop as it should", tracing.LogReplica, r.info.ReplicaID.UniqueID, "hook", hook, "error", err)
	}
}

// hook runs user code for a replica in a goroutine of its own, with the context
// ctx, and returns what it does; a panic is an error. It waits until patience
// ends, and cutGrace more, for code that heeds its context has to be given the
// time to return: what runs on then is among s.running, and a stop says so.
func (s *replicaSet) hook(patience, ctx context.Context, r *replica, name string, f func(context.Context) error) error {
	done := s.begin(ctx, r, name, f)
	select {
	case err := <-done:
		return err
	case <-patience.Done():
	}
	grace := time.NewTimer(cutGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return err
	case <-grace.C:
		return fmt.Errorf("%s has not returned: %w", name, context.Cause(patience))
	}
}

// begin starts user code as hook does; done carries its error.
func (s *replicaSet) begin(ctx context.Context, r *replica, name string, f func(context.Context) error) (done <-chan error) {
	name = name + " of " + r.info.ReplicaID.String()
	s.mu.Lock()
	s.running[name]++
	s.mu.Unlock()
	work := scope.NewCall(r.scope)
	ctx = scope.ContextWithCall(identity.ContextWithReplica(ctx, r.component), work)
	result := make(chan error, 1)
	go func() { // wait waits for it
		err := errGoexit
		defer func() {
			work.End()
			if v := recover(); v != nil {
				err = &tracing.PanicError{Value: v, Stack: debug.Stack()}
			}
			result <- err
			s.ended(name)
		}()
		err = scope.Touch(f(ctx))
	}()
	return result
}

// ended is told of user code that has returned.
func (s *replicaSet) ended(name string) {
	s.mu.Lock()
	defer s.unlock()
	if s.running[name]--; s.running[name] == 0 {
		delete(s.running, name)
	}
}
