package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/internal/launch"
)

// EndTimeout bounds the time in which a plugin that is no longer used ends by itself.
// Then it is killed.
const EndTimeout = time.Second

// Peer is a connected plugin: a *launch.Process or a *launch.Attachment.
type Peer interface {
	Conn() grpc.ClientConnInterface
	PID() int
	Done() <-chan struct{}
	Exit() string
	// Report returns details of the end after Done. It is zero for an Attachment.
	Report() launch.Report
	// Suppressed returns the number of printed lines so far that were not logged.
	Suppressed() uint64
	// Unprinted returns the number of printed lines so far that did not reach this
	// process's standard output.
	Unprinted() uint64
	Kill(why string)
	Dump(ctx context.Context)
	// Leaving reports whether the plugin accepts no more calls. It may still answer its
	// last calls, and ends after that.
	Leaving() bool
	Stop(ctx context.Context) error
}

// connector is a function that connects to a plugin. Outside of tests it is connect.
type connector func(ctx context.Context, c *Settings, p Plan, log *slog.Logger) (Peer, error)

var (
	_ Peer = (*launch.Process)(nil)
	_ Peer = (*launch.Attachment)(nil)
)

// open starts the plugin of a plan, or attaches to it. It asks for the description, and
// configures the plugin if configured is true. If the plugin wants its variables in its
// start environment, open starts it a second time. If it returns an error and a Peer, the
// caller must end the Peer with HangUp.
func (x *Plugin) open(start context.Context, plan *Plan, log *slog.Logger, configured bool) (p Peer, d Description, err error) {
	cfg := &x.sup.cfg
	for {
		if p, err = x.sup.Connect(start, cfg, *plan, log); err != nil {
			return nil, Description{}, cfg.startError(start, err)
		}
		x.lost.watch(p)
		if configured {
			d, err = introduce(start, cfg, log, p.Conn(), plan)
		} else {
			d, err = describe(start, cfg.Plugins, *plan, p.Conn())
		}
		if !errors.Is(err, errStartAgain) {
			return p, d, cfg.startError(start, err)
		}
		log.Info("plugin is started again, with its variables in its environment")
		if err := x.HangUp(p, EndTimeout); err != nil {
			return nil, d, err
		}
	}
}

// errStartAgain is the error of introduce if the plugin wants its variables in its start
// environment. The plan then has these variables, and the plugin must be started again.
var errStartAgain = errors.New("plugin wants its variables at its start")

// introduce asks a plugin for its description and configures it. It does not configure a
// plain OTLP receiver or an attached plugin. If the plugin wants its variables in its start
// environment, introduce adds them to the plan and returns errStartAgain, once.
func introduce(ctx context.Context, cfg *Settings, log *slog.Logger, conn grpc.ClientConnInterface, p *Plan) (Description, error) {
	d, err := describe(ctx, cfg.Plugins, *p, conn)
	if err != nil || d.About == nil || p.Attached {
		return d, err
	}
	if d.About.GetEnvAtStart() && !p.grantedAtStart {
		missing := p.missing(d.Granted)
		p.Environ = slices.Concat(p.Environ, missing)
		p.grantedAtStart = true
		if len(missing) > 0 {
			return d, errStartAgain
		}
	}
	return d, configure(ctx, cfg, log, conn, *p, d)
}

// connect starts the process of a plan, or connects to the socket of an attached plugin.
func connect(ctx context.Context, c *Settings, p Plan, log *slog.Logger) (Peer, error) {
	if p.Attached {
		attachment, err := launch.Attach(ctx, p.Path)
		if err != nil {
			return nil, err
		}
		return attachment, nil
	}
	process, err := launch.Start(ctx, launch.Command{
		Name:       p.Name,
		Path:       p.Path,
		Args:       p.Args,
		Trust:      p.trust,
		Environ:    p.Environ,
		Secrets:    p.Secrets,
		Output:     c.output(),
		SocketDirs: c.Plugins.RuntimeDirs(),
		Log:        log,
	})
	if err != nil {
		return nil, p.explain(err)
	}
	return process, nil
}

// explain returns a clearer error for a function in Python, if the interpreter or its
// package servetrace is missing.
func (p Plan) explain(err error) error {
	failed, ok := errors.AsType[*launch.Error](err)
	if p.Function == "" || !ok {
		return err
	}
	better := *failed
	switch {
	case failed.Reason == launch.ReasonNotFound:
		better.Err = fmt.Errorf("there is no such file; set %s to the path of an interpreter", pluginlist.EnvPython)
	case strings.Contains(failed.Error(), "No module named 'servetrace'"):
		better.Err = fmt.Errorf("this Python has no package servetrace, which runs %s; run: %s -m pip install servetrace, or set %s to another interpreter",
			p.Function, p.Path, pluginlist.EnvPython)
	default:
		return err
	}
	return &better
}

// HangUp ends a process, or closes a connection, and frees its resources. It kills a
// process that does not end by itself within the timeout.
func (x *Plugin) HangUp(p Peer, timeout time.Duration) error {
	defer x.lost.unwatch(p)
	ctx, cancel := x.endContext(timeout)
	defer cancel()
	return p.Stop(ctx)
}

// endContext returns a context for the end of one process. It ends after the duration most,
// or with endBy if the host shuts down.
func (x *Plugin) endContext(most time.Duration) (context.Context, context.CancelFunc) {
	if x.ctx.Err() != nil { // endBy may be read, because it was set before ctx ended
		return context.WithCancel(x.endBy)
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	stop := context.AfterFunc(x.ctx, func() {
		context.AfterFunc(x.endBy, cancel)
	})
	return ctx, func() { stop(); cancel() }
}

// Plan returns the settings and the content of files for the next start. If it returns
// an error, the Plan has the parts that are known.
func (x *Plugin) Plan() (Plan, error) { return x.sup.cfg.plan(x.Entry) }

// ConnectUnsupervised starts the plugin of a plan, or attaches to it. It asks for the
// description, and configures the plugin if configured is true. It blocks until that is
// done, at most Settings.StartTimeout. The caller must call HangUp, unless there is an
// error. With an error, the process has ended, and the description is set if the plugin has
// sent it.
func (x *Plugin) ConnectUnsupervised(ctx context.Context, plan *Plan, configured bool) (Peer, Description, error) {
	start, cancel := x.sup.cfg.startContext(ctx)
	defer cancel()
	p, d, err := x.open(start, plan, x.log, configured)
	if p != nil && err != nil {
		return nil, d, errors.Join(err, x.HangUp(p, EndTimeout))
	}
	return p, d, err
}
