package supervise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/servetrace/servetrace/host/internal/slowdisk"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// life is one process from launch to end, or one connection to an attached plugin.
type life struct {
	x        *Plugin
	startLog *startLog // logs the plugin's output, and its remarks on its configuration
	plan     Plan
	files    files // the plugin's files when plan was made
	// described is the plugin's description, which begin asks for.
	described Description
	// peer and sender are nil until the connection is there.
	peer   Peer
	sender *sender
	// readySince is the time at which begin succeeded. Zero if it has not.
	readySince time.Time
	// stop ends the sending, and sent is closed after the last call. Nil before
	// startSending.
	stop context.CancelFunc
	sent chan struct{}
}

// newLife returns a life that has not begun.
func newLife(x *Plugin) *life { return &life{x: x, startLog: newStartLog(x)} }

// begin starts the plugin or attaches to it, asks for its description and configures it.
// If it returns an error, the process has ended.
func (l *life) begin(ctx context.Context) error {
	start, cancel := l.x.sup.cfg.startContext(ctx)
	defer cancel()
	err := l.makePlan(start)
	if err != nil {
		return err
	}
	if l.peer, l.described, err = l.x.open(start, &l.plan, l.startLog.log, true); l.peer == nil {
		return l.notConnected(err)
	}
	l.sender = newSender(l.x, l.peer)
	l.sender.redactor, l.sender.limits = l.plan.Redactor, l.described.Limits
	l.sender.plain = l.described.About == nil
	if err != nil {
		if l.gone() {
			err = &crash{err: err, blameless: !mayBeToBlame(l.peer.Report())}
			l.reportCrash(l.peer.Report(), err)
		}
		l.startLog.hold()
		return errors.Join(err, l.end())
	}
	l.readySince = time.Now()
	return nil
}

// makePlan reads the settings and files for this start. It notes the identities of the
// files before it reads them, so that a later look finds a change in between.
func (l *life) makePlan(start context.Context) error {
	type found struct {
		files files
		plan  Plan
		err   error
	}
	x := l.x
	f, err := slowdisk.Look(start, x.files.disk, func() (f found, _ error) {
		f.files = x.files.lookAt()
		f.plan, f.err = x.sup.cfg.plan(x.Entry)
		if f.err == nil && !f.plan.Attached {
			slowdisk.Touch(f.plan.Path)
		}
		return f, nil
	})
	if err != nil {
		return x.sup.cfg.startError(start, fmt.Errorf("check the plugin's files: %w", err))
	}
	l.files, l.plan = f.files, f.plan
	return f.err
}

// notConnected returns the error of begin if there is no connection. If the program is no
// plugin, or did not answer in time, the error is a crash, which notConnected reports.
func (l *life) notConnected(err error) error {
	failed, ok := errors.AsType[*launch.Error](err)
	if !ok || failed.Reason != launch.ReasonNotPlugin && failed.Reason != launch.ReasonTimeout {
		return err
	}
	c := &crash{err: err}
	if failed.Report != nil {
		c.blameless = !mayBeToBlame(*failed.Report)
		l.x.lost.add(failed.Report.Suppressed, 0)
		l.reportCrash(*failed.Report, c)
	}
	return c
}

// gone reports whether the process or the connection has ended.
func (l *life) gone() bool { return l.sender.gone() }

// endError returns the error for a process that has ended, or for a lost connection.
func (l *life) endError() error {
	return &crash{
		err:       fmt.Errorf("%s: %s", policyOf(l.x.Entry).ended, l.peer.Exit()),
		blameless: endedByOthers(l.peer.Report()),
	}
}

// startSending begins to send batches, in the background, until endSending is called or
// the process has ended.
func (l *life) startSending() {
	ctx, cancel := context.WithCancel(l.x.ctx)
	l.stop, l.sent = cancel, make(chan struct{})
	l.x.sending.add(l)
	l.sender.lane.Open(l.described.Limits)
	go func() { // this goroutine ends with the last call, and endSending waits for it
		defer close(l.sent)
		watched, stop := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { l.pulse(watched) })
		watching.Go(func() { l.x.files.watch(watched, l.files, func() { l.renew(watched) }) })
		l.sender.run(ctx)
		stop()
		watching.Wait()
	}()
}

// pulse does the periodic work for a plugin that is ready: it records that the plugin
// is steady, looks for a changed executable, and checks the health of an idle plugin.
// The first time is after policy.steadyAfter, then every heartbeatEvery, until ctx
// ends.
func (l *life) pulse(ctx context.Context) {
	timer := time.NewTimer(policyOf(l.x.Entry).steadyAfter)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		l.recordSteady()
		l.checkExecutable(ctx)
		if l.sender.probe.quiet() {
			l.sender.checkHealth(ctx, 1)
		}
		timer.Reset(heartbeatEvery)
	}
}

// recordSteady records that the plugin has been ready for policy.steadyAfter, so that
// earlier failures no longer count.
func (l *life) recordSteady() {
	l.startLog.writeHeld()
	l.x.status.steady()
}

// wasReady reports whether begin succeeded.
func (l *life) wasReady() bool { return !l.readySince.IsZero() }

// wasSteady reports whether a life that has ended was ready for at least
// policy.steadyAfter. If so, the backoff starts anew, or an attached plugin is dialled
// again at once.
func (l *life) wasSteady() bool {
	return l.wasReady() && l.sender.peerEnded.Sub(l.readySince) >= policyOf(l.x.Entry).steadyAfter
}

// checkExecutable compares the file of the executable with the executable that runs,
// and sets in the status whether they differ. It logs the first difference.
func (l *life) checkExecutable(ctx context.Context) {
	now, err := l.x.files.look(ctx)
	if err != nil || len(l.x.sending.all()) > 1 { // during a replacement, the files belong to the other process
		return
	}
	if l.x.status.setChanged(l.peer.PID(), now.executable != l.files.executable) {
		l.x.log.Warn("the executable has changed since the plugin was started: the old one still runs; SIGHUP replaces it",
			"path", l.plan.Path, "pid", l.peer.PID())
	}
}

// renew replaces the plugin because its files have changed.
func (l *life) renew(ctx context.Context) {
	l.x.log.Info("the plugin's executable or configuration has changed: it is replaced")
	_ = l.x.reloading.ask(ctx) // the log has the result
}

// endSending ends the sending and waits for the last call. Batches without an answer go
// back to the queue. If the peer has ended, endSending first waits until its last answers
// are read.
func (l *life) endSending() {
	if !l.gone() {
		l.stop()
	}
	<-l.sent
	l.stop()
	l.x.sending.remove(l)
}

// end ends the process, or closes the connection. Then it closes the lane, so that
// buffers that gRPC still holds no longer count against the memory bound.
func (l *life) end() error {
	defer l.sender.lane.Close() // deferred, because HangUp must have closed the connection before
	return l.x.HangUp(l.peer, EndTimeout)
}

// shutdown calls the plugin's Shutdown, in which the plugin delivers its spans and
// releases its resources, until ctx ends. Other hosts may use an attached plugin, so it
// is only flushed. A plain OTLP receiver has no Shutdown.
func (l *life) shutdown(ctx context.Context) {
	if l.sender.plain {
		return
	}
	log := l.x.log
	if l.x.Entry.Attached {
		if err := l.flush(ctx); err != nil {
			log.Warn("plugin did not flush at the end", "error", err)
		}
		return
	}
	reply, err := pluginv1.NewLifecycleClient(l.sender.conn).Shutdown(ctx, &pluginv1.ShutdownRequest{Timeout: TimeLeft(ctx)})
	switch {
	case err != nil:
		log.Warn("plugin did not shut down cleanly", "error", wire.FromStatus(err))
	case reply.GetSpansLeft() > 0:
		log.Warn("plugin ended with spans that it had not delivered", "spans", reply.GetSpansLeft())
	}
}

// flush blocks until the plugin has delivered its spans, or ctx ends. ctx may have no
// deadline, so a plugin that meanwhile does not answer a health check is killed. A plain
// OTLP receiver has no Flush.
func (l *life) flush(ctx context.Context) error {
	if l.sender.plain {
		return nil
	}
	var watch sync.WaitGroup
	watching, stop := context.WithCancel(ctx)
	watch.Go(func() { // ends with the call
		for {
			select {
			case <-time.After(l.x.sup.cfg.ExportTimeout):
				l.sender.checkHealth(watching, mostMisses)
			case <-watching.Done():
				return
			}
		}
	})
	reply, err := pluginv1.NewLifecycleClient(l.sender.conn).Flush(ctx, &pluginv1.FlushRequest{Timeout: TimeLeft(ctx)})
	stop()
	watch.Wait()
	if err != nil {
		return fmt.Errorf("flush plugin %q: %w", l.x.Entry.Name, wire.FromStatus(err))
	}
	if left := reply.GetSpansLeft(); left > 0 {
		return fmt.Errorf("flush plugin %q: %d spans not delivered", l.x.Entry.Name, left)
	}
	return nil
}

// TimeLeft returns the time until the deadline of ctx, or nil if ctx has no deadline.
func TimeLeft(ctx context.Context) *durationpb.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	return durationpb.New(time.Until(deadline))
}
