package servetrace

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// TestMain lets this test binary also be, under other names, the service that
// the process tests start and the plugins that the service starts.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "service":
		serviceMain()
		os.Exit(0)
	case "console":
		pluginsdk.Main(pluginsdk.Spec{
			Name: "console", Env: consoleexporter.EnvPatterns(), Exporter: consoleexporter.New,
			Limits: pluginsdk.Limits{MaxConcurrency: 1, MaxBatchSpans: 512},
		})
	case "forger":
		pluginsdk.Main(pluginsdk.Spec{Name: "forger", Exporter: newForger})
	case "acme": // a plugin of a third party, with variables of its own
		pluginsdk.Main(pluginsdk.Spec{
			Name: "acme", Env: []string{"SERVE_ACME_*"}, Exporter: consoleexporter.New,
		})
	}
	os.Exit(m.Run())
}

// bound is how long anything in these tests may take at most.
const bound = 30 * time.Second

// link returns the path of an executable by which this test binary takes a role.
func link(t *testing.T, dir, role string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, role)
	if err := os.Symlink(exe, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// proc is a running service.
type proc struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
	log *syncBuffer // standard error

	ended  chan struct{} // closed when service and plugin have closed standard output
	stdout bytes.Buffer  // to be read once ended is closed
	err    error         // of the process; likewise
}

// startProc starts the service with these settings, and waits until it serves.
func startProc(t *testing.T, env ...string) *proc {
	t.Helper()
	p := launchProc(t, env...)
	deadline := time.After(bound)
	for p.url == "" {
		select {
		case <-p.log.more:
			if found := regexp.MustCompile(`\burl=(http://\S+)`).FindStringSubmatch(p.log.String()); found != nil {
				p.url = found[1]
			}
		case <-p.ended:
			t.Fatalf("the service ended before it served: %v\n%s", p.err, p.log)
		case <-deadline:
			t.Fatalf("the service does not serve:\n%s", p.log)
		}
	}
	return p
}

// launchProc starts the service and does not wait.
func launchProc(t *testing.T, env ...string) *proc {
	t.Helper()
	dir := t.TempDir()
	link(t, dir, "console")
	link(t, dir, "acme")
	p := &proc{t: t, cmd: exec.Command(link(t, dir, "service")), ended: make(chan struct{}), log: newSyncBuffer()}
	// The race detector would have each process sleep for a second at its end.
	// On a busy machine a plugin may take long to start, and the last spans wait
	// for it.
	p.cmd.Env = append([]string{
		"GORACE=atexit_sleep_ms=0", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "SERVE_TRACING_PLUGIN_DIR=" + dir, "SERVE_HTTP_PORT=0",
		"SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_STOP_TIMEOUT=1m",
	}, env...)
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process and its plugin; the clean-up waits
		_, _ = io.Copy(&p.stdout, stdout)
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // a test that failed half-way
		<-p.ended
	})
	return p
}

func (p *proc) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal %v: %v\n%s", sig, err, p.log)
	}
}

// wait waits until service and plugin have ended, and returns the exit code.
func (p *proc) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(bound):
		p.t.Fatalf("the service does not end:\n%s", p.log)
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return exit.ExitCode()
	}
	if p.err != nil {
		p.t.Fatalf("the service ended: %v", p.err)
	}
	return 0
}

// printed is a span as the console plugin prints it, in part.
type printed struct {
	Name    string `json:"name"`
	Context struct {
		TraceID string `json:"trace_id"`
		SpanID  string `json:"span_id"`
	} `json:"context"`
	ParentID   string         `json:"parent_id"`
	Attributes map[string]any `json:"attributes"`
	Resource   struct {
		Attributes map[string]any `json:"attributes"`
	} `json:"resource"`
}

// spans returns the spans that the console plugin printed. Call wait before.
func (p *proc) spans() []printed {
	p.t.Helper()
	var all []printed
	for d := json.NewDecoder(strings.NewReader(p.stdout.String())); ; {
		var one printed
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			p.t.Fatalf("standard output is not spans: %v\n%s", err, p.stdout.String())
		}
		all = append(all, one)
	}
}

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	more chan struct{} // has one element after a write

	mu   sync.Mutex
	text bytes.Buffer
}

func newSyncBuffer() *syncBuffer { return &syncBuffer{more: make(chan struct{}, 1)} }

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	b.text.Write(p)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await waits until the log has the text.
func (b *syncBuffer) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(bound)
	for !strings.Contains(b.String(), text) {
		select {
		case <-b.more:
		case <-deadline:
			t.Fatalf("no %q in the log:\n%s", text, b)
		}
	}
}
