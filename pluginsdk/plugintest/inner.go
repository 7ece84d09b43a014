package plugintest

import (
	"context"
	"io"
	"sync"
	"syscall"

	"github.com/servetrace/servetrace/pluginsdk"
)

// inner is a plugin that runs in this process, behind a real socket.
type inner struct {
	quit        context.CancelFunc
	hostStdin   *io.PipeWriter
	ended       chan struct{}      // closed when pluginsdk.Run has returned
	exported    sharedList[[]byte] // the encoded batches that have reached the exporter
	stdout, log buffer             // what the plugin has written to Setup.Stdout, and its log
}

var _ runner = (*inner)(nil)

// startInner starts the plugin that spec declares in this process. environ has the
// variables that a host would set.
func (p *plugin) startInner(spec pluginsdk.Spec, environ []string) {
	stdin, hostStdin := io.Pipe()
	handshake, pluginStdout := io.Pipe()
	ctx, quit := context.WithCancel(context.Background())
	in := &inner{quit: quit, hostStdin: hostStdin, ended: make(chan struct{})}
	if spec.Exporter != nil {
		spec.Exporter = in.tapped(spec.Exporter)
	}
	env := pluginsdk.Env{
		Args:      []string{spec.Name},
		Environ:   environ,
		Stdin:     stdin,
		Handshake: pluginStdout,
		Stdout:    &in.stdout,
		Stderr:    &in.stdout,
		Log:       &in.log,
	}
	var err error
	p.runner, p.inner, p.exit = in, in, func() error { return err }
	var reading sync.WaitGroup
	reading.Go(func() { p.out.readStdout(handshake) })
	go func() { // this goroutine ends with Run; stop waits for it
		defer close(in.ended)
		err = pluginsdk.Run(ctx, env, spec)
		_ = pluginStdout.Close() // never fails, because it is a pipe in memory
		reading.Wait()
		_ = stdin.Close()
	}()
}

// Signal ends the plugin on SIGTERM, and ignores all other signals.
func (p *inner) Signal(sig syscall.Signal) {
	if sig == syscall.SIGTERM {
		p.quit()
	}
}

// CloseStdin ends the plugin's standard input.
func (p *inner) CloseStdin() { _ = p.hostStdin.Close() }

// Kill ends the plugin like SIGTERM, because a goroutine cannot be killed.
func (p *inner) Kill(string) { p.quit() }

// Done returns a channel that is closed when the plugin has ended.
func (p *inner) Done() <-chan struct{} { return p.ended }

// PID returns 0, because the plugin has no process of its own.
func (p *inner) PID() int { return 0 }

// tapped returns a constructor of the same exporter, which also adds each batch to exported.
func (p *inner) tapped(construct pluginsdk.NewExporter) pluginsdk.NewExporter {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		exporter, err := construct(ctx, s)
		if err != nil || exporter == nil {
			return exporter, err
		}
		return tappedExporter{exporter, &p.exported}, nil
	}
}

type tappedExporter struct {
	pluginsdk.Exporter
	exported *sharedList[[]byte]
}

// Export records the batch, with the edits of the processors, and passes it to the
// exporter.
func (e tappedExporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	e.exported.add(b.Bytes())
	return e.Exporter.Export(ctx, b)
}

// Flush flushes the exporter, if it is a Flusher.
func (e tappedExporter) Flush(ctx context.Context) error {
	if flusher, ok := e.Exporter.(pluginsdk.Flusher); ok {
		return flusher.Flush(ctx)
	}
	return nil
}
