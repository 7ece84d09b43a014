package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/stdio"
	"github.com/servetrace/servetrace/internal/wire"
)

// restartFirst is the first pause between two starts of a plugin, or two
// attempts to attach to one; each further one is twice as long, up to
// manner.mostPause.
const restartFirst = 200 * time.Millisecond

// run is the plugin's life: start, serve, and again. It ends when x.stop was
// called and the plugin has ended, or x.endBy has.
func (x *exporter) run() {
	defer close(x.ended)
	defer x.setState(StateStopped, "")
	defer x.awaitRetired()
	asked, on := x.jitter() // asked are those who wait for this start, by Reload
	if !on {
		return
	}
	pause := restartFirst
	for {
		a := x.newAttempt()
		x.setState(StateStarting, "")
		seen, _ := x.look(x.ctx) // a silent disk has no files, until it answers
		l, err := x.begin(x.ctx, a)
		tellAskers(asked, x.reloadError(err))
		if err == nil {
			x.compare(l)
			x.setUnusable(false)
			l, err = x.serve(l)
			a = l.a
		}
		if x.ctx.Err() != nil {
			a.end(!x.told(StateStopped, err))
			x.endedWith(err)
			return
		}
		steady := l != nil && l.steady()
		if steady {
			pause = restartFirst
			x.steady(l) // as pulse says, but it may not have come to that
		}
		if steady && x.entry.attached {
			// A server may send its clients away to spread its load, or be
			// replaced by the next. If it is gone, the next attempt says so.
			x.log.Info("connection to the plugin is dialled again", "cause", err)
			asked = nil
			continue
		}
		state := x.after(l, err)
		told := x.told(state, err)
		x.setState(state, err.Error())
		a.end(!told)
		x.setUnusable(needsMending(state, err))
		x.setUnsteady(l != nil && !steady)
		if asked, on = x.rest(state, pause, seen); !on {
			return
		}
		if pause = min(x.host.cfg.inTime(x.entry.manner().mostPause), pause*2); asked != nil {
			pause = restartFirst
		}
	}
}

// jitter waits before the first start, so that many hosts do not start all
// their plugins at once, unless somebody asks for it; false: the host stops.
func (x *exporter) jitter() (asked []chan<- error, on bool) {
	most := x.host.cfg.StartJitter
	if most <= 0 || x.entry.attached {
		return nil, true
	}
	timer := time.NewTimer(rand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, true
	case first := <-x.reload:
		return x.askers(first), true
	case <-x.ctx.Done():
		return nil, false
	}
}

// after is the state that a plugin comes into by the error of its start, where
// there is no life, or of its end. A crash is counted; an end that is not the
// fault of the plugin's code does not count for the breaker.
func (x *exporter) after(l *life, err error) State {
	state := stateAfter(err)
	var c *crash
	if !errors.As(err, &c) {
		return state
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.countCrashLocked()
	open := x.breaker.open
	if !c.byOthers && (l == nil || !l.link.blameless) {
		open = x.breaker.crashed(time.Now())
	}
	if open && !x.entry.attached && state == StateBackingOff {
		return StateBroken
	}
	return state
}

func (x *exporter) countCrashLocked() {
	x.plugin.crashes++
	x.plugin.lastCrash = time.Now()
}

// compare tells loudly that a start has taken up another executable, of which
// nobody told this host.
func (x *exporter) compare(l *life) {
	if x.ran != (files{}) && x.ran.executable != l.files.executable {
		x.log.Warn("the executable has changed since the plugin was started last: the new one runs now",
			"path", l.plan.path, "pid", l.peer.PID())
	}
}

// unsteady tells whether a process became ready and did not stay so.
func (x *exporter) unsteady() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.plugin.unsteady
}

// setUnsteady has the log hear less of a plugin that becomes ready and ends, and
// becomes ready again.
func (x *exporter) setUnsteady(unsteady bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.plugin.unsteady = x.plugin.unsteady || unsteady
}

// lookEvery is how often the file of a plugin that is of no use as it is, is
// looked at for a change.
const lookEvery = 5 * time.Second

// rest waits until the plugin is to be tried again; false: the host stops. Those
// who asked for it by Reload are to be told what becomes of it. seen are its
// files as they were before the last try: a change during that is one too.
func (x *exporter) rest(state State, pause time.Duration, seen files) (asked []chan<- error, on bool) {
	wait := pause/2 + rand.N(pause/2)
	look := (<-chan time.Time)(nil)
	switch {
	case state == StateBroken:
		wait = x.host.cfg.inTime(probeMostPause)
	case (state == StateIncompatible || state == StateUntrusted) && !x.entry.attached:
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
			if now, err := x.look(x.ctx); err == nil && now != seen {
				return nil, true
			}
		case first := <-x.reload:
			x.mu.Lock()
			x.breaker.reset()
			x.forgetCausesLocked() // who asks wants to hear
			x.mu.Unlock()
			return x.askers(first), true
		case <-x.ctx.Done():
			return nil, false
		}
	}
}

// endedWith keeps what came in the way of a life, for the status.
func (x *exporter) endedWith(err error) {
	if err == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.plugin.failLocked(time.Now(), err.Error())
}

// configure hands over what the plugin asked for and the operator's document.
func (x *exporter) configure(ctx context.Context, a *attempt, l *link, plan plan, d description) error {
	reply, err := pluginv1.NewLifecycleClient(l.conn).Configure(ctx, &pluginv1.ConfigureRequest{
		Env:     d.granted,
		Config:  plan.document,
		Context: plan.context.message(plan.name),
	})
	if err != nil {
		return fmt.Errorf("configure: %w", wire.FromStatus(err))
	}
	return x.host.cfg.explainUngranted(plan, d, diagnose(a.log, plan, d, reply.GetDiagnostics()))
}

// mostDiagnostics are told of each severity.
const mostDiagnostics = 20

// diagnose logs the plugin's remarks on its configuration; those of severity
// error are the error. The document's file is named with those that may be
// about it: all but those on a variable that the plugin declares.
func diagnose(log *slog.Logger, plan plan, about description, list []*pluginv1.Diagnostic) error {
	var errs []error
	warned, ofFile := 0, ""
	for _, d := range list {
		text := wire.Clip(plan.redactor.Text(d.GetText()))
		if d.GetPath() != "" {
			text = wire.Clip(plan.redactor.Text(d.GetPath())) + ": " + text
		}
		file := plan.configFile
		if about.reads(d.GetPath()) {
			file = ""
		}
		if d.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR {
			if len(errs) < mostDiagnostics {
				errs = append(errs, errors.New(text))
				ofFile = cmp.Or(ofFile, file)
			}
			continue
		}
		if warned++; warned <= mostDiagnostics {
			args := []any{"text", text}
			if file != "" {
				args = append(args, "file", file)
			}
			log.Warn("plugin's remark on its configuration", args...)
		}
	}
	err := errors.Join(errs...)
	switch {
	case err == nil:
		return nil
	case ofFile != "":
		return fmt.Errorf("configuration refused (file %q): %w", ofFile, err)
	}
	return fmt.Errorf("configuration refused: %w", err)
}

// ready books a plugin that has become ready, and says so in one line.
func (x *exporter) ready(l *life) {
	granted := sortedKeys(l.about.granted)
	if withheld := l.about.withheld; len(withheld) > 0 {
		x.log.Warn("lock-down keeps variables from the plugin that it declares; name them for it in "+EnvPluginEnv+" if it needs them", "variables", withheld)
	}
	if !x.unsteady() {
		l.a.end(true) // before the log says that it is ready
	}
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	p := &x.plugin
	p.path, p.version, p.pid = l.plan.path, wire.Clip(l.about.about.GetVersion()), l.peer.PID()
	p.sdk = sdkText(l.about.about)
	p.granted = granted
	p.starts++
	p.changed, p.silent = false, false
	if !p.unsteady {
		x.forgetCausesLocked()
	}
	process := []any{"path", p.path}
	if l.plan.attached {
		process = append(process, "attached", true)
	} else {
		process = append(process, "pid", p.pid)
	}
	x.ran = l.files
	x.setStateLocked(StateReady, "", append(process, "describes_itself_as", wire.Clip(l.about.about.GetName()),
		"version", p.version, "sdk", p.sdk, "variables", granted, "start", p.starts)...)
}

// sdkText names the library behind a plugin, and its version.
func sdkText(about *pluginv1.DescribeResponse) string {
	return wire.Clip(strings.TrimSpace(about.GetSdk().GetName() + " " + about.GetSdk().GetVersion()))
}

// ending bounds the end of one process: by so long, and where the host shuts
// down, then or meanwhile, by what is left of its time.
func (x *exporter) ending(most time.Duration) (context.Context, context.CancelFunc) {
	if x.ctx.Err() != nil { // only then may endBy be read
		return context.WithCancel(x.endBy)
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	stop := context.AfterFunc(x.ctx, func() {
		context.AfterFunc(x.endBy, cancel)
	})
	return ctx, func() { stop(); cancel() }
}

// end ends the process, or hangs up.
func (x *exporter) end(p peer) error {
	ctx, cancel := x.ending(endTimeout)
	defer cancel()
	return p.Stop(ctx)
}

// endTimeout is how long a plugin that is not used any more may take to end.
const endTimeout = time.Second

// shutdownPlugin tells the plugin to deliver what it holds and release
// everything, until ctx ends. One that is attached to serves others too: it only
// delivers. A plain OTLP receiver is told nothing.
func (x *exporter) shutdownPlugin(ctx context.Context, l *link) {
	if l.plain {
		return
	}
	if x.entry.attached {
		if err := x.flushLink(ctx, l); err != nil {
			x.log.Warn("plugin did not flush at the end", "error", err)
		}
		return
	}
	reply, err := pluginv1.NewLifecycleClient(l.conn).Shutdown(ctx, &pluginv1.ShutdownRequest{Timeout: timeLeft(ctx)})
	switch {
	case err != nil:
		x.log.Warn("plugin did not shut down cleanly", "error", wire.FromStatus(err))
	case reply.GetSpansLeft() > 0:
		x.log.Warn("plugin ended with spans that it had not delivered", "spans", reply.GetSpansLeft())
	}
}

// flushPlugin tells a plugin that runs to deliver what it holds, and the one
// that it replaces just now; one that does not run holds nothing, and a plain
// OTLP receiver is not asked.
func (x *exporter) flushPlugin(ctx context.Context) error {
	x.mu.Lock()
	links := slices.DeleteFunc(slices.Clone(x.links), func(l *link) bool { return l.retired || l.lost() })
	x.mu.Unlock()
	var errs []error
	for _, l := range links {
		if !l.plain {
			errs = append(errs, x.flushLink(ctx, l))
		}
	}
	return errors.Join(errs...)
}

// flushLink blocks until the plugin has delivered what it holds. That may take
// long, and ctx may have no end: a plugin that does not answer a health check
// meanwhile is killed, as it is when a batch has no answer.
func (x *exporter) flushLink(ctx context.Context, l *link) error {
	var watch sync.WaitGroup
	watching, stop := context.WithCancel(ctx)
	watch.Go(func() { // ends with the call
		for {
			select {
			case <-time.After(x.host.cfg.ExportTimeout):
				l.alive(watching)
			case <-watching.Done():
				return
			}
		}
	})
	reply, err := pluginv1.NewLifecycleClient(l.conn).Flush(ctx, &pluginv1.FlushRequest{Timeout: timeLeft(ctx)})
	stop()
	watch.Wait()
	if err != nil {
		return fmt.Errorf("flush plugin %q: %w", x.entry.name, wire.FromStatus(err))
	}
	if left := reply.GetSpansLeft(); left > 0 {
		return fmt.Errorf("flush plugin %q: %d spans not delivered", x.entry.name, left)
	}
	return nil
}

// timeLeft is how long a call may take; nil: as long as it likes.
func timeLeft(ctx context.Context) *durationpb.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	return durationpb.New(time.Until(deadline))
}

// message is the context as a plugin gets it.
func (c Context) message(plugin string) *pluginv1.StaticContext {
	columns, terminal := 0, false
	if stdout := stdio.Stdout(); stdout != nil {
		columns, terminal = stdout.Terminal()
	}
	return &pluginv1.StaticContext{
		Application: c.Application,
		Deployment:  c.Deployment,
		Replica:     c.Replica,
		Node:        c.Node,
		Job:         c.Job,
		ServiceName: c.ServiceName,
		PluginName:  plugin,

		SamplingRatio: c.SamplingRatio,

		Terminal:        terminal,
		TerminalColumns: uint32(columns),
	}
}
