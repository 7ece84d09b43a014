package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/servetrace/servetrace/internal/launch"
)

// life is one process from its launch to its end, or one connection to one that
// is attached to.
type life struct {
	x     *exporter
	plan  plan
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
type crash struct{ err error }

func (c *crash) Error() string { return c.err.Error() }
func (c *crash) Unwrap() error { return c.err }

// begin connects to the plugin, asks it what it is and gives it its
// configuration: it is ready then. With an error nothing is left of it.
func (x *exporter) begin(ctx context.Context, a *attempt) (*life, error) {
	start, cancel := x.host.cfg.startContext(ctx)
	defer cancel()
	plan, err := x.host.cfg.plan(x.entry)
	if err != nil {
		return nil, err
	}
	p, err := x.host.connect(start, &x.host.cfg, plan, a.log)
	if err != nil {
		err = x.host.cfg.startError(start, err)
		if neverBecamePlugin(err) {
			err = &crash{err}
		}
		return nil, err
	}
	l := &life{x: x, plan: plan, peer: p}
	l.link = newLink(x, p)
	if err := l.introduce(start, a); err != nil {
		err = x.host.cfg.startError(start, err)
		if l.gone() {
			err = &crash{err}
			x.crashed(plan, l.about, p.Report(), err, nil)
		}
		return nil, errors.Join(err, l.end())
	}
	a.end(true)
	l.begun = time.Now()
	return l, nil
}

// neverBecamePlugin tells whether a process ran and gave no handshake.
func neverBecamePlugin(err error) bool {
	var failed *launch.Error
	return errors.As(err, &failed) && (failed.Reason == launch.ReasonNotPlugin || failed.Reason == launch.ReasonTimeout)
}

// introduce asks the plugin what it is and configures it. One that is a plain
// OTLP receiver takes no configuration, and one that is attached to has its own.
func (l *life) introduce(ctx context.Context, a *attempt) error {
	var err error
	if l.about, err = l.x.host.cfg.describe(ctx, l.plan, l.link.conn); err != nil {
		return err
	}
	l.link.limits, l.link.plain = l.about.limits, l.about.about == nil
	if l.link.plain || l.plan.attached {
		return nil
	}
	return l.x.configure(ctx, a, l.link, l.plan, l.about)
}

// gone tells whether the process has ended, or the connection.
func (l *life) gone() bool {
	select {
	case <-l.peer.Done():
		return true
	default:
		return false
	}
}

// send begins to send batches, until finish, or the peer is gone.
func (l *life) send() {
	ctx, cancel := context.WithCancel(l.x.ctx)
	l.stop, l.sent = cancel, make(chan struct{})
	l.x.addLink(l.link)
	go func() { // ends with the last call; finish waits for it
		defer close(l.sent)
		l.link.run(ctx)
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
	l.x.removeLink(l.link)
}

// healthy tells whether it was ready for long enough for the next to begin
// without a pause or with the first.
func (l *life) healthy() bool { return time.Since(l.begun) > l.x.entry.manner().healthyAfter }

// end ends the process, or hangs up, and gives back what gRPC held.
func (l *life) end() error {
	defer l.link.leases.abandon() // after Stop has closed the connection
	return l.x.end(l.peer)
}

// serve sends batches until the process, or the connection, ends or the host
// stops. healthy is that of the last life: a Reload may have put another in
// place. The error says how it ended.
func (x *exporter) serve(l *life) (healthy bool, err error) {
	x.ready(l)
	l.send()
	for {
		select {
		case <-l.peer.Done():
			l.finish()
			healthy = l.healthy()
			err := &crash{fmt.Errorf("%s: %s", x.entry.manner().ended, l.peer.Exit())}
			x.crashed(l.plan, l.about, l.peer.Report(), err, l.link.atCrash)
			return healthy, errors.Join(err, l.end())
		case <-x.ctx.Done():
			l.finish()
			x.shutdownPlugin(l.link)
			return l.healthy(), l.end()
		case asked := <-x.reload:
			var upgradeErr error
			l, upgradeErr = x.upgrade(l)
			asked <- upgradeErr
		}
	}
}

// addLink and removeLink keep the connections on which batches are sent.
func (x *exporter) addLink(l *link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.links = append(x.links, l)
}

func (x *exporter) removeLink(l *link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.links = slices.DeleteFunc(x.links, func(other *link) bool { return other == l })
}
