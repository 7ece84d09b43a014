package supervise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/internal/wire"
)

// A plugin is replaced without a loss. The new process starts beside the old one,
// which goes on. Once described, configured and healthy, the new one is on probation:
// it alone takes batches, one at a time. If it fails, its batches go back to the queue,
// the old process takes batches again, and log and status report it. Else the old one
// answers its last calls, shuts down and ends.
//
// As long as there is nothing to deliver, the new process waits beside the old one.
// Reload does not wait for that, and a further Reload replaces the new process.
const (
	// proofBatches is the number of delivered or excused batches that ends a probation.
	// One batch is enough if none has come for proofQuiet since, and the plugin is
	// healthy.
	proofBatches = 3
	proofQuiet   = 5 * time.Second
	// retireTimeout bounds the end of a replaced process after its last call.
	retireTimeout = 5 * time.Second
)

// trial is the record of a new process on probation. Safe for concurrent use.
type trial struct {
	// lenient is true if the old process did not deliver either, so that its back end
	// may be down. Then an error that allows a retry also shows that the new process
	// works, and is excused.
	lenient bool
	news    chan struct{} // capacity 1: the record has changed

	mu     sync.Mutex
	passed int   // batches delivered or excused
	failed error // nil: not yet
	over   bool
}

// judge records the process's answer to a batch of its lane. If the answer would lose
// the batch, or the process fails, judge stops the lane, and returns an answer that
// puts the batch back.
func (t *trial) judge(l *pipeline.Lane, it *pipeline.Item, ans pipeline.Answer) pipeline.Answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || ans.Lost && !ans.Said { // the end of the process is noticed elsewhere
		return ans
	}
	delivered := ans.Err == nil && ans.Rejected < uint64(it.Left())
	if delivered || t.lenient && ans.Err != nil && !ans.Err.Final {
		t.passed++
		t.notify()
		return ans
	}
	if t.failed == nil {
		t.failed = fmt.Errorf("it does not deliver: %w", answerError(ans))
		l.Set(true, true)
		t.notify()
	}
	return pipeline.Answer{Err: &wire.Error{Code: wire.CodeRetry, Err: t.failed}, Took: ans.Took, Lost: true}
}

// notify sends on news unless it is full.
func (t *trial) notify() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// answerError returns the error of an answer, or nil.
func answerError(ans pipeline.Answer) error {
	if ans.Err != nil {
		return ans.Err
	}
	return errors.New("its back end rejects a whole batch: " + ans.Remark)
}

// state returns the number of batches that have passed, and the failure.
func (t *trial) state() (passed int, failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.passed, t.failed
}

// end ends the probation and returns its failure.
func (t *trial) end() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return t.failed
}

// upgrade is one replacement of a process by a new one. Only Run uses it.
type upgrade struct {
	x         *Plugin
	old, next *life // next is nil if the new process did not start
	trial     *trial
	// asked are callers of Reload that wait for the end of the probation. again are
	// callers that asked for another new process since then.
	asked, again []chan<- error
}

// replace starts a new process beside the old one. If Reload is called while the new
// process is on probation, replace starts a further process. It returns the life that
// continues, and answers all callers of Reload.
func (x *Plugin) replace(l *life, asked []chan<- error) *life {
	for asked != nil {
		u := &upgrade{x: x, old: l, asked: asked}
		taken, err := u.run()
		goes := u.next
		if taken {
			l, goes = u.next, u.old
		}
		if goes != nil {
			x.retiring = x.retire(goes)
		}
		answerAll(u.asked, err)
		if asked = u.again; asked != nil { // a third process must wait for that end
			if x.retiring != nil {
				<-x.retiring
			}
			x.retiring = nil
		}
	}
	return l
}

// run starts the new process, and reports whether it replaces the old one. If not, the
// error is the reason.
func (u *upgrade) run() (taken bool, err error) {
	x := u.x
	if x.Entry.Attached {
		return false, nil
	}
	x.log.Info("plugin is being replaced: a new process starts beside the old one", "pid", u.old.peer.PID())
	a := newAttempt(x)
	if u.next, err = u.begin(a); err == nil {
		if err = u.prove(); err == nil {
			x.log.Info("plugin is replaced: the old process answers its calls and ends", "pid", u.next.peer.PID(), "old_pid", u.old.peer.PID())
			x.ready(u.next)
			return true, nil
		}
	}
	defer a.end(true) // after the cause
	switch {
	case x.ctx.Err() != nil:
		return false, errStopping
	case u.again != nil:
		return false, nil // no caller waits for the error
	}
	var c *crash
	if u.next == nil && errors.As(err, &c) { // else retire counts it
		x.status.crashed(false)
	}
	if u.old.gone() {
		x.log.Error("plugin is not replaced: the new process failed, and the old one has ended; it is started again", "error", err)
		return false, &PluginError{x.Entry.Name, "does not start, and the old process has ended", err}
	}
	x.log.Error("plugin is not replaced: the new process failed and the old one goes on; mend it and send SIGHUP again",
		"pid", u.old.peer.PID(), "error", err)
	err = &PluginError{x.Entry.Name, "is not replaced, the old process goes on", err}
	x.status.failures.SetLast(time.Now(), err.Error())
	return false, err
}

// begin starts the new process. If the old process ends before the new one is ready,
// there is no process for that time, and the state shows it.
func (u *upgrade) begin(a *attempt) (*life, error) {
	begun := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { // ends with the beginning
		select {
		case <-u.old.peer.Done():
			u.x.status.set(StateStarting, u.old.ended().Error())
		case <-begun:
		}
	})
	next, err := begin(u.x.ctx, u.x, a)
	close(begun)
	watch.Wait()
	return next, err
}

// errStopping is the error of a replacement if the host shuts down. errAgain is the
// error of a probation that a further Reload ends.
var (
	errStopping = errors.New("the host shuts down")
	errAgain    = errors.New("another process is asked for")
)

// prove puts the new process on probation. After an error, the old process takes
// batches again and the new one takes no more. Otherwise, only the new process takes
// batches.
func (u *upgrade) prove() error {
	if _, err := u.next.sender.health(u.x.ctx); err != nil {
		return err
	}
	u.trial = &trial{lenient: u.x.status.now() == StateDegraded, news: make(chan struct{}, 1)}
	u.next.sender.trial = u.trial
	u.next.sender.lane.Set(false, true)
	u.old.sender.lane.Set(true, false)
	u.next.send()
	err := u.await()
	failed := u.trial.end()
	if err == nil && !u.old.gone() {
		err = failed // of a call that ended at the last moment
	}
	u.next.sender.lane.Set(err != nil, false)
	u.old.sender.lane.Set(err == nil, false)
	if err != nil {
		u.next.stop() // its batches go back
	}
	return err
}

// await blocks until the new process has passed its probation. If the old process has
// ended, the new one needs no probation.
func (u *upgrade) await() error {
	quiet := time.NewTimer(proofQuiet)
	defer quiet.Stop()
	reload := (<-chan chan<- error)(nil)
	for {
		select {
		case <-u.next.peer.Done():
			return u.next.ended()
		case <-u.old.peer.Done():
			return nil
		case <-u.x.ctx.Done():
			return errStopping
		case first := <-reload:
			u.again = u.x.reloading.all(first)
			return errAgain
		case <-u.trial.news:
			if passed, failed := u.trial.state(); failed != nil || passed >= proofBatches {
				return failed
			}
			quiet.Reset(proofQuiet)
		case <-quiet.C:
			if u.next.sender.lane.Busy() > 0 {
				quiet.Reset(proofQuiet) // its call has a deadline
				continue
			}
			passed, _ := u.trial.state()
			if _, err := u.next.sender.health(u.x.ctx); err != nil || passed > 0 {
				return err
			}
			u.x.log.Info("plugin's new process has had nothing to deliver: it waits beside the old one, and takes over when it has delivered",
				"pid", u.next.peer.PID(), "old_pid", u.old.peer.PID())
			answerAll(u.asked, nil)
			u.asked, reload = nil, u.x.reloading.asked
		}
	}
}

// retire ends a process that takes no more batches, in the background. The process
// answers its last calls, shuts down and ends. Then the channel is closed. The deadline
// of the host's Shutdown also applies.
func (x *Plugin) retire(l *life) <-chan struct{} {
	over := make(chan struct{})
	go func() { // run waits for it
		defer close(over)
		if l.sent != nil {
			l.sender.lane.AwaitIdle(x.ctx)
		}
		crashed := l.gone()
		if l.sent != nil {
			l.finish()
		}
		if crashed {
			x.status.crashed(false) // another process serves: it does not count
			l.reportCrash(l.peer.Report(), l.ended())
		} else {
			ctx, cancel := x.ending(retireTimeout)
			defer cancel()
			l.shutdown(ctx)
		}
		if err := l.end(); err != nil {
			x.log.Warn("the plugin's other process did not end", "error", err)
		}
	}()
	return over
}

// reloads are the requests of Reload to one plugin: to replace its process, or to start
// it at once. The answer is nil, or the reason why the old process stays. Safe for
// concurrent use.
type reloads struct {
	name  string // of the plugin
	asked chan chan<- error
	ended chan struct{} // closed when the plugin takes no more requests
}

// ask makes a request. It blocks until the request is done, ctx ends, or the host
// stops.
func (r *reloads) ask(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case r.asked <- answer:
	case <-r.ended:
		return errStopping
	case <-ctx.Done():
		return fmt.Errorf("reload plugin %q: %w", r.name, context.Cause(ctx))
	}
	select {
	case err := <-answer:
		return err
	case <-r.ended:
		return errStopping
	case <-ctx.Done():
		return fmt.Errorf("reload plugin %q: %w", r.name, context.Cause(ctx))
	}
}

// all returns first and all other waiting requests, because one reload answers all of
// them.
func (r *reloads) all(first chan<- error) []chan<- error {
	list := []chan<- error{first}
	for {
		select {
		case another := <-r.asked:
			list = append(list, another)
		default:
			return list
		}
	}
}

// reloadError returns the error of Reload for a plugin that does not start.
func reloadError(name string, err error) error {
	if err == nil {
		return nil
	}
	return &PluginError{name, "does not start", err}
}

// answerAll answers requests without blocking, because their channels are buffered.
func answerAll(asked []chan<- error, err error) {
	for _, c := range asked {
		c <- err
	}
}

// PluginError is the error of Reload for one plugin. The Host has logged it.
type PluginError struct {
	// Plugin is its name in the list.
	Plugin string
	// Op is the result: the plugin does not start, or is not replaced.
	Op string
	// Err is the reason. It is never nil.
	Err error
}

// Error names the plugin, the result and the reason.
func (e *PluginError) Error() string { return fmt.Sprintf("plugin %q %s: %v", e.Plugin, e.Op, e.Err) }

// Unwrap returns Err.
func (e *PluginError) Unwrap() error { return e.Err }
