package host

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host/internal/failures"
	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/slowdisk"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// shared is what the plugins of one Host have in common.
type shared struct {
	cfg        *Config
	connect    connector
	crashFiles *crashFiles
	pipeline   *pipeline.Pipeline
}

// plugin supervises one entry of the list: it starts the plugin, serves it, and
// starts it again.
type plugin struct {
	shared *shared
	entry  pluginlist.Entry
	log    *slog.Logger
	queue  *pipeline.Queue
	status *pluginStatus
	files  *fileWatch
	output output

	// stop ends the plugin's life; run waits for it.
	ctx  context.Context
	stop context.CancelCauseFunc
	// endBy bounds the end of the process. It is written before stop is called and
	// read after.
	endBy  context.Context
	reload *reloads
	// retiring is closed when the process that was replaced has ended; nil: there is
	// none. Of run alone.
	retiring <-chan struct{}
	// sending send batches: one, and two during a replacement.
	sending lives
}

func newPlugin(s *shared, e pluginlist.Entry, log *slog.Logger) *plugin {
	log = log.With("plugin", e.Name)
	failures := failures.New(log)
	x := &plugin{
		shared: s,
		entry:  e,
		log:    log,
		queue:  pipeline.NewQueue(s.pipeline, failures),
		files:  &fileWatch{cfg: s.cfg, entry: e, disk: slowdisk.New()},
		endBy:  context.Background(),
		reload: &reloads{name: e.Name, asked: make(chan chan<- error), ended: make(chan struct{})},
	}
	x.status = &pluginStatus{failures: failures, queue: x.queue, attached: e.Attached}
	x.ctx, x.stop = context.WithCancelCause(context.Background())
	return x
}

// run is the plugin's life: start, serve, and again. It ends when stop was called and
// the plugin has ended, or endBy has.
func (x *plugin) run() {
	defer close(x.reload.ended)
	defer x.status.set(StateStopped, "")
	defer x.awaitRetired()
	asked, on := x.jitter() // asked wait for this start, by Reload
	for failures := 0; on; failures++ {
		a := newAttempt(x)
		x.status.set(StateStarting, "")
		seen, _ := x.files.look(x.ctx) // a silent disk has no files, until it answers
		l, err := begin(x.ctx, x, a)
		answerAll(asked, reloadError(x.entry.Name, err))
		if err == nil {
			x.queue.SetHopeless(false)
			l, err = x.serve(l)
			a = l.a
		}
		if x.ctx.Err() != nil {
			a.end(!x.knows(StateStopped, err))
			if err != nil {
				x.status.failures.SetLast(time.Now(), err.Error())
			}
			return
		}
		steady := l != nil && l.wasSteady()
		if steady {
			failures = 0
			l.steady() // the pulse may not have come to it
		}
		if steady && x.entry.Attached {
			// A server may send its clients away to spread its load, or be replaced. If
			// it is gone, the next attempt logs it.
			x.log.Info("connection to the plugin is dialled again", "cause", err)
			asked, failures = nil, -1
			continue
		}
		asked, on = x.rest(x.failed(l, a, err), failures, seen)
		if asked != nil {
			failures = -1
		}
	}
}

// failed books the end of a life, or a failed start (l is nil), and returns the state.
func (x *plugin) failed(l *life, a *attempt, err error) State {
	state := x.stateAfter(l, err)
	known := x.knows(state, err)
	x.status.set(state, err.Error())
	a.end(!known)
	x.queue.SetHopeless(needsMending(state, err))
	if l != nil && !l.wasSteady() {
		x.status.tell(func(t *told) { t.unsteady = true })
	}
	return state
}

// stateAfter returns the state that follows from an error, and counts a crash. An end
// that is not the fault of the plugin's code does not count for the breaker.
func (x *plugin) stateAfter(l *life, err error) State {
	state := stateAfter(err)
	var c *crash
	if !errors.As(err, &c) {
		return state
	}
	itsFault := !c.byOthers && (l == nil || !l.sender.verdict.Blameless)
	if x.status.crashed(itsFault) && !x.entry.Attached && state == StateBackingOff {
		return StateBroken
	}
	return state
}

// knows reports whether the log has the cause by which an attempt ends, and so the
// plugin's output about it.
func (x *plugin) knows(to State, cause error) (known bool) {
	x.status.tell(func(t *told) { known = cause != nil && t.knows(to, cause.Error()) })
	return known
}

// jitter waits before the first start, so that many hosts do not start all their
// plugins at once, unless Reload asks for it; false: the host stops.
func (x *plugin) jitter() (asked []chan<- error, on bool) {
	most := x.shared.cfg.StartJitter
	if most <= 0 || x.entry.Attached {
		return nil, true
	}
	timer := time.NewTimer(rand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, true
	case first := <-x.reload.asked:
		return x.reload.all(first), true
	case <-x.ctx.Done():
		return nil, false
	}
}

// restartFirst is the first pause before a start. The longest is manner.mostPause.
const restartFirst = 200 * time.Millisecond

// lookEvery is the interval at which the file of an unusable plugin is looked at.
const lookEvery = 5 * time.Second

// rest waits until the plugin is to be tried again; false: the host stops. asked wait
// for the start, by Reload. seen are the files before the last try: a change during
// the try counts too.
func (x *plugin) rest(state State, failures int, seen files) (asked []chan<- error, on bool) {
	wait := pipeline.Backoff{First: restartFirst, Most: x.shared.cfg.inTime(mannerOf(x.entry).mostPause)}.Pause(failures)
	look := (<-chan time.Time)(nil)
	switch {
	case state == StateBroken:
		wait = x.shared.cfg.inTime(brokenPause)
	case (state == StateIncompatible || state == StateUntrusted) && !x.entry.Attached:
		wait = 1<<63 - 1
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil, true
		case <-look:
			if now, err := x.files.look(x.ctx); err == nil && now != seen {
				return nil, true
			}
		case first := <-x.reload.asked:
			x.status.forget()
			return x.reload.all(first), true
		case <-x.ctx.Done():
			return nil, false
		}
	}
}

// serve sends batches until the process or the connection ends, or the host stops. It
// returns the last life, because a Reload may have replaced the first, and its end.
func (x *plugin) serve(l *life) (*life, error) {
	if x.ready(l) {
		x.log.Warn("the executable has changed since the plugin was started last: the new one runs now",
			"path", l.plan.path, "pid", l.peer.PID())
	}
	l.send()
	for {
		reload := x.reload.asked
		if x.retiring != nil { // a third process must wait until the first has ended
			reload = nil
		}
		select {
		case <-l.peer.Done():
			l.finish()
			err := l.ended()
			l.reportCrash(l.peer.Report(), err)
			return l, errors.Join(err, l.end())
		case <-x.ctx.Done():
			l.finish()
			l.shutdown(x.endBy)
			return l, l.end()
		case <-x.retiring:
			x.retiring = nil
		case asked := <-reload:
			l = x.replace(l, x.reload.all(asked))
		}
	}
}

// ready books a plugin that has become ready, and logs it in one line. It reports
// whether its executable is another than at the start before.
func (x *plugin) ready(l *life) (changed bool) {
	about := facts{
		path: l.plan.path, version: wire.Clip(l.about.about.GetVersion()), sdk: sdkText(l.about.about),
		pid: l.peer.PID(), granted: slices.Sorted(maps.Keys(l.about.granted)),
	}
	if withheld := l.about.withheld; len(withheld) > 0 {
		x.log.Warn("lock-down keeps variables from the plugin that it declares; name them for it in "+EnvPluginEnv+" if it needs them", "variables", withheld)
	}
	unsteady := false
	x.status.tell(func(t *told) { unsteady = t.unsteady })
	if !unsteady {
		l.a.end(true) // before the line that it is ready
	}
	process := []any{"path", about.path}
	if l.plan.attached {
		process = append(process, "attached", true)
	} else {
		process = append(process, "pid", about.pid)
	}
	changed = x.files.started(l.plan.path, l.files)
	x.status.ready(about, append(process, "describes_itself_as", wire.Clip(l.about.about.GetName()),
		"version", about.version, "sdk", about.sdk, "variables", about.granted)...)
	return changed
}

// sdkText returns the name and version of the library behind a plugin.
func sdkText(about *pluginv1.DescribeResponse) string {
	return wire.Clip(strings.TrimSpace(about.GetSdk().GetName() + " " + about.GetSdk().GetVersion()))
}

// ending returns a context that bounds the end of one process: by a duration, and by
// the rest of the host's time if the host shuts down, now or meanwhile.
func (x *plugin) ending(most time.Duration) (context.Context, context.CancelFunc) {
	if x.ctx.Err() != nil { // only then may endBy be read
		return context.WithCancel(x.endBy)
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	stop := context.AfterFunc(x.ctx, func() {
		context.AfterFunc(x.endBy, cancel)
	})
	return ctx, func() { stop(); cancel() }
}

// flush blocks until all batches sealed up to seq are settled, and then has the plugin
// deliver its spans. A process that is being replaced is asked too.
func (x *plugin) flush(ctx context.Context, seq uint64) error {
	if err := x.waitSettled(ctx, seq); err != nil {
		return err
	}
	return x.flushProcesses(ctx)
}

func (x *plugin) flushProcesses(ctx context.Context) error {
	var errs []error
	for _, l := range x.sending.all() {
		if !l.gone() { // else it holds nothing
			errs = append(errs, l.flush(ctx))
		}
	}
	return errors.Join(errs...)
}

func (x *plugin) waitSettled(ctx context.Context, seq uint64) error {
	left, cause := x.queue.WaitSettled(ctx, seq)
	if cause == nil {
		return nil
	}
	var s ExporterStats
	x.status.stats(&s)
	return fmt.Errorf("plugin %q: %d spans not delivered (state %v): %w", x.entry.Name, left, s.State, cause)
}

// shutdown sends the batches sealed up to seq until flush ends, then stops the plugin,
// which may take until end.
func (x *plugin) shutdown(flush, end context.Context, seq uint64) error {
	x.status.set(StateDraining, "")
	err := x.waitSettled(flush, seq)
	x.endBy = end
	x.stop(errors.New("the host shuts down"))
	return err
}

// stats adds the plugin's half of the statistics to the queue's.
func (x *plugin) stats(s *ExporterStats) {
	s.Name, s.Attached = x.entry.Name, x.entry.Attached
	s.Digest = hex.EncodeToString([]byte(x.entry.Digest))
	s.Unkept = x.shared.crashFiles.unkept(x.entry.Name)
	s.OutputSuppressed, s.OutputDropped = x.output.stats()
	x.status.stats(s)
}
