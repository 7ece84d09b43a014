package plugintest

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"syscall"

	"github.com/servetrace/servetrace/pluginsdk"
)

// inner is a plugin that runs in this process, behind a real socket.
type inner struct {
	sockets   sockets
	out       output
	tap       *tap
	stdout    buffer // what it printed on Setup.Stdout, and its log
	log       buffer
	hostStdin *io.PipeWriter
	quit      context.CancelFunc
	ended     chan struct{} // closed when Run has returned
	err       error         // read after ended
}

var _ plugin = (*inner)(nil)

// startInner runs the target's Spec.
func startInner(spec pluginsdk.Spec, h how) (*inner, error) {
	folder, err := newSockets()
	if err != nil {
		return nil, err
	}
	p := &inner{sockets: folder, tap: &tap{}, ended: make(chan struct{})}
	spec.Exporter = p.tap.around(spec.Exporter)
	stdin, hostStdin := io.Pipe()
	handshake, pluginStdout := io.Pipe()
	p.hostStdin = hostStdin
	ctx, quit := context.WithCancel(context.Background())
	p.quit = quit
	env := pluginsdk.Env{
		Args:      []string{spec.Name},
		Environ:   append(baseEnviron(h.pathOnly), h.handshakeEnviron(folder.dir)...),
		Stdin:     stdin,
		Handshake: pluginStdout,
		Stdout:    &p.stdout,
		Stderr:    &p.stdout,
		Log:       &p.log,
	}
	var reading sync.WaitGroup
	reading.Go(func() { p.out.read(handshake, "stdout") })
	go func() { // ends when Run does, which stop waits for
		defer close(p.ended)
		p.err = pluginsdk.Run(ctx, env, spec)
		_ = pluginStdout.Close() // io.Pipe never fails
		reading.Wait()
		_ = stdin.Close()
	}()
	return p, nil
}

func (p *inner) terminate() { p.quit() }

// signal knows SIGTERM only.
func (p *inner) signal(sig syscall.Signal) {
	if sig == syscall.SIGTERM {
		p.quit()
	}
}

func (p *inner) closeStdin()           { _ = p.hostStdin.Close() }
func (p *inner) done() <-chan struct{} { return p.ended }
func (p *inner) exit() error           { return p.err }
func (p *inner) socketDir() string     { return p.sockets.dir }
func (p *inner) pid() int              { return 0 }

// printed is standard output, to which the log's last lines are added.
func (p *inner) printed() *output {
	var all output
	all.read(bytes.NewReader(p.log.bytes()), "stderr")
	return &all
}

func (p *inner) firstLine(ctx context.Context) (string, error) {
	select {
	case line := <-p.out.firstLine():
		return line, nil
	case <-p.ended:
		return "", cmp.Or(p.err, io.EOF)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// stop ends the plugin and waits until it has.
func (p *inner) stop() {
	p.quit()
	<-p.ended
	p.sockets.Remove()
}

// tap sees what reaches the exporter. Safe for concurrent use.
type tap struct {
	mu      sync.Mutex
	batches [][]byte
}

// around is the constructor of an exporter that is seen by the tap; of one
// that is a Flusher it is one too.
func (t *tap) around(construct pluginsdk.NewExporter) pluginsdk.NewExporter {
	if construct == nil {
		return nil // Run says what is wrong with the Spec
	}
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		exporter, err := construct(ctx, s)
		if err != nil || exporter == nil {
			return exporter, err
		}
		tapped := &tappedExporter{exporter, t}
		if flusher, ok := exporter.(pluginsdk.Flusher); ok {
			return struct {
				*tappedExporter
				pluginsdk.Flusher
			}{tapped, flusher}, nil
		}
		return tapped, nil
	}
}

// seen are the batches so far, encoded, in the order of their arrival.
func (t *tap) seen() [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.batches)
}

func (t *tap) add(encoded []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.batches = append(t.batches, encoded)
}

// tappedExporter notes each batch and passes it on.
type tappedExporter struct {
	inner pluginsdk.Exporter
	tap   *tap
}

var _ pluginsdk.Exporter = (*tappedExporter)(nil)

// Export notes the batch as the processors have left it.
func (e *tappedExporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	e.tap.add(b.Bytes())
	return e.inner.Export(ctx, b)
}

// Shutdown is the exporter's own.
func (e *tappedExporter) Shutdown(ctx context.Context) error { return e.inner.Shutdown(ctx) }

// buffer is a bytes.Buffer that is safe for concurrent use.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends b.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buf.Bytes())
}
