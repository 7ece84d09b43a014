package supervise

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/servetrace/servetrace/host/internal/failures"
	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/slowdisk"
	"github.com/servetrace/servetrace/internal/wire"
)

// Plugin starts and restarts the plugin of one entry of the list, and sends it batches.
// Its methods are safe for concurrent use, except Run, which is called once.
type Plugin struct {
	sup    *Supervisor
	Entry  pluginlist.Entry
	log    *slog.Logger
	Queue  *pipeline.Queue
	status *pluginStatus
	files  *fileWatch // the executable and the configuration file
	lost   lostLines

	// ctx ends when stop is called. Then the process shuts down, and Run returns.
	ctx  context.Context
	stop context.CancelCauseFunc
	// draining ends when Shutdown begins while batches wait for the plugin. Then a
	// plugin in a pause is started at once, and further pauses are short.
	draining context.Context
	drain    context.CancelFunc
	// endBy ends when the process must have ended. It is set before stop is called, and
	// must not be read before ctx has ended.
	endBy context.Context
	// reloading has the requests of Reload. Run closes its channel ended, for which Cede and
	// Leave wait.
	reloading *reloads
	// retiring is closed when the process that the last replacement has given up has
	// ended. That is the old process, or a new process that failed. Nil if no such
	// process process. Only Run uses it.
	retiring <-chan struct{}
	// sending has the lives (processes or connections) that get batches: two during a
	// replacement, else at most one.
	sending guardedList[*life]
}

// Plugin returns a plugin that does not run yet. The caller must add its queue to the
// pipeline.
func (s *Supervisor) Plugin(e pluginlist.Entry) *Plugin {
	log := s.log.With("plugin", e.Name)
	failures := failures.New(log)
	if e.Processor {
		return s.plugin(e, log, failures, pipeline.NewProcessor(s.pipeline, e.Name, failures, s.cfg.patience(e)))
	}
	return s.plugin(e, log, failures, pipeline.NewQueue(s.pipeline, e.Name, failures))
}

// Successor returns a plugin that takes over the queue of before, a plugin of the same
// name. The caller must not call its Run until before has ended.
func (s *Supervisor) Successor(e pluginlist.Entry, before *Plugin) *Plugin {
	return s.plugin(e, before.log, before.status.failures, before.Queue)
}

func (s *Supervisor) plugin(e pluginlist.Entry, log *slog.Logger, failures *failures.Log, queue *pipeline.Queue) *Plugin {
	x := &Plugin{
		sup:       s,
		Entry:     e,
		log:       log,
		Queue:     queue,
		files:     &fileWatch{cfg: &s.cfg, entry: e, disk: slowdisk.New()},
		endBy:     context.Background(),
		reloading: &reloads{name: e.Name, asked: make(chan chan<- error), ended: make(chan struct{})},
	}
	x.status = &pluginStatus{failures: failures, queue: x.Queue, attached: e.Attached}
	x.ctx, x.stop = context.WithCancelCause(context.Background())
	x.draining, x.drain = context.WithCancel(x.ctx)
	return x
}

// Run starts the plugin, sends batches to it, and starts it again after its end, until
// Shutdown. It returns when the process has ended.
func (x *Plugin) Run() {
	defer close(x.reloading.ended)
	defer x.status.set(StateStopped, "")
	defer func() {
		if x.retiring != nil {
			<-x.retiring
		}
	}()
	s := starts{x: x}
	for due := s.awaitFirst(); due; {
		l, err := s.runLife()
		if x.ctx.Err() != nil { // Run must return, because the host shuts down
			l.startLog.writeHeld()
			if err != nil {
				x.status.failures.SetLast(time.Now(), err.Error())
			}
			return
		}
		due = s.awaitNext(l, err)
	}
}

// serve sends batches until the process or the connection ends, or the host shuts down.
// A Reload may replace the process of l by another process. serve returns the last
// process, and the reason for its end.
func (x *Plugin) serve(l *life) (*life, error) {
	if changed := x.setReady(l); changed {
		x.log.Warn("the executable has changed since the plugin was started last: the new one runs now",
			"path", l.plan.Path, "pid", l.peer.PID())
	}
	l.startSending()
	for {
		reload := x.reloading.asked
		if x.retiring != nil { // the process before l still runs, and at most two may run
			reload = nil
		}
		select {
		case <-l.peer.Done():
			l.endSending()
			err := l.endError()
			l.reportCrash(l.peer.Report(), err)
			return l, errors.Join(err, l.end())
		case <-x.ctx.Done():
			l.endSending()
			l.shutdown(x.endBy)
			return l, l.end()
		case <-x.retiring:
			x.retiring = nil
		case asked := <-reload:
			l = x.replace(l, x.reloading.all(asked))
		}
	}
}

// setReady sets the state of a plugin that has become ready, and logs it in one line. It
// reports whether the executable differs from the executable of the previous start.
func (x *Plugin) setReady(l *life) (changed bool) {
	about := l.described.About
	process := facts{
		path: l.plan.Path, version: wire.Clip(about.GetVersion()), sdk: SdkText(about),
		pid: l.peer.PID(), granted: slices.Sorted(maps.Keys(l.described.Granted)),
	}
	if withheld := l.described.Withheld; len(withheld) > 0 {
		x.log.Warn("lock-down keeps variables from the plugin that it declares; name them for it in "+pluginlist.EnvPluginEnv+" if it needs them", "variables", withheld)
	}
	unsteady := false
	x.status.withLogMemory(func(m *logMemory) { unsteady = m.unsteady })
	if !unsteady {
		l.startLog.writeHeld() // before "plugin is ready"
	}
	args := []any{"path", process.path}
	if l.plan.Function != "" {
		args = append(args, "function", l.plan.Function)
	}
	if l.plan.Attached {
		args = append(args, "attached", true)
	} else {
		args = append(args, "pid", process.pid)
	}
	changed = x.files.noteStart(l.plan.Path, l.files)
	x.status.ready(process, append(args, "describes_itself_as", wire.Clip(about.GetName()),
		"version", process.version, "sdk", process.sdk, "variables", process.granted)...)
	return changed
}

// Flush blocks until all batches that were sealed up to the sequence number seq are
// settled. Then it asks the plugin to deliver its spans, and waits for that. During a
// replacement, it asks both processes.
func (x *Plugin) Flush(ctx context.Context, seq uint64) error {
	if err := waitSettled(ctx, x, seq); err != nil {
		return err
	}
	var errs []error
	for _, l := range x.sending.all() {
		if !l.gone() { // a process that has ended has no spans to flush
			errs = append(errs, l.flush(ctx))
		}
	}
	return errors.Join(errs...)
}

func waitSettled(ctx context.Context, x *Plugin, seq uint64) error {
	left, cause := x.Queue.WaitSettled(ctx, seq)
	switch {
	case cause == nil:
		return nil
	case left == 0:
		return fmt.Errorf("plugin %q: the processors before it have not passed on all spans: %w", x.Entry.Name, cause)
	}
	return fmt.Errorf("plugin %q: %d spans not delivered (state %v): %w", x.Entry.Name, left, x.status.now(), cause)
}

// Shutdown sends the batches sealed up to seq, until flush ends. If batches wait and the
// plugin is in a pause before a start, it is started at once. Then Shutdown makes Run
// end the plugin; the context end bounds that. It does not wait for Run.
//
// A processor that fails open has half of the time until flush ends. Then its batches go on
// without it, so that the exporters have the other half.
func (x *Plugin) Shutdown(flush, end context.Context, seq uint64) error {
	x.status.set(StateDraining, "")
	if flush.Err() == nil && x.Queue.Awaits(seq) {
		x.Queue.SetHopeless(false) // one more start is tried, because the operator may have removed the cause
		x.drain()
	}
	err := error(nil)
	if deadline, ok := flush.Deadline(); ok && x.sup.cfg.patience(x.Entry) > 0 {
		half, cancel := context.WithTimeout(flush, time.Until(deadline)/2)
		_ = waitSettled(half, x, seq) // an error is not needed, because the queues of the exporters report the remaining spans
		cancel()
		x.Queue.DropRest()
	} else {
		err = waitSettled(flush, x, seq)
	}
	x.endBy = end
	x.stop(errors.New("the host shuts down"))
	return err
}

// Cede ends the plugin at once, and leaves its batches to the Successor. It blocks until
// the plugin has ended; the context end bounds that.
func (x *Plugin) Cede(end context.Context) {
	x.status.set(StateDraining, "")
	x.endBy = end
	x.stop(errors.New("another executable takes over"))
	<-x.reloading.ended
	x.Queue.Reopen()
}

// Leave is Shutdown for a plugin that has left the list. It blocks until the plugin has
// ended, and drops its remaining batches.
func (x *Plugin) Leave(flush, end context.Context, seq uint64) error {
	x.log.Info("plugin has left the list: it sends its remaining spans and ends")
	err := x.Shutdown(flush, end, seq)
	<-x.reloading.ended
	x.Queue.DropRest()
	return err
}

// Inherit adds the statistics of before, a plugin of the same name that has ended, to
// this plugin.
func (x *Plugin) Inherit(before *Plugin) {
	x.status.inherit(before.status)
	x.lost.add(before.lost.stats())
}

// Reload replaces the process of the plugin, or starts it at once. It blocks until that
// is done, ctx ends, or the host shuts down. It does not wait for a new process that has
// nothing to deliver.
func (x *Plugin) Reload(ctx context.Context) error { return x.reloading.ask(ctx) }

// Status returns the plugin's status.
func (x *Plugin) Status() Status {
	s := x.status.stats()
	s.Name, s.Attached, s.Function = x.Entry.Name, x.Entry.Attached, x.Entry.Function
	s.Digest = hex.EncodeToString([]byte(x.Entry.Digest))
	s.Unkept = x.sup.crashFiles.unkept(x.Entry.Name)
	s.OutputSuppressed, s.OutputDropped = x.lost.stats()
	return s
}
