package host

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// A plugin that gives no answer is found in two ways. A call that had none by
// its deadline has waited long: one health check without an answer, and the
// plugin is hung. One that has nothing to do is asked every heartbeatEvery, and
// is hung when it owes mostMisses answers. What is hung is dumped and killed,
// with its group; of one that is attached to, the connection is closed.
const (
	heartbeatEvery = 10 * time.Second
	// healthTimeout is how long a plugin may take to say that it is alive.
	healthTimeout = 2 * time.Second
	mostMisses    = 3
	// endGrace is how long a process that takes no calls any more, and has
	// answered those it had, may take to end by itself.
	endGrace = 2 * time.Second
	// dumpTimeout is how long a plugin that is hung may take to write down what
	// it was doing, and killWait how long the kernel to end it then.
	dumpTimeout = time.Second
	killWait    = time.Second
)

// pulse is what is done of itself for a ready plugin, at one timer, until ctx
// ends.
func (l *life) pulse(ctx context.Context) {
	timer := time.NewTimer(l.x.entry.manner().steadyAfter)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		l.x.steady(l)
		l.lookForChange(ctx)
		if l.link.quiet() {
			l.link.ask(ctx, 1)
		}
		timer.Reset(heartbeatEvery)
	}
}

// quiet tells whether the plugin has said nothing for long.
func (l *link) quiet() bool {
	l.x.mu.Lock()
	defer l.x.mu.Unlock()
	return time.Since(l.heard) >= heartbeatEvery
}

// heardLocked notes that the plugin has answered something.
func (l *link) heardLocked(now time.Time) {
	l.heard, l.misses = now, 0
	if l.x.plugin.silent {
		l.x.restoreLocked()
	}
}

// alive is for a call that had no answer: it returns when the plugin has
// answered a health check, or is gone.
func (l *link) alive(ctx context.Context) { l.ask(ctx, mostMisses) }

// ask has the plugin say that it lives. If it does not, it owes so many answers
// more. It blocks until the plugin has answered or failed to, or is gone, and
// while somebody else asks: an answer to that one may be older than our trouble.
func (l *link) ask(ctx context.Context, owes int) {
	select {
	case l.checking <- struct{}{}:
		defer func() { <-l.checking }()
	case <-ctx.Done():
		return
	}
	if ctx.Err() != nil || l.lost() {
		return
	}
	refused, err := l.health(ctx)
	switch {
	case err == nil || ctx.Err() != nil:
		return
	case refused || l.peer.Leaving():
		// A process that was sent SIGTERM takes no new calls, nor does one that
		// leaves, but they may answer those they have.
		l.awaitCalls(ctx, l.x.host.cfg.ExportTimeout)
		select {
		case <-l.peer.Done():
		case <-ctx.Done():
		case <-time.After(endGrace):
		}
	case !l.missed(owes, err):
		return
	}
	if ctx.Err() == nil && !l.lost() {
		l.putDown(ctx, err)
	}
}

// health makes a health check. An error that is the plugin's own is as good as
// an answer: a slow back end, or one that is down, is no reason to kill a
// plugin. refused: there is no connection, or the process serves no more.
func (l *link) health(ctx context.Context) (refused bool, err error) {
	call, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	_, err = healthpb.NewHealthClient(l.conn).Check(call, &healthpb.HealthCheckRequest{Service: wire.HealthService})
	said := wire.FromStatus(err)
	switch {
	case err == nil, call.Err() == nil && said.Code != wire.CodeRetry:
		defer l.x.tell()
		l.x.mu.Lock()
		defer l.x.mu.Unlock()
		l.heardLocked(time.Now())
		return false, nil
	case call.Err() == nil:
		return true, said
	}
	return false, fmt.Errorf("no answer to a health check within %v", healthTimeout)
}

// missed counts answers that the plugin owes, and tells whether it is hung.
func (l *link) missed(owes int, err error) bool {
	defer l.x.tell()
	l.x.mu.Lock()
	defer l.x.mu.Unlock()
	if l.misses += owes; l.misses >= mostMisses {
		return true
	}
	if !l.x.plugin.silent {
		l.x.noteLocked(slog.LevelWarn, "plugin gave no answer to a health check; three in a row and it is taken for hung", "error", err)
	}
	l.x.plugin.silent = true
	l.x.plugin.failLocked(time.Now(), err.Error())
	l.x.degradeLocked(err.Error())
	return false
}

// putDown has a hung plugin write down what it is doing, and kills it. It
// returns when the plugin has gone, or can not be ended.
func (l *link) putDown(ctx context.Context, err error) {
	l.x.log.Warn(l.x.entry.manner().hung, "error", err) // its end is the error
	dump, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	l.peer.Dump(dump)
	l.kill("it answered neither calls nor health checks: " + err.Error())
	select {
	case <-l.peer.Done():
	case <-ctx.Done():
	case <-time.After(killWait):
	}
}

// steady is for a plugin that has been ready for long enough: what was wrong
// with those before it is over, and what was wrong with it may be.
func (x *exporter) steady(l *life) {
	l.a.end(true)
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.breaker.steady()
	x.calmLocked(time.Now())
	if !x.plugin.unsteady {
		return
	}
	x.forgetCausesLocked()
	x.noteLocked(slog.LevelInfo, "plugin is steady again", "state", x.plugin.state.String(), "crashes", x.plugin.crashes)
}

// forgetCausesLocked has the log told of the next trouble as of the first.
func (x *exporter) forgetCausesLocked() {
	p := &x.plugin
	p.loggedCause, p.causes, p.unsteady = "", [stateCount]int{}, false
	p.loggedCrash, p.crashesTold = "", 0
}

// files are what a plugin is started from, as they were when it was looked at;
// the zero value of one that is not there.
type files struct{ executable, document launch.Identity }

// look is lookAt with a bound: a disk that does not answer in time is an error.
func (x *exporter) look(ctx context.Context) (files, error) {
	ctx, cancel := context.WithTimeout(ctx, diskPatience)
	defer cancel()
	return onDisk(ctx, x.disk, x.lookAt)
}

// lookAt looks at the files without reading them. It blocks as long as the disk.
func (x *exporter) lookAt() files {
	var f files
	if x.entry.attached {
		return f
	}
	cfg := &x.host.cfg
	if path, err := x.entry.resolve(cfg.PluginDirs); err == nil {
		f.executable, _ = launch.Identify(path) // none is the zero value
	}
	if path := cfg.PluginConfigs[x.entry.name].File; path != "" {
		f.document, _ = launch.Identify(path)
	}
	return f
}

// lookForChange sees whether what runs is still what is there.
func (l *life) lookForChange(ctx context.Context) {
	x := l.x
	now, err := x.look(ctx)
	if err != nil {
		return // the next look may say more
	}
	changed := now.executable != l.files.executable
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.plugin.pid != l.peer.PID() || len(x.links) > 1 { // it is being replaced, or on probation
		return
	}
	if changed && !x.plugin.changed {
		x.noteLocked(slog.LevelWarn, "the executable has changed since the plugin was started: what runs is the old one; SIGHUP replaces it",
			"path", l.plan.path, "pid", l.peer.PID())
	}
	x.plugin.changed = changed
}

// watch replaces a plugin by what its files are now, when they have changed and
// are the same at two looks: a copy that is not finished is none. What has been
// tried is not tried again. It looks until ctx ends, or never.
func (l *life) watch(ctx context.Context) {
	every := l.x.host.cfg.Watch
	if every <= 0 || l.plan.attached {
		return
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	last, tried := l.files, l.files
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now, err := l.x.look(ctx)
		if err != nil {
			continue
		}
		if now == last && now != tried && now.executable != (launch.Identity{}) {
			tried = now
			l.x.log.Info("the plugin's executable or document has changed: it is replaced")
			_ = l.x.askReload(ctx) // the log has it, and what else became of it
		}
		last = now
	}
}
