package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// A plugin is replaced without a loss. The new process starts beside the old
// one, which goes on; when it is described, configured and healthy it is on
// probation: it alone takes batches, one at a time, while the old one lives and
// takes none. If it fails, what it had goes back to the queue, the old one takes
// batches again, and the log and the status say so. Else the old one answers
// what it has, is told to shut down, and ends, while the new one serves.
//
// As long as there is nothing to deliver the new process waits beside the old
// one, for it has shown nothing. Reload does not wait for that, and a further
// Reload puts another process in its place.
const (
	// proofBatches end a probation when they are delivered, or excused. One is
	// enough when nothing has come behind it for proofQuiet, and the plugin is
	// healthy.
	proofBatches = 3
	proofQuiet   = 5 * time.Second
	// retireTimeout bounds the end of a process that was replaced, once it has
	// answered its calls.
	retireTimeout = 5 * time.Second
)

// trial is what is known of a new process on probation. The host's mutex guards
// it.
type trial struct {
	delivered int
	failed    error // nil: not yet
	// lenient: the old process did not deliver either, so that its back end may
	// be down. An answer that says "later" is no failure then, and as good as a
	// delivery: it shows that the new one works. They are excused.
	lenient bool
	excused int
	news    chan struct{} // capacity 1: one of these has changed

	// Of run alone: asked wait for the end of the probation, nil: nobody does any
	// more. again are those who asked for a further process meanwhile.
	asked, again []chan<- error
}

func (x *exporter) newTrial(asked []chan<- error) *trial {
	return &trial{lenient: x.degraded(), news: make(chan struct{}, 1), asked: asked}
}

// replace puts a new process beside the old one, and another when that is asked
// for while the first waits for its proof. It gives the one that goes on, and
// answers all who asked.
func (x *exporter) replace(l *life, asked []chan<- error) *life {
	for asked != nil {
		t := x.newTrial(asked)
		stays, goes, err := x.upgrade(l, t)
		if goes != nil {
			x.retiring = x.retire(goes)
		}
		tellAskers(t.asked, err)
		l, asked = stays, t.again
		if asked != nil { // a third process must wait until the other has ended
			x.awaitRetired()
			x.retiring = nil
		}
	}
	return l
}

// judgeLocked sees an answer that the process on l gave, and changes it into one
// that is sent again at once where the batch would be lost, or has failed.
// Without a trial it does nothing.
func (l *link) judgeLocked(it *item, ans answer) answer {
	t := l.trial
	if t == nil || ans.lost && !ans.said { // whoever waits for its end, hears
		return ans
	}
	if ans.err == nil && ans.rejected < uint64(it.left()) {
		t.delivered++
		signal(t.news)
		return ans
	}
	if t.lenient && ans.err != nil && !ans.err.Final {
		t.excused++
		signal(t.news)
		return ans
	}
	if t.failed == nil {
		t.failed = fmt.Errorf("it does not deliver: %w", answerError(ans))
		l.idle = true
		signal(t.news)
	}
	return answer{err: &wire.Error{Code: wire.CodeRetry, Err: t.failed}, took: ans.took, lost: true}
}

// answerError is what is wrong with an answer.
func answerError(ans answer) error {
	if ans.err != nil {
		return ans.err
	}
	return errors.New("its back end rejects a whole batch: " + ans.remark)
}

// upgrade puts a new process beside the old one. stays is the one that goes on,
// and goes the other; nil: there is none. The error says why the old one stays.
func (x *exporter) upgrade(old *life, t *trial) (stays, goes *life, err error) {
	if x.entry.attached {
		return old, nil, nil
	}
	x.log.Info("plugin is being replaced: a new process starts beside the old one", "pid", old.peer.PID())
	a := x.newAttempt()
	next, err := x.beginBeside(old, a)
	if err == nil {
		if err = x.prove(old, next, t); err == nil {
			x.log.Info("plugin is replaced: the old process answers its calls and ends", "pid", next.peer.PID(), "old_pid", old.peer.PID())
			x.ready(next)
			return next, old, nil
		}
	}
	defer a.end(true) // behind the cause
	switch {
	case x.ctx.Err() != nil:
		return old, next, errStopping
	case t.again != nil:
		return old, next, nil // nobody waits for the error
	}
	var c *crash
	if next == nil && errors.As(err, &c) { // else retire counts it
		x.crashedAside()
	}
	if old.gone() {
		x.log.Error("plugin is not replaced: the new process failed, and the old one has ended; it is started again", "error", err)
		return old, next, &PluginError{x.entry.name, "does not start, and the old process has ended", err}
	}
	cause := err
	err = &PluginError{x.entry.name, "is not replaced, the old process goes on", cause}
	x.log.Error("plugin is not replaced: the new process failed and the old one goes on; mend it and send SIGHUP again",
		"pid", old.peer.PID(), "error", cause)
	x.endedWith(err)
	return old, next, err
}

// beginBeside begins a new life. If the old one ends meanwhile there is none
// until the new one is ready, and the state says so.
func (x *exporter) beginBeside(old *life, a *attempt) (*life, error) {
	begun := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { // ends with the beginning
		select {
		case <-old.peer.Done():
			x.setState(StateStarting, old.ended().Error())
		case <-begun:
		}
	})
	next, err := x.begin(x.ctx, a)
	close(begun)
	watch.Wait()
	return next, err
}

// errStopping is the answer of a host that shuts down meanwhile, and errAgain the
// end of a probation by a further Reload.
var (
	errStopping = errors.New("the host shuts down")
	errAgain    = errors.New("another process is asked for")
)

// prove puts the next process on probation. With an error it takes no batches
// any more and the old one does again; else it is the other way round.
func (x *exporter) prove(old, next *life, t *trial) error {
	if _, err := next.link.health(x.ctx); err != nil {
		return err
	}
	next.link.trial, next.link.single = t, true // nobody else knows the link yet
	x.setIdle(old.link, true)
	next.send()
	err := x.awaitProof(old, next, t)
	x.mu.Lock()
	if err == nil && !old.gone() {
		err = t.failed // of a call that ended at the last moment
	}
	next.link.trial, next.link.single = nil, false
	next.link.idle, old.link.idle = err != nil, err == nil
	x.changed.Broadcast()
	x.mu.Unlock()
	if err != nil {
		next.stop() // what it has goes back
	}
	return err
}

// setIdle has a link take batches, or none.
func (x *exporter) setIdle(l *link, idle bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l.idle = idle
	x.changed.Broadcast()
}

// awaitProof blocks until the next process has shown what it can do. Without
// the old one there is nothing to go back to, and nothing to prove.
func (x *exporter) awaitProof(old, next *life, t *trial) error {
	quiet := time.NewTimer(proofQuiet)
	defer quiet.Stop()
	reload := (<-chan chan<- error)(nil)
	for {
		select {
		case <-next.peer.Done():
			return next.ended()
		case <-old.peer.Done():
			return nil
		case <-x.ctx.Done():
			return errStopping
		case first := <-reload:
			t.again = x.askers(first)
			return errAgain
		case <-t.news:
			if done, err := x.verdict(t); done {
				return err
			}
			quiet.Reset(proofQuiet)
		case <-quiet.C:
			proven, flying := x.progress(t, next.link)
			if flying {
				quiet.Reset(proofQuiet) // its call has a deadline
				continue
			}
			if _, err := next.link.health(x.ctx); err != nil || proven {
				return err
			}
			x.log.Info("plugin's new process has had nothing to deliver: it waits beside the old one, and takes over when it has delivered",
				"pid", next.peer.PID(), "old_pid", old.peer.PID())
			tellAskers(t.asked, nil)
			t.asked, reload = nil, x.reload
		}
	}
}

// verdict tells whether the trial is over, and how.
func (x *exporter) verdict(t *trial) (done bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return t.failed != nil || t.delivered+t.excused >= proofBatches, t.failed
}

// progress tells whether the new process has delivered anything, and whether it
// has batches without an answer.
func (x *exporter) progress(t *trial, l *link) (proven, flying bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return t.delivered+t.excused > 0, l.flying > 0
}

// retire ends a process that takes no batches any more, in the background: it
// answers its calls, shuts down, and ends. The channel is closed then. The
// host's end bounds it.
func (x *exporter) retire(l *life) <-chan struct{} {
	over := make(chan struct{})
	go func() { // run waits for it
		defer close(over)
		if l.sent != nil {
			x.awaitLanding(l.link)
		}
		crashed := l.gone()
		if l.sent != nil {
			l.finish()
		}
		if crashed {
			x.crashedAside()
			x.crashed(l.plan, l.about, l.peer.Report(), l.ended(), l.link.atCrash)
		} else {
			ctx, cancel := x.ending(retireTimeout)
			defer cancel()
			x.shutdownPlugin(ctx, l.link)
		}
		if err := l.end(); err != nil {
			x.log.Warn("the plugin's other process did not end", "error", err)
		}
	}()
	return over
}

// crashedAside counts a process that crashed while another one served: of no
// weight to the breaker.
func (x *exporter) crashedAside() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.countCrashLocked()
}

// awaitLanding blocks until the calls on a link have ended, or the host stops.
func (x *exporter) awaitLanding(l *link) {
	defer x.wakeAtEnd(x.ctx)()
	x.mu.Lock()
	defer x.mu.Unlock()
	for l.flying > 0 && x.ctx.Err() == nil {
		x.changed.Wait()
	}
}

// awaitRetired blocks until the other process has ended, if there is one.
func (x *exporter) awaitRetired() {
	if x.retiring != nil {
		<-x.retiring
	}
}

// askReload has run replace the plugin, or try it at once, and blocks until that
// is done, or ctx ends, or the host stops.
func (x *exporter) askReload(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case x.reload <- answer:
	case <-x.ended:
		return errStopping
	case <-ctx.Done():
		return fmt.Errorf("reload plugin %q: %w", x.entry.name, context.Cause(ctx))
	}
	select {
	case err := <-answer:
		return err
	case <-x.ended:
		return errStopping
	case <-ctx.Done():
		return fmt.Errorf("reload plugin %q: %w", x.entry.name, context.Cause(ctx))
	}
}

// askers are all who ask for a reload just now: one will do for all.
func (x *exporter) askers(first chan<- error) []chan<- error {
	all := []chan<- error{first}
	for {
		select {
		case another := <-x.reload:
			all = append(all, another)
		default:
			return all
		}
	}
}

// reloadError is what Reload says of a plugin that does not start.
func (x *exporter) reloadError(err error) error {
	if err == nil {
		return nil
	}
	return &PluginError{x.entry.name, "does not start", err}
}

// tellAskers tells those who asked. Their channels have room.
func tellAskers(asked []chan<- error, err error) {
	for _, c := range asked {
		c <- err
	}
}
