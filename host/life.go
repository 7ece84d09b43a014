package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/launch"
)

// life is one process from its launch to its end, or one connection to one that
// is attached to.
type life struct {
	x     *exporter
	a     *attempt // by which it came
	plan  plan
	files files
	about description
	peer  peer
	link  *link
	// begun is when it was ready.
	begun time.Time
	// stop ends the sending, sent is closed when the last call has ended. Both
	// are nil before send.
	stop context.CancelFunc
	sent chan struct{}
}

// crash is the error of a process that ended without having been asked to, was
// killed because it did not answer, or never became a plugin.
type crash struct {
	err error
	// byOthers: its own code is not to blame, see endedByOthers.
	byOthers bool
}

func (c *crash) Error() string { return c.err.Error() }
func (c *crash) Unwrap() error { return c.err }

// begin connects to the plugin, asks it what it is and gives it its
// configuration: it is ready then. With an error nothing is left of it.
func (x *exporter) begin(ctx context.Context, a *attempt) (*life, error) {
	start, cancel := x.host.cfg.startContext(ctx)
	defer cancel()
	l := &life{x: x, a: a}
	var err error
	if l.files, l.plan, err = x.survey(start); err != nil {
		return nil, err
	}
	if err := l.connect(start); err != nil {
		return nil, err
	}
	err = l.introduce(start)
	if errors.Is(err, errStartAgain) {
		x.log.Info("plugin is started again, with its variables in its environment")
		if err := l.end(); err != nil {
			return nil, err
		}
		if err := l.connect(start); err != nil {
			return nil, err
		}
		err = l.introduce(start)
	}
	if err != nil {
		err = x.host.cfg.startError(start, err)
		if l.gone() {
			err = &crash{err: err, byOthers: !mayBeToBlame(l.peer.Report())}
			x.crashed(l.plan, l.about, l.peer.Report(), err, nil)
		}
		l.a.hold()
		return nil, errors.Join(err, l.end())
	}
	l.begun = time.Now()
	return l, nil
}

// connect starts the plugin of l's plan, or attaches to it.
func (l *life) connect(start context.Context) error {
	x := l.x
	var err error
	if l.peer, err = x.host.connect(start, &x.host.cfg, l.plan, l.a.log); err != nil {
		err = x.host.cfg.startError(start, err)
		if neverBecamePlugin(err) {
			c := &crash{err: err}
			if failed, _ := errors.AsType[*launch.Error](err); failed.Report != nil {
				c.byOthers = !mayBeToBlame(*failed.Report)
				x.countSuppressed(failed.Report.Suppressed)
				x.crashed(l.plan, l.about, *failed.Report, c, nil)
			}
			err = c
		}
		return err
	}
	x.watchOutput(l.peer)
	l.link = newLink(x, l.peer)
	l.link.redactor = l.plan.redactor
	return nil
}

// survey looks at the plugin's files, and then reads them: a change meanwhile is
// a change.
func (x *exporter) survey(start context.Context) (files, plan, error) {
	type found struct {
		files files
		plan  plan
		err   error
	}
	f, err := onDisk(start, x.disk, func() (f found) {
		f.files = x.lookAt()
		f.plan, f.err = x.host.cfg.plan(x.entry)
		if f.err == nil && !f.plan.attached {
			touch(f.plan.path)
		}
		return f
	})
	if err != nil {
		return files{}, plan{}, x.host.cfg.startError(start, fmt.Errorf("look at the plugin's files: %w", err))
	}
	return f.files, f.plan, f.err
}

// neverBecamePlugin tells whether a process ran and gave no handshake.
func neverBecamePlugin(err error) bool {
	var failed *launch.Error
	return errors.As(err, &failed) && (failed.Reason == launch.ReasonNotPlugin || failed.Reason == launch.ReasonTimeout)
}

// errStartAgain says that the plugin wants its variables in its start
// environment, and that the plan has them there now.
var errStartAgain = errors.New("plugin wants its variables at its start")

// introduce asks the plugin what it is and configures it. One that is a plain
// OTLP receiver takes no configuration, and one that is attached to has its own.
func (l *life) introduce(ctx context.Context) error {
	var err error
	if l.about, err = l.x.host.cfg.describe(ctx, l.plan, l.link.conn); err != nil {
		return err
	}
	l.link.limits, l.link.plain = l.about.limits, l.about.about == nil
	if l.link.plain || l.plan.attached {
		return nil
	}
	if l.about.about.GetEnvAtStart() && !l.plan.grantedAtStart {
		missing := l.plan.missing(l.about.granted)
		l.plan.environ = slices.Concat(l.plan.environ, missing)
		l.plan.grantedAtStart = true
		if len(missing) > 0 {
			return errStartAgain
		}
	}
	return l.x.configure(ctx, l.a, l.link, l.plan, l.about)
}

// gone tells whether the process has ended, or the connection.
func (l *life) gone() bool { return l.link.lost() }

// ended is the error of one that has gone.
func (l *life) ended() error {
	return &crash{
		err:      fmt.Errorf("%s: %s", l.x.entry.manner().ended, l.peer.Exit()),
		byOthers: endedByOthers(l.peer.Report()),
	}
}

// send begins to send batches, until finish, or the peer is gone.
func (l *life) send() {
	ctx, cancel := context.WithCancel(l.x.ctx)
	l.stop, l.sent = cancel, make(chan struct{})
	l.x.addLink(l.link)
	go func() { // ends with the last call; finish waits for it
		defer close(l.sent)
		watched, stop := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { l.pulse(watched) })
		watching.Go(func() { l.watch(watched) })
		l.link.run(ctx)
		stop()
		watching.Wait()
	}()
}

// finish ends the sending and waits for the last call, whose batch goes back
// to the queue if it has no answer. Where the peer has gone, the sending ends by
// itself, when the peer's last answers are read.
func (l *life) finish() {
	if !l.gone() {
		l.stop()
	}
	<-l.sent
	l.stop()
	l.x.retireLink(l.link)
}

// steady tells whether it was ready for long enough for the next to begin
// without a pause or with the first.
func (l *life) steady() bool { return time.Since(l.begun) >= l.x.entry.manner().steadyAfter }

// end ends the process, or hangs up, and gives back what gRPC held.
func (l *life) end() error {
	defer l.x.removeLink(l.link)
	defer l.link.leases.abandon() // after Stop has closed the connection
	defer l.x.unwatchOutput(l.peer)
	return l.x.end(l.peer)
}

// watchOutput counts the lines of a process that are not logged as they come,
// until unwatchOutput.
func (x *exporter) watchOutput(p peer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.alive = append(x.alive, p)
}

func (x *exporter) unwatchOutput(p peer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.alive = slices.DeleteFunc(x.alive, func(other peer) bool { return other == p })
	x.suppressed += p.Suppressed()
	x.unprinted += p.Unprinted()
}

// countSuppressed counts such lines of a process that never became a plugin.
func (x *exporter) countSuppressed(lines uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.suppressed += lines
}

// serve sends batches until the process, or the connection, ends or the host
// stops. It gives the last life, for a Reload may have put another in place, and
// the error says how that ended.
func (x *exporter) serve(l *life) (*life, error) {
	x.ready(l)
	l.send()
	for {
		reload := x.reload
		if x.retiring != nil { // a third process must wait until the first has ended
			reload = nil
		}
		select {
		case <-l.peer.Done():
			l.finish()
			err := l.ended()
			x.crashed(l.plan, l.about, l.peer.Report(), err, l.link.atCrash)
			return l, errors.Join(err, l.end())
		case <-x.ctx.Done():
			l.finish()
			x.shutdownPlugin(x.endBy, l.link)
			return l, l.end()
		case <-x.retiring:
			x.retiring = nil
		case asked := <-reload:
			l = x.replace(l, x.askers(asked))
		}
	}
}

// addLink, retireLink and removeLink keep the connections on which batches are
// sent, and those that are only to be closed yet: what gRPC holds for them counts
// until then.
func (x *exporter) addLink(l *link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.links = append(x.links, l)
}

func (x *exporter) retireLink(l *link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l.retired = true
}

func (x *exporter) removeLink(l *link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.links = slices.DeleteFunc(x.links, func(other *link) bool { return other == l })
}
