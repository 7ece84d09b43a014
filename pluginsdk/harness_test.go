package pluginsdk_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// envMode makes the test binary a plugin, or a host that starts one.
const envMode = "PLUGINSDK_TEST_MODE"

func TestMain(m *testing.M) {
	switch os.Getenv(envMode) {
	case "plugin":
		pluginsdk.Main(testSpec)
	case "processor":
		pluginsdk.Main(processorSpec)
	case "family":
		startChild()
		pluginsdk.Main(testSpec)
	case "child":
		<-time.After(3 * patience)
	case "host":
		hostUntilKilled()
	default:
		goleak.VerifyTestMain(m)
	}
}

// childEnviron returns the environment of every process of this test binary: a place for
// coverage, and no pause at the end under the race detector.
func childEnviron(tb testing.TB) []string {
	tb.Helper()
	return []string{"GOCOVERDIR=" + tb.TempDir(), "GORACE=atexit_sleep_ms=0"}
}

// patience bounds every wait of these tests; none takes a tenth of it.
const patience = 20 * time.Second

// running is a plugin that has shaken hands, in this process or in another.
type running struct {
	handshake string
	socket    string
	conn      *grpc.ClientConn
	lifecycle pluginv1.LifecycleClient
	traces    coltracepb.TraceServiceClient
	// stdout is the plugin's output, stderr its log.
	stdout, stderr *output
	// closeStdin asks the plugin to end, like a host.
	closeStdin func()
	// signal asks it to end, as SIGTERM does.
	terminate func()
	// wait returns the plugin's end: Run's error, or the state of the process.
	wait func() error
	// process is nil for a plugin in this process.
	process *os.Process
}

// forEachKind runs one test body over testSpec in this process and over the
// test binary as a plugin process.
func forEachKind(t *testing.T, body func(t *testing.T, r *running)) {
	t.Run("Run", func(t *testing.T) { body(t, startRun(t, testSpec)) })
	t.Run("Main", func(t *testing.T) { body(t, startMain(t)) })
}

// hostEnviron is the environment that a host gives, with a socket folder.
func hostEnviron(tb testing.TB) []string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sdk") // tb.TempDir is too long for a socket
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			tb.Errorf("plugin left %q behind", left)
		}
		_ = os.RemoveAll(dir)
	})
	return []string{
		wire.CookieKey + "=" + wire.CookieValue,
		wire.EnvProtocolVersions + "=1",
		wire.EnvSocketDir + "=" + dir,
		"HOME=/nowhere",
	}
}

// startRun runs spec in this process, with environ besides a host's variables.
func startRun(tb testing.TB, spec pluginsdk.Spec, environ ...string) *running {
	tb.Helper()
	r := &running{stdout: &output{}, stderr: &output{}}
	stdin, stdinWriter := io.Pipe()
	shake, shakeWriter := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var once sync.Once
	var end error
	r.closeStdin = func() { _ = stdinWriter.Close() }
	r.terminate = cancel
	r.wait = func() error {
		once.Do(func() { end = receive(tb, ended, "Run to return") })
		return end
	}
	env := pluginsdk.Env{
		Args:      []string{"/plugins/test"},
		Environ:   append(hostEnviron(tb), environ...),
		Stdin:     stdin,
		Handshake: shakeWriter,
		Stdout:    r.stdout,
		Stderr:    r.stderr,
	}
	go func() { ended <- pluginsdk.Run(ctx, env, spec) }()
	r.connect(tb, shake)
	tb.Cleanup(r.end)
	return r
}

// startMain starts this binary as a plugin, with plain pipes.
func startMain(tb testing.TB, environ ...string) *running {
	tb.Helper()
	r := &running{stdout: &output{}, stderr: &output{}}
	cmd := exec.Command(os.Args[0])
	cmd.Env = slices.Concat(hostEnviron(tb), childEnviron(tb), []string{envMode + "=plugin", wire.EnvStdoutFD + "=3"}, environ)
	cmd.Stderr = r.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shared, sharedWriter, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{sharedWriter}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	_ = sharedWriter.Close()
	var copies sync.WaitGroup
	copies.Go(func() { _, _ = io.Copy(r.stdout, shared) })
	r.process = cmd.Process
	r.closeStdin = func() { _ = stdin.Close() }
	r.terminate = func() { _ = cmd.Process.Signal(syscall.SIGTERM) }
	ended := make(chan error, 1)
	r.wait = sync.OnceValue(func() error {
		go func() {
			copies.Wait()
			ended <- cmd.Wait()
		}()
		err := receive(tb, ended, "the plugin process to end")
		_ = shared.Close()
		return err
	})
	r.connect(tb, stdout)
	tb.Cleanup(func() {
		timer := time.AfterFunc(patience/2, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		r.end()
	})
	return r
}

// connect reads the handshake and connects to its address.
func (r *running) connect(tb testing.TB, shake io.Reader) {
	tb.Helper()
	line, err := bufio.NewReader(shake).ReadString('\n')
	if err != nil {
		tb.Fatalf("read handshake: %v; log:\n%s", err, r.stderr.clipped())
	}
	r.handshake = strings.TrimSuffix(line, "\n")
	fields := strings.Split(r.handshake, "|")
	if len(fields) < 5 {
		tb.Fatalf("handshake %q has too few fields", r.handshake)
	}
	r.socket = fields[3]
	r.conn, err = grpc.NewClient("unix:"+r.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = r.conn.Close() })
	r.lifecycle = pluginv1.NewLifecycleClient(r.conn)
	r.traces = coltracepb.NewTraceServiceClient(r.conn)
}

// end ends the plugin as a host does, if it has not ended.
func (r *running) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = r.lifecycle.Shutdown(ctx, &pluginv1.ShutdownRequest{})
	r.closeStdin()
	_ = r.wait()
}

// configure calls Configure with env, and wants no diagnostics.
func (r *running) configure(t testing.TB, env map[string]string) {
	t.Helper()
	answer, err := r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{Env: env})
	if err != nil || len(answer.GetDiagnostics()) > 0 {
		t.Fatalf("Configure: %v, %v", answer.GetDiagnostics(), err)
	}
}

// output is a buffer that can be waited for.
type output struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{} // closed and made anew by each Write
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// clipped is the output for a failed test, long lines cut: makeNoise's have
// 70 KiB.
func (o *output) clipped() string {
	const longest = 300
	var b strings.Builder
	for line := range strings.Lines(o.String()) {
		if len(line) > longest {
			line = fmt.Sprintf("%s... (%d bytes)\n", line[:longest], len(line))
		}
		b.WriteString(line)
	}
	return b.String()
}

// await waits until the output contains text.
func (o *output) await(tb testing.TB, text string) {
	tb.Helper()
	timeout := time.After(patience)
	for {
		o.mu.Lock()
		if strings.Contains(o.buf.String(), text) {
			o.mu.Unlock()
			return
		}
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
		case <-timeout:
			tb.Fatalf("no %q in:\n%s", text, o.clipped())
		}
	}
}

// receive waits for a value.
func receive[T any](tb testing.TB, from <-chan T, what string) T {
	tb.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		tb.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// testSpec does the action in the name of each span.
var testSpec = pluginsdk.Spec{
	Name:        "test",
	Version:     "1.2.3",
	Description: "does what the names of spans say",
	Env:         []string{"TEST_*", "DD_SITE"},
	Limits:      pluginsdk.Limits{MaxBatchSpans: 100, MaxConcurrency: 32},
	Processors: []pluginsdk.NewProcessor{
		pluginsdk.EachSpan("health", func(span pluginsdk.Span) error {
			if strings.HasPrefix(span.Name(), "health") {
				span.Drop()
			}
			return nil
		}),
		func(context.Context, pluginsdk.Setup) (pluginsdk.Processor, error) { return faultyProcessor{}, nil },
	},
	Exporter: newTestExporter,
}

// faultyProcessor has no name of its own.
type faultyProcessor struct{}

func (faultyProcessor) Process(_ context.Context, b *pluginsdk.Batch) error {
	for span := range b.Spans() {
		switch span.Name() {
		case "process: drop":
			span.Drop()
		case "process: fail":
			return errors.New("cannot process")
		case "process: panic":
			panic("processor's panic")
		case "process: partial":
			return pluginsdk.Partial(1, "not a processor's word")
		}
	}
	return nil
}

// testExporter records its calls on Setup.Stdout.
type testExporter struct{ setup pluginsdk.Setup }

func newTestExporter(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	if err := s.DecodeConfig(new(any)); err != nil {
		return nil, err
	}
	s.Log.Info("constructed", "context", fmt.Sprintf("%+v", s.Context), "config", string(s.Config))
	switch s.Getenv("TEST_CONSTRUCT") {
	case "warn":
		s.Warn("TEST_CONSTRUCT", "is odd")
	case "fail":
		s.Warn("", "worse follows")
		return nil, errors.Join(
			&pluginsdk.ConfigError{Path: "TEST_CONSTRUCT", Err: errors.New(`"fail" is not allowed`)},
			fmt.Errorf("document: %w", &pluginsdk.ConfigError{Path: "a.b", Err: errors.New("is missing")}),
			errors.New("and more"),
		)
	case "panic":
		panic("constructor's panic")
	case "nothing":
		return nil, nil
	}
	return &testExporter{s}, nil
}

func (e *testExporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	var errs []error
	for span := range b.Spans() {
		if err := e.span(ctx, b, span.Name()); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

func (e *testExporter) span(ctx context.Context, b *pluginsdk.Batch, name string) error {
	cause := errors.New("back end says no")
	switch name {
	case "fail":
		return cause
	case "fail for ever":
		return pluginsdk.Permanent(cause)
	case "fail for a while":
		return pluginsdk.RetryAfter(cause, 1500*time.Millisecond)
	case "partial":
		return pluginsdk.Partial(1, "one was too old")
	case "partial beyond":
		return pluginsdk.Partial(1000, "all were too old")
	case "sample":
		b.CountFiltered("test.sampler", 1)
		b.CountFiltered("no name", 1) // has a space: not counted
	case "panic":
		panic("exporter's panic")
	case "slow":
		e.say("begun\n")
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	case "tell":
		e.say("begun\n")
		select {
		case <-time.After(500 * time.Millisecond):
			e.say("finished\n")
		case <-ctx.Done():
			e.say("cancelled\n")
		}
	case "until told":
		e.say("begun\n")
		<-ctx.Done()
		return context.Cause(ctx)
	case "noise":
		return makeNoise()
	case "log":
		e.setup.Log.Warn("as asked", "count", 3, "@message", 5, "msg", "mine")
	case "environment":
		e.say(fmt.Sprintf("Getenv %q os %q HOME %q other %q\n", e.setup.Getenv("TEST_VALUE"),
			os.Getenv("TEST_VALUE"), e.setup.Getenv("HOME"), e.setup.Getenv("PATH")))
	case "who":
		e.say(fmt.Sprintf("id %q attempt %d spans %d bytes %d\n", b.ID(), b.Attempt(), b.Len(), len(b.Bytes())))
	}
	return nil
}

// makeNoise prints as careless code does: with fmt, and past Go to descriptor 1.
func makeNoise() error {
	fmt.Println("a print in an exporter")
	line := append(bytes.Repeat([]byte("x"), 70<<10), '\n')
	for range 5 {
		if _, err := syscall.Write(syscall.Stdout, line); err != nil {
			return err
		}
	}
	return nil
}

func (e *testExporter) say(text string) { _, _ = io.WriteString(e.setup.Stdout, text) }

func (e *testExporter) Flush(context.Context) error {
	e.say("flushed\n")
	return nil
}

func (e *testExporter) Shutdown(context.Context) error {
	e.say("shut down\n")
	return nil
}
