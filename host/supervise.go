package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
		healthy, err := x.live(a)
		if x.ctx.Err() != nil {
			x.failed(a, err)
			x.endedWith(err)
			return
		}
		if healthy {
			pause = restartFirst
		}
		if healthy && x.entry.attached {
			// A server may send its clients away to spread its load, or be
			// replaced by the next. If it is gone, the next attempt says so.
			x.log.Info("connection to the plugin is dialled again", "cause", err)
			continue
		}
		x.failed(a, err)
		x.setState(StateBackingOff, err.Error())
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-x.ctx.Done():
			return
		}
		pause = min(x.entry.manner().mostPause, pause*2)
	}
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

// live is one process from its launch to its end, or one connection to one that
// is attached to. The error says why it did not become ready or why it ended.
// healthy: it was ready for long enough for the next to begin without a pause
// or with the first.
func (x *exporter) live(a *attempt) (healthy bool, err error) {
	x.setState(StateStarting, "")
	start, cancel := x.host.cfg.startContext(x.ctx)
	defer cancel()
	plan, err := x.host.cfg.plan(x.entry)
	if err != nil {
		return false, err
	}
	p, err := x.host.connect(start, &x.host.cfg, plan, a.log)
	if err != nil {
		return false, x.host.cfg.startError(start, err)
	}
	l := &link{x: x, peer: p, conn: p.Conn(), leases: newLeases()}
	defer l.leases.abandon() // after Stop has closed the connection
	if err := x.introduce(start, a, l, plan); err != nil {
		return false, errors.Join(x.host.cfg.startError(start, err), x.end(p))
	}
	begun := time.Now()
	x.serve(l)
	healthy = time.Since(begun) > x.entry.manner().healthyAfter
	if x.ctx.Err() != nil {
		x.shutdownPlugin(l)
		return healthy, x.end(p)
	}
	exit := p.Exit()
	return healthy, errors.Join(fmt.Errorf("%s: %s", x.entry.manner().ended, exit), x.end(p))
}

// serve sends batches until the process, or the connection, ends or the host
// stops.
func (x *exporter) serve(l *link) {
	ctx, cancel := context.WithCancel(x.ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() { // ends with the peer, or with ctx
		select {
		case <-l.peer.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	x.setLink(l)
	defer x.setLink(nil)
	l.run(ctx)
}

// introduce asks the plugin what it is and gives it its configuration. One that
// is a plain OTLP receiver takes none, and one that is attached to has its own.
func (x *exporter) introduce(ctx context.Context, a *attempt, l *link, plan plan) error {
	d, err := x.host.cfg.describe(ctx, plan, l.conn)
	if err != nil {
		return err
	}
	l.limits, l.plain = d.limits, d.about == nil
	if !l.plain && !plan.attached {
		if err := x.configure(ctx, a, l, plan, d); err != nil {
			return err
		}
	}
	a.end(true)
	x.ready(d, plan, l.peer.PID())
	return nil
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
func (x *exporter) ready(d description, plan plan, pid int) {
	granted := sortedKeys(d.granted)
	x.mu.Lock()
	x.plugin.path, x.plugin.version, x.plugin.pid = plan.path, wire.Clip(d.about.GetVersion()), pid
	x.plugin.sdk = sdkText(d.about)
	version, sdk := x.plugin.version, x.plugin.sdk
	x.plugin.granted = granted
	x.plugin.starts++
	starts := x.plugin.starts
	x.plugin.loggedFailed = ""
	x.mu.Unlock()
	x.setState(StateReady, "")
	process := []any{"pid", pid}
	if plan.attached {
		process = []any{"attached", true}
	}
	x.log.With("path", plan.path).With(process...).Info("plugin is ready", "describes_itself_as", wire.Clip(d.about.GetName()),
		"version", version, "sdk", sdk, "variables", granted, "start", starts)
}

// sdkText names the library behind a plugin, and its version.
func sdkText(about *pluginv1.DescribeResponse) string {
	return wire.Clip(strings.TrimSpace(about.GetSdk().GetName() + " " + about.GetSdk().GetVersion()))
}

// setState moves the plugin to another state; cause says why it is backing
// off. A cause is logged when it is a new one.
func (x *exporter) setState(to State, cause string) {
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	// While the host shuts down there is no way back, but causes count.
	if x.plugin.state != StateDraining || to == StateStopped {
		x.plugin.state = to
	}
	if to != StateReady && to != StateDraining {
		x.plugin.pid = 0
	}
	if cause != "" {
		x.plugin.lastError = cause
		if cause != x.plugin.loggedFailed {
			x.noteLocked(slog.LevelError, x.entry.manner().notRunning, "cause", cause, "waiting_spans", x.waiting)
		}
		x.plugin.loggedFailed = cause
	}
}

func (x *exporter) setLink(l *link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.link = l
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

// flushPlugin tells a ready plugin to deliver what it holds; one that is not
// ready holds nothing, and a plain OTLP receiver is not asked.
func (x *exporter) flushPlugin(ctx context.Context) error {
	x.mu.Lock()
	l := x.link
	x.mu.Unlock()
	if l == nil || l.plain {
		return nil
	}
	return x.flushLink(ctx, l)
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
