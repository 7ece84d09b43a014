package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// restartFirst is the first pause between two starts of a plugin, or two
// attempts to attach to one; each further one is twice as long, up to
// manner.mostPause.
const restartFirst = 200 * time.Millisecond

// run is the plugin's life: start, serve, and again. It ends when x.stop was
// called and the plugin has ended, or x.endBy has.
func (x *exporter) run() {
	defer x.setState(StateStopped, "")
	pause := restartFirst
	for {
		a := x.newAttempt()
		x.setState(StateStarting, "")
		l, err := x.begin(x.ctx, a)
		healthy := false
		if err == nil {
			healthy, err = x.serve(l)
		}
		if x.ctx.Err() != nil {
			x.failed(a, StateStopped, err)
			x.endedWith(err)
			return
		}
		if healthy {
			pause = restartFirst
			x.breaker.lived()
		}
		if healthy && x.entry.attached {
			// A server may send its clients away to spread its load, or be
			// replaced by the next. If it is gone, the next attempt says so.
			x.log.Info("connection to the plugin is dialled again", "cause", err)
			continue
		}
		state := x.after(err)
		x.failed(a, state, err)
		x.setState(state, err.Error())
		if !x.rest(state, pause) {
			return
		}
		pause = min(x.entry.manner().mostPause, pause*2)
	}
}

// after is the state that a plugin comes into by the error of its start or its
// end; a crash is counted.
func (x *exporter) after(err error) State {
	state := stateAfter(err)
	var c *crash
	if !errors.As(err, &c) {
		return state
	}
	x.countCrash()
	if open := x.breaker.crashed(time.Now()); open && !x.entry.attached && state == StateBackingOff {
		return StateBroken
	}
	return state
}

func (x *exporter) countCrash() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.plugin.crashes++
	x.plugin.lastCrash = time.Now()
}

// lookEvery is how often the file of a plugin that is of no use as it is, is
// looked at for a change.
const lookEvery = 5 * time.Second

// rest waits until the plugin is to be tried again; false: the host stops.
func (x *exporter) rest(state State, pause time.Duration) bool {
	wait := pause/2 + rand.N(pause)
	look := (<-chan time.Time)(nil)
	switch state {
	case StateBroken:
		wait = probeEvery
	case StateIncompatible, StateUntrusted:
		if !x.entry.attached {
			wait = 1<<63 - 1
			ticker := time.NewTicker(lookEvery)
			defer ticker.Stop()
			look = ticker.C
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	seen := x.fingerprint()
	for {
		select {
		case <-timer.C:
			return true
		case <-look:
			if x.fingerprint() != seen {
				return true
			}
		case asked := <-x.reload:
			x.breaker.reset()
			asked <- nil // what becomes of it, its state says
			return true
		case <-x.ctx.Done():
			return false
		}
	}
}

// fingerprint changes when the plugin's file does, or what may be said against
// it.
func (x *exporter) fingerprint() string {
	plan, err := x.host.cfg.plan(x.entry)
	if err == nil {
		err = plan.check()
	}
	info, statErr := os.Stat(plan.path)
	if statErr != nil {
		return fmt.Sprint(err)
	}
	return fmt.Sprint(err, info.Size(), info.ModTime(), info.Mode())
}

// endedWith keeps what came in the way of the plugin's last life, for the log
// and the status: spans may be lost by it.
func (x *exporter) endedWith(err error) {
	if err == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.plugin.lastError = err.Error()
}

// configure hands over what the plugin asked for and the operator's document.
func (x *exporter) configure(ctx context.Context, a *attempt, l *link, plan plan, d description) error {
	reply, err := pluginv1.NewLifecycleClient(l.conn).Configure(ctx, &pluginv1.ConfigureRequest{
		Env:     d.granted,
		Config:  plan.config,
		Context: plan.context.message(plan.name),
	})
	if err != nil {
		return fmt.Errorf("configure: %w", wire.FromStatus(err))
	}
	return diagnose(a.log, plan, d, reply.GetDiagnostics())
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
		text := wire.Clip(d.GetText())
		if d.GetPath() != "" {
			text = wire.Clip(d.GetPath()) + ": " + text
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
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	p := &x.plugin
	p.path, p.version, p.pid = l.plan.path, wire.Clip(l.about.about.GetVersion()), l.peer.PID()
	p.sdk = sdkText(l.about.about)
	p.granted = granted
	p.starts++
	p.loggedCause = ""
	process := []any{"path", p.path}
	if l.plan.attached {
		process = append(process, "attached", true)
	} else {
		process = append(process, "pid", p.pid)
	}
	x.setStateLocked(StateReady, "", append(process, "describes_itself_as", wire.Clip(l.about.about.GetName()),
		"version", p.version, "sdk", p.sdk, "variables", granted, "start", p.starts)...)
}

// sdkText names the library behind a plugin, and its version.
func sdkText(about *pluginv1.DescribeResponse) string {
	return wire.Clip(strings.TrimSpace(about.GetSdk().GetName() + " " + about.GetSdk().GetVersion()))
}

// end ends the process: by asking within what is left of the stop's time if
// the host shuts down, else at once, for it has ended or is of no use.
func (x *exporter) end(p peer) error {
	if x.ctx.Err() != nil { // only then may endBy be read
		return p.Stop(x.endBy)
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	defer context.AfterFunc(x.ctx, func() { // the host shuts down meanwhile
		context.AfterFunc(x.endBy, cancel)
	})()
	return p.Stop(ctx)
}

// endTimeout is how long a plugin that is not used any more may take to end.
const endTimeout = time.Second

// shutdownPlugin tells the plugin to deliver what it holds and release
// everything. One that is attached to serves others too: it only delivers. A
// plain OTLP receiver is told nothing.
func (x *exporter) shutdownPlugin(l *link) {
	if l.plain {
		return
	}
	if x.entry.attached {
		if err := x.flushLink(x.endBy, l); err != nil {
			x.log.Warn("plugin did not flush at the end", "error", err)
		}
		return
	}
	reply, err := pluginv1.NewLifecycleClient(l.conn).Shutdown(x.endBy, &pluginv1.ShutdownRequest{Timeout: timeLeft(x.endBy)})
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
	links := slices.Clone(x.links)
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
				l.checkAlive(watching)
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
	return &pluginv1.StaticContext{
		Application: c.Application,
		Deployment:  c.Deployment,
		Replica:     c.Replica,
		Node:        c.Node,
		Job:         c.Job,
		ServiceName: c.ServiceName,
		PluginName:  plugin,
	}
}
