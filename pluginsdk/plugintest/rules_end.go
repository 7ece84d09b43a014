package plugintest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// flushRules are about Flush and Shutdown.
func flushRules() []rule {
	return []rule{
		{
			id: "flush.answered", title: "Flush is answered OK with no spans left, with and without batches before it",
			needs: lifecycle, after: delivered, shares: true, check: checkFlush,
		},
		{
			id: "flush.overlapping", title: "Export goes on during Flush and after it",
			needs: lifecycle, after: slices.Concat(delivered, []string{"export.received"}), shares: true, check: checkFlushOverlaps,
		},
		{
			id: "shutdown.answered", title: "Shutdown is answered OK with no spans left",
			needs: lifecycle, after: delivered, check: checkShutdown,
		},
		{
			id: "shutdown.unconfigured", title: "A plugin that was never configured answers Shutdown, and ends with status 0",
			needs: lifecycle, after: described, check: checkShutdownUnconfigured,
		},
		{
			id: "shutdown.twice", title: "A second Shutdown does not hang, and breaks nothing",
			needs: lifecycle, after: slices.Concat(delivered, []string{"shutdown.answered"}), check: checkShutdownTwice,
		},
		{
			id: "shutdown.export", title: "Export after Shutdown is refused with a code that is retried: another process may take the batch",
			needs: lifecycle, after: slices.Concat(delivered, []string{"shutdown.answered"}), check: checkExportAfterShutdown,
		},
	}
}

// endRules are about the end of the process, and all of its life.
func endRules() []rule {
	return []rule{
		{
			id: "end.released", title: "After Shutdown, GRPCController and the end of standard input it ends within 2 s, with status 0",
			after: slices.Concat(delivered, []string{"shutdown.answered"}), check: checkReleased,
		},
		{
			id: "end.files", title: "It leaves nothing in PLUGIN_UNIX_SOCKET_DIR",
			after: slices.Concat(delivered, []string{"shutdown.answered", "end.released"}), check: checkNoFiles,
		},
		{
			id: "end.stdin", title: "The end of standard input alone ends it within 2 s",
			needs: lifecycle, after: delivered, check: func(ctx context.Context, t *trial) error {
				s, err := t.ready(ctx, how{})
				if err != nil {
					return err
				}
				s.plugin.closeStdin()
				return s.endsPromptly(ctx, "the end of standard input")
			},
		},
		{
			id: "end.host-death", title: "When its host dies in the middle of calls it ends within 2 s",
			needs: lifecycle, after: delivered, check: checkHostDeath,
		},
		{
			id: "end.sigterm", title: "SIGTERM ends it within 2 s, with status 0",
			needs: lifecycle, after: delivered, check: checkSIGTERM,
		},
		{
			id: "end.drain", title: "On SIGTERM calls in flight are answered before it ends, with status 0",
			input: Slow, needs: lifecycle, after: slices.Concat(delivered, []string{"end.sigterm"}), check: checkDrain,
		},
		{
			id: "end.sigint", title: "SIGINT is ignored: a terminal sends it to the host too, which decides",
			needs: process, after: delivered, check: checkSIGINT,
		},
		{
			id: "output.handshake-once", title: "Standard output carries one handshake, in all of its life",
			needs: process, after: delivered, check: checkOneHandshake,
		},
		{
			id: "output.bounded", title: "Fifty batches make at most a hundred lines on descriptors 1 and 2: a host passes on no more in a second",
			needs: process, after: delivered, check: checkFewLines,
		},
		{
			id: "host.launched", title: "servetrace's own host starts it by go-plugin's client, feeds it, and ends it with status 0",
			needs: process, after: slices.Concat(delivered, []string{"shutdown.answered", "end.released"}), check: checkLaunch,
		},
	}
}

// endsPromptly waits for the end that the contract wants within two seconds.
func (s *session) endsPromptly(ctx context.Context, after string) error {
	if err := s.awaitEnd(ctx, s.prompt()); err != nil {
		return fmt.Errorf("after %s: %w; want its end within 2 s (the suite grants %v)", after, err, s.prompt())
	}
	return nil
}

// endsCleanly is endsPromptly with status 0.
func (s *session) endsCleanly(ctx context.Context, after string) error {
	if err := s.endsPromptly(ctx, after); err != nil {
		return err
	}
	if err := s.plugin.exit(); err != nil {
		return fmt.Errorf("after %s: %w; want status 0", after, err)
	}
	return nil
}

func checkFlush(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	for _, when := range []string{"before any batch", "after a batch", "again"} {
		reply, err := s.flush(ctx)
		if err != nil {
			return fmt.Errorf("Flush %s: %w", when, err)
		}
		if n := reply.GetSpansLeft(); n > 0 {
			return fmt.Errorf("Flush %s: %d spans left; want 0: every batch was answered OK, which means delivered", when, n)
		}
		if err := s.lives(ctx, t, "Flush "+when); err != nil {
			return err
		}
	}
	return nil
}

func checkFlushOverlaps(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	books := newBooks(t, s)
	const rounds, flushers = 10, 2
	if err := atOnce(flushers+1, func(i int) error {
		for range rounds {
			var err error
			if i == 0 { // one at a time: a plugin may declare that
				err = books.export(ctx, t.numbers.batch(2))
			} else {
				_, err = s.flush(ctx)
			}
			if err != nil {
				return fmt.Errorf("Export and Flush at once: %w", err)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return books.balance()
}

func checkShutdown(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	if err := s.mustExport(ctx, t.numbers.batch(2)); err != nil {
		return err
	}
	return s.shutsDown(ctx)
}

func (s *session) shutsDown(ctx context.Context) error {
	reply, err := s.shutdown(ctx)
	if err != nil {
		return fmt.Errorf("Shutdown: %w", err)
	}
	if n := reply.GetSpansLeft(); n > 0 {
		return fmt.Errorf("Shutdown: %d spans left; want 0: every batch was answered OK, which means delivered", n)
	}
	return nil
}

func checkShutdownUnconfigured(ctx context.Context, t *trial) error {
	s, err := t.launch(ctx, how{})
	if err != nil {
		return err
	}
	if _, err := s.describe(ctx); err != nil {
		return err
	}
	if err := s.answersShutdown(ctx); err != nil {
		return fmt.Errorf("Shutdown before Configure: %w", err)
	}
	s.letGo(ctx)
	return s.endsCleanly(ctx, "Shutdown without Configure, GRPCController.Shutdown and the end of standard input")
}

// answersShutdown wants an answer, OK or not, or the end of the process.
func (s *session) answersShutdown(ctx context.Context) error {
	_, err := s.shutdown(ctx)
	var answered *callError
	if err == nil || errors.As(err, &answered) && answered.answer.Code != wire.CodeRetry {
		return nil
	}
	if err := s.awaitEnd(ctx, s.prompt()); err == nil { // the connection broke, for it has ended
		return nil
	}
	return err
}

func checkShutdownTwice(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	if err := s.shutsDown(ctx); err != nil {
		return err
	}
	if err := s.answersShutdown(ctx); err != nil {
		return fmt.Errorf("a second Shutdown: %w", err)
	}
	s.letGo(ctx)
	return s.endsCleanly(ctx, "two Shutdowns, GRPCController.Shutdown and the end of standard input")
}

func checkExportAfterShutdown(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	if err := s.shutsDown(ctx); err != nil {
		return err
	}
	answer, err := s.export(ctx, t.numbers.batch(1))
	if err != nil {
		if !strings.Contains(err.Error(), "no answer within") { // nobody is there: that is retried too
			return nil
		}
		return fmt.Errorf("after Shutdown: %w", err)
	}
	if !answer.Retryable {
		return fmt.Errorf("a batch after Shutdown is answered %v; want UNAVAILABLE", answer)
	}
	return nil
}

func checkReleased(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	return s.releasedCleanly(ctx, t)
}

// releasedCleanly ends a plugin as a host does.
func (s *session) releasedCleanly(ctx context.Context, t *trial) error {
	if err := s.mustExport(ctx, t.numbers.batch(2)); err != nil {
		return err
	}
	if !t.about.plain {
		if err := s.shutsDown(ctx); err != nil {
			return err
		}
	}
	s.letGo(ctx)
	return s.endsCleanly(ctx, "Shutdown, GRPCController.Shutdown and the end of standard input")
}

// letGo tells a plugin in both ways that its host is done with it. What it
// answers does not matter here: it may have ended.
func (s *session) letGo(ctx context.Context) {
	_ = s.release(ctx)
	s.plugin.closeStdin()
}

func checkNoFiles(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	if err := s.releasedCleanly(ctx, t); err != nil {
		return err
	}
	left, err := os.ReadDir(s.plugin.socketDir())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%s holds %v after the end; remove the socket", wire.EnvSocketDir, left)
	}
	return nil
}

func checkHostDeath(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	calls := min(4, t.about.concurrency())
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	first := make(chan struct{}, calls)
	ended := make(chan struct{})
	var failed error // read after ended
	go func() {      // ends with the connection
		defer close(ended)
		failed = atOnce(calls, func(int) error {
			for call.Err() == nil {
				if _, err := s.export(call, t.numbers.batch(50)); err != nil {
					return err
				}
				select {
				case first <- struct{}{}:
				default:
				}
			}
			return nil
		})
	}()
	select {
	case <-first:
	case <-ended:
		return failed
	}
	s.hangUp() // as the kernel does with a dead host's connection
	s.plugin.closeStdin()
	err = s.endsPromptly(ctx, "the death of its host")
	cancel()
	<-ended
	return err
}

func checkSIGTERM(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	if err := s.mustExport(ctx, t.numbers.batch(2)); err != nil {
		return err
	}
	s.plugin.terminate()
	return s.endsCleanly(ctx, "SIGTERM")
}

func checkDrain(ctx context.Context, t *trial) error {
	if !t.can(Slow) {
		return skipWithoutInput(Slow)
	}
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	const attempts = 5
	for range attempts {
		b, restored, err := t.provokeSlow()
		if err != nil {
			return err
		}
		answered, err := s.begin(ctx, b)
		if err != nil {
			return errors.Join(err, <-restored)
		}
		select {
		case err := <-answered:
			if err := errors.Join(err, <-restored); err != nil {
				return fmt.Errorf("input %q: %w", Slow, err)
			}
			continue // this machine is slower still
		default:
		}
		s.plugin.terminate()
		if err := errors.Join(<-answered, <-restored); err != nil {
			return fmt.Errorf("a call in flight at SIGTERM: %w", err)
		}
		return s.endsCleanly(ctx, "SIGTERM and the last call")
	}
	return skipf("input %q was answered before SIGTERM could be sent, %d times; want one that takes half a second or more", Slow, attempts)
}

// slowFor is how long a back end is left in the state for Slow.
const slowFor = time.Second

// provokeSlow is provoke for Slow, and has the back end restored in the background.
// The caller must receive the outcome of that once.
func (t *trial) provokeSlow() (b batch, restored <-chan error, err error) {
	b, restore, err := t.provoke(Slow)
	if err != nil {
		return b, nil, err
	}
	outcome := make(chan error, 1)
	if t.states[Slow] == nil {
		outcome <- nil
		return b, outcome, nil
	}
	time.AfterFunc(slowFor, func() { outcome <- restore() }) // ends as restore does
	return b, outcome, nil
}

// begin makes a call, and returns when the plugin has begun it. The channel then
// says how it ends; the call has a deadline.
func (s *session) begin(ctx context.Context, b batch) (answered <-chan error, err error) {
	sent, end := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	b.sent = func() { once.Do(func() { close(sent) }) }
	go func() { // ends with the call
		defer b.sent() // there may have been no connection
		end <- s.mustExport(ctx, b)
	}()
	<-sent
	// What was sent before these has begun when they are answered.
	for range 3 {
		if err := s.health(ctx); err != nil {
			return nil, err
		}
	}
	return end, nil
}

func checkSIGINT(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	// A plugin that has answered has set itself up: go-plugin's server does so
	// after the handshake.
	if err := s.mustExport(ctx, t.numbers.batch(1)); err != nil {
		return err
	}
	const looks, pause = 4, 50 * time.Millisecond
	for range looks {
		s.plugin.signal(syscall.SIGINT)
		select {
		case <-s.plugin.done():
			return fmt.Errorf("after SIGINT: %s; ignore it", ending(s.plugin))
		case <-time.After(pause):
		}
		if err := s.lives(ctx, t, "SIGINT"); err != nil {
			return err
		}
	}
	return nil
}

func checkOneHandshake(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	if err := s.releasedCleanly(ctx, t); err != nil {
		return skipf("it does not end by itself: %v", err)
	}
	if _, handshakes := s.plugin.printed().counts(); handshakes != 1 {
		return fmt.Errorf("%d lines of standard output have the form of a handshake, want 1", handshakes)
	}
	return nil
}

func checkFewLines(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	const batches, most = 50, 100
	for range batches {
		if err := s.mustExport(ctx, t.numbers.batch(1)); err != nil {
			return err
		}
	}
	s.plugin.stop() // until then some of it may not have been read
	if lines, _ := s.plugin.printed().counts(); lines > most {
		return fmt.Errorf("%d batches made %d lines; print to the descriptor of %s what is meant to be read, and log less", batches, lines, wire.EnvStdoutFD)
	}
	return nil
}
