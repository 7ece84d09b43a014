package supervise

import (
	"errors"
	"sync"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"
)

// A plugin is replaced without a loss. The new process starts beside the old process,
// which continues to send. When the new process is described, configured and healthy, it
// is on probation: it alone takes batches, one at a time. If it fails, its batches go back
// to the queue, and the old process takes batches again. Otherwise the old process answers
// its last calls, shuts down and ends.
//
// While there is nothing to deliver, the new process stays on probation. Reload does not
// wait for that, and a further Reload replaces the new process.
const (
	// proofBatches is the number of delivered batches that ends a probation. One batch is
	// enough if no other batch follows within proofQuiet, and the plugin is healthy.
	proofBatches = 3
	proofQuiet   = 5 * time.Second
	// retireTimeout bounds the shutdown of a replaced process, after its last call.
	retireTimeout = 5 * time.Second
)

// upgrade is one replacement of a process. Only the goroutine of Plugin.Run uses it.
type upgrade struct {
	x         *Plugin
	old, next *life // next is nil if the new process did not start
	trial     *trial
	// asked are the calls of Reload that wait for the result of this replacement. again
	// are the calls that have come since the new process runs: they ask for another
	// process.
	asked, again []chan<- error
}

// replace tries to replace the process of l by a new process. If Reload is called
// during the probation of the new process, it tries again with another process. It
// returns the process that continues, ends the other process in the background, and
// answers all calls of Reload.
func (x *Plugin) replace(l *life, asked []chan<- error) *life {
	for asked != nil {
		u := &upgrade{x: x, old: l, asked: asked}
		taken, err := u.run()
		leaving := u.next
		if taken {
			l, leaving = u.next, u.old
		}
		if leaving != nil {
			x.retiring = x.retire(leaving)
		}
		answerAll(u.asked, err)
		if asked = u.again; asked != nil { // at most two processes may run at once
			if x.retiring != nil {
				<-x.retiring
			}
			x.retiring = nil
		}
	}
	return l
}

// run starts the new process, and reports whether it replaces the old process (taken).
// If not, the error is the reason.
func (u *upgrade) run() (taken bool, err error) {
	x := u.x
	if x.Entry.Attached {
		return false, nil
	}
	x.log.Info("plugin is being replaced: a new process starts beside the old one", "pid", u.old.peer.PID())
	l := newLife(x)
	if err = u.begin(l); err == nil {
		u.next = l
		if err = u.prove(); err == nil {
			x.log.Info("plugin is replaced: the old process answers its calls and ends", "pid", u.next.peer.PID(), "old_pid", u.old.peer.PID())
			x.setReady(u.next)
			return true, nil
		}
	}
	defer l.startLog.writeHeld() // the held lines follow the cause
	switch {
	case x.ctx.Err() != nil:
		return false, errStopping
	case u.again != nil:
		return false, nil // the next process decides about the result of Reload
	}
	if _, crashed := errors.AsType[*crash](err); crashed && u.next == nil { // retire counts the crash of a process on probation
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

// begin starts the new process. If the old process ends meanwhile, the plugin is in the
// state starting until the new process is ready.
func (u *upgrade) begin(l *life) error {
	begun := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { // this goroutine ends when begin returns
		select {
		case <-u.old.peer.Done():
			u.x.status.set(StateStarting, u.old.endError().Error())
		case <-begun:
		}
	})
	err := l.begin(u.x.ctx)
	close(begun)
	watch.Wait()
	return err
}

// errStopping is the answer to Reload when the host shuts down. errAgain ends a probation
// because Reload was called again.
var (
	errStopping = errors.New("the host shuts down")
	errAgain    = errors.New("another process is asked for")
)

// prove puts the new process on probation, and waits for the result. If it returns nil,
// only the new process takes batches from now on. If it returns an error, only the old
// process does.
func (u *upgrade) prove() error {
	if _, err := u.next.sender.callHealth(u.x.ctx); err != nil {
		return err
	}
	u.trial = &trial{lenient: u.x.status.now() == StateDegraded, news: make(chan struct{}, 1)}
	u.next.sender.trial = u.trial
	u.next.sender.lane.SetMode(pipeline.TakesOne)
	u.old.sender.lane.SetMode(pipeline.TakesNone)
	u.next.startSending()
	err := u.await()
	failed := u.trial.end()
	if err == nil && !u.old.gone() {
		err = failed // the error of a call that failed after await had returned
	}
	if err != nil {
		u.next.sender.lane.SetMode(pipeline.TakesNone)
		u.old.sender.lane.SetMode(pipeline.TakesMany)
		u.next.stop() // its batches go back to the queue
		return err
	}
	u.next.sender.lane.SetMode(pipeline.TakesMany)
	return nil // the old process has taken no batches since the probation began
}

// await blocks until the end of the probation, and returns nil if the new process
// passed. The new process also passes if the old process has ended.
func (u *upgrade) await() error {
	quiet := time.NewTimer(proofQuiet)
	defer quiet.Stop()
	reload := (<-chan chan<- error)(nil)
	for {
		select {
		case <-u.next.peer.Done():
			return u.next.endError()
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
				quiet.Reset(proofQuiet) // the call in progress ends by its own deadline
				continue
			}
			passed, _ := u.trial.state()
			if _, err := u.next.sender.callHealth(u.x.ctx); err != nil || passed > 0 {
				return err
			}
			u.x.log.Info("plugin's new process has had nothing to deliver: it waits beside the old one, and takes over when it has delivered",
				"pid", u.next.peer.PID(), "old_pid", u.old.peer.PID())
			answerAll(u.asked, nil)
			u.asked, reload = nil, u.x.reloading.asked
		}
	}
}

// retire ends a process that takes no more batches, in the background: the process
// answers its calls, shuts down and ends. The returned channel is closed then. The
// shutdown takes at most retireTimeout, or less if the host ends.
func (x *Plugin) retire(l *life) <-chan struct{} {
	over := make(chan struct{})
	go func() { // Plugin.Run waits for it
		defer close(over)
		if l.sent != nil {
			l.sender.lane.AwaitIdle(x.ctx)
		}
		crashed := l.gone()
		if l.sent != nil {
			l.endSending()
		}
		if crashed {
			x.status.crashed(false) // does not count for the breaker, because another process works
			l.reportCrash(l.peer.Report(), l.endError())
		} else {
			ctx, cancel := x.endContext(retireTimeout)
			defer cancel()
			l.shutdown(ctx)
		}
		if err := l.end(); err != nil {
			x.log.Warn("the plugin's other process did not end", "error", err)
		}
	}()
	return over
}
