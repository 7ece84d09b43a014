package plugintest

import (
	"context"
	"io"
	"slices"
	"sync"
	"syscall"

	"github.com/servetrace/servetrace/pluginsdk"
)

// inner is a plugin that runs in this process. It has a real socket.
type inner struct {
	quit        context.CancelFunc
	hostStdin   *io.PipeWriter
	ended       chan struct{} // closed when pluginsdk.Run has returned
	tap         tap
	stdout, log buffer // text of Setup.Stdout, and of the log
}

var _ runner = (*inner)(nil)

// startInner runs a Spec in this process.
func (p *plugin) startInner(spec pluginsdk.Spec, environ []string) {
	stdin, hostStdin := io.Pipe()
	handshake, pluginStdout := io.Pipe()
	ctx, quit := context.WithCancel(context.Background())
	in := &inner{quit: quit, hostStdin: hostStdin, ended: make(chan struct{})}
	spec.Exporter = in.tap.around(spec.Exporter)
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
	go func() { // ends with Run, and stop waits for it
		defer close(in.ended)
		err = pluginsdk.Run(ctx, env, spec)
		_ = pluginStdout.Close() // closing a pipe in memory never fails
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

// Done is closed when the plugin has ended.
func (p *inner) Done() <-chan struct{} { return p.ended }

// PID returns 0.
func (p *inner) PID() int { return 0 }

// tap keeps each batch that reaches the exporter, or that a processor plugin returns. It
// is safe for concurrent use.
type tap struct {
	mu      sync.Mutex
	batches [][]byte
}

func (t *tap) around(construct pluginsdk.NewExporter) pluginsdk.NewExporter {
	if construct == nil {
		return nil // this is a processor plugin
	}
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		exporter, err := construct(ctx, s)
		if err != nil || exporter == nil {
			return exporter, err
		}
		return tappedExporter{exporter, t}, nil
	}
}

func (t *tap) add(encoded []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.batches = append(t.batches, encoded)
}

// seen returns the encoded batches so far, in the order of their arrival.
func (t *tap) seen() [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.batches)
}

type tappedExporter struct {
	pluginsdk.Exporter
	tap *tap
}

// Export keeps the batch with the edits of the processors, and passes it on.
func (e tappedExporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	e.tap.add(b.Bytes())
	return e.Exporter.Export(ctx, b)
}

// Flush flushes the exporter, if it is a Flusher.
func (e tappedExporter) Flush(ctx context.Context) error {
	if flusher, ok := e.Exporter.(pluginsdk.Flusher); ok {
		return flusher.Flush(ctx)
	}
	return nil
}
