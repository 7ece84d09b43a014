package plugintest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// The checks of Flush and Shutdown.

func checkFlush(t *trial) {
	p := t.ready(asHost)
	for _, when := range []string{"before any batch", "after a batch", "again"} {
		if err := noneLeft(p.session.flush(t.ctx)); err != nil {
			t.fatalf("Flush %s: %v", when, err)
		}
		p.lives("Flush " + when)
	}
}

func checkFlushOverlaps(t *trial) {
	const rounds, flushers = 10, 2
	p := t.ready(asHost)
	account := accounting{p: p}
	t.step = "Export and Flush at once"
	t.atOnce(flushers+1, func(i int) {
		for range rounds {
			if i == 0 { // one Export at a time, because a plugin may declare that limit
				account.deliver(t.batch(2))
			} else {
				_, err := p.session.flush(t.ctx)
				t.must(err)
			}
		}
	})
	account.balance()
}

func checkShutdown(t *trial) {
	p := t.ready(asHost)
	p.delivers(t.batch(2))
	p.shutsDown()
}

func checkShutdownUnconfigured(t *trial) {
	p := t.connect(asHost)
	p.describe()
	t.step = "Shutdown before Configure"
	p.answersShutdown()
	p.letGo()
	p.endsCleanly("GRPCController.Shutdown and the end of standard input")
}

func checkShutdownTwice(t *trial) {
	p := t.ready(asHost)
	p.shutsDown()
	t.step = "a second Shutdown"
	p.answersShutdown()
	p.letGo()
	p.endsCleanly("GRPCController.Shutdown and the end of standard input")
}

func checkExportAfterShutdown(t *trial) {
	p := t.ready(asHost)
	p.shutsDown()
	answer, err := p.session.export(t.ctx, t.batch(1))
	switch {
	case errors.Is(err, errNoAnswer):
		t.fatalf("after Shutdown: %v", err)
	case err == nil && !answer.Retryable: // a broken connection is allowed, because a host then retries, too
		t.fatalf("a batch after Shutdown is answered %v; want UNAVAILABLE", answer)
	}
}

// The checks of the end of the process, of its output, and of the launch by a host.

func checkNoFiles(t *trial) {
	p := t.ready(asHost)
	p.endsReleased()
	t.must(p.plugin.filesLeft())
}

func checkStdinEnd(t *trial) {
	p := t.ready(asHost)
	p.plugin.CloseStdin()
	p.ends("the end of standard input")
}

func checkHostDeath(t *trial) {
	p := t.ready(asHost)
	n := min(4, t.suite.about.concurrency())
	ctx, cancel := context.WithCancel(t.ctx)
	first := make(chan error, n)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for range n {
		calls.Go(func() { // this goroutine ends with the connection
			_, err := p.session.export(ctx, t.batch(50))
			first <- err
			for err == nil && ctx.Err() == nil {
				_, err = p.session.export(ctx, t.batch(50))
			}
		})
	}
	t.must(<-first)
	p.session.hangUp() // the kernel closes the connection of a host that has died
	p.plugin.CloseStdin()
	p.ends("the death of its host")
}

func checkSIGTERM(t *trial) {
	p := t.ready(asHost)
	p.delivers(t.batch(2))
	p.plugin.Signal(syscall.SIGTERM)
	p.endsCleanly("SIGTERM")
}

func checkDrain(t *trial) {
	const attempts = 5
	p := t.ready(asHost)
	for range attempts {
		if drains(p) {
			p.endsCleanly("SIGTERM and the last call")
			return
		}
	}
	t.skipf("input %q was answered before SIGTERM could be sent, %d times; want one that takes half a second or more", Slow, attempts)
}

// drains sends SIGTERM while a slow call is in flight, and expects that the call is
// answered with OK. It returns false if the call was answered before the signal.
func drains(p *subject) bool {
	const slow = time.Second // the back end stays in the state of WithState for this time
	b, restore := provoke(p.t)
	defer restore()
	defer time.AfterFunc(slow, restore).Stop()
	answered := begin(p, b)
	select {
	case err := <-answered:
		p.t.must(err)
		return false
	default:
	}
	p.plugin.Signal(syscall.SIGTERM)
	if err := <-answered; err != nil {
		p.t.fatalf("a call in flight at SIGTERM: %v", err)
	}
	return true
}

// begin starts a call that must be answered with OK, and returns when the plugin is
// probably working on it. The channel delivers nil or an error when the call has ended,
// within the suite's patience.
func begin(p *subject, b batch) <-chan error {
	sent, outcome := make(chan struct{}), make(chan error, 1)
	b.sent = sync.OnceFunc(func() { close(sent) })
	go func() { // this goroutine ends with the call
		defer b.sent() // otherwise begin would hang if the call fails before it is sent
		_, err := p.session.mustExport(p.t.ctx, b)
		outcome <- err
	}()
	<-sent
	// The suite cannot see that the plugin has begun the call. It waits until the plugin has
	// answered three later calls and a moment has passed. A slow call takes longer than this
	// moment.
	const moment = 100 * time.Millisecond
	for range 3 {
		p.t.must(p.session.health(p.t.ctx))
	}
	select {
	case <-time.After(moment):
	case <-p.t.ctx.Done():
	}
	return outcome
}

func checkSIGINT(t *trial) {
	p := t.ready(asHost)
	p.delivers(t.batch(1)) // go-plugin's server ignores SIGINT only from some time after the handshake
	const signals, pause = 4, 50 * time.Millisecond
	for range signals {
		p.plugin.Signal(syscall.SIGINT)
		if p.plugin.awaitEnd(t.ctx, pause) == nil {
			t.fatalf("after SIGINT: %s; ignore it", p.plugin.ending())
		}
		p.lives("SIGINT")
	}
}

func checkOneHandshake(t *trial) {
	p := t.ready(asHost)
	p.endsReleased()
	if _, handshakes := p.plugin.out.counts(); handshakes != 1 {
		t.fatalf("%d lines of standard output have the form of a handshake, want 1", handshakes)
	}
}

func checkFewLines(t *trial) {
	const batches, most = 50, 100
	p := t.ready(asHost)
	for range batches {
		p.delivers(t.batch(1))
	}
	p.plugin.stop() // all output has been read when stop returns
	if lines, _ := p.plugin.out.counts(); lines > most {
		t.fatalf("%d batches made %d lines; print output for users to the descriptor of %s, and log less", batches, lines, wire.EnvStdoutFD)
	}
}

// checkLaunched starts the plugin by the code of a servetrace host, with go-plugin's
// client, and delivers batches.
func checkLaunched(t *trial) {
	path, err := t.suite.target.executable()
	t.must(err)
	null, err := openNull()
	t.must(err)
	defer func() { _ = null.Close() }() // nothing was written to it
	start, cancel := context.WithTimeout(t.ctx, t.suite.settings.patience)
	defer cancel()
	p, err := launch.Start(start, launch.Command{
		Name: "plugintest", Path: path, Trust: launch.Trust{AllowWritable: true}, // in a test, other users may be able to write the file
		Environ: slices.Concat(baseEnviron(false), t.suite.target.env, t.startEnviron()),
		Stdout:  null, Log: slog.New(slog.DiscardHandler),
	})
	t.must(err)
	defer stopLaunched(t, p)
	s := &subject{t: t, running: running{session: newSession(t.suite.settings, &t.suite.seen, p.Conn())}}
	s.session.processes = t.suite.about.isProcessor()
	if !t.suite.about.plain {
		s.configure()
	}
	const batches = 3
	for range batches {
		s.delivers(t.batch(10))
	}
	if !t.suite.about.plain {
		s.shutsDown()
	}
}

// stopLaunched stops a plugin that checkLaunched has started, and expects status 0. It
// reports nothing if the rule has failed already.
func stopLaunched(t *trial, p *launch.Process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.prompt())
	defer cancel()
	err := p.Stop(ctx)
	switch exit := p.Exit(); {
	case len(t.failures) > 0:
	case err != nil:
		t.errorf("%v", err)
	case exit != "exit status 0":
		t.errorf("it ended with %s; want exit status 0", exit)
	}
}
