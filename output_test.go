package servetrace

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/pluginsdk"
)

// forged is how a line of the service's log looks.
const forged = `time=2026-01-01T00:00:00.000Z level=ERROR msg=forged`

// newForger is a plugin that prints to every file, pipe and terminal that it has
// open, without end, from the first batch on.
func newForger(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
	return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error {
		for fd := range 64 {
			var info unix.Stat_t
			if unix.Fstat(fd, &info) != nil || info.Mode&unix.S_IFMT == unix.S_IFSOCK {
				continue
			}
			go func() { // ends with the process, or when fd cannot be written
				for {
					if _, err := unix.Write(fd, []byte(forged+"\n")); err != nil && !errors.Is(err, unix.EAGAIN) {
						return
					}
				}
			}()
		}
		return nil
	}), nil
}

// onePipe is a service with one pipe for standard output and standard error. Only the
// test reads the pipe.
type onePipe struct {
	cmd       *exec.Cmd
	pipe, own *os.File // the ends of the pipe
	lines     *bufio.Reader
	url       string
	requests  int
}

func startOnePipe(t *testing.T, plugin string) *onePipe {
	t.Helper()
	dir := t.TempDir()
	link(t, dir, plugin)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	p := &onePipe{cmd: exec.Command(link(t, dir, "service")), pipe: r, own: w, lines: bufio.NewReader(r)}
	p.cmd.Env = []string{
		"GORACE=atexit_sleep_ms=0", "TMPDIR=" + dir, "SERVE_TRACING_PLUGIN_DIR=" + dir, "SERVE_HTTP_PORT=0",
		"SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_EXPORT_TIMEOUT=1m", "SERVE_TRACING_EXPORTER_PLUGIN=" + plugin,
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // a test that failed half-way
	for line := ""; !strings.Contains(line, "msg=serving"); {
		if line, err = p.lines.ReadString('\n'); err != nil {
			t.Fatalf("the service does not serve: %v", err)
		}
		if strings.Contains(line, "msg=serving") {
			p.url = urlIn(t, line)
		}
	}
	return p
}

// request sends a request, which must be answered.
func (p *onePipe) request(t *testing.T) {
	t.Helper()
	client := &http.Client{Timeout: bound}
	resp, err := client.Get(p.url + "/")
	if err != nil {
		t.Fatalf("request %d: %v", p.requests, err)
	}
	_ = resp.Body.Close()
	p.requests++
}

// fill sends requests until the pipe is full and has been so for a hundred more.
func (p *onePipe) fill(t *testing.T) {
	t.Helper()
	for full := 0; full < 100; {
		p.request(t)
		if full++; !isFull(t, p.own) {
			full = 0
		}
	}
}

// isFull reports whether a pipe takes nothing.
func isFull(t *testing.T, w *os.File) bool {
	t.Helper()
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(w.Fd()), Events: unix.POLLOUT}}, 0)
	if err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatal(err)
	}
	return ready == 0 && err == nil
}

// stop ends the service and reads the rest of its output.
func (p *onePipe) stop(t *testing.T) string {
	t.Helper()
	read := make(chan string, 1)
	go func() { // ends with the service
		text, _ := io.ReadAll(p.lines)
		read <- string(text)
	}()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the service ended: %v", err)
	}
	_ = p.own.Close()
	return <-read
}

// Log and spans are in one pipe, which is not read while requests come: no request waits.
// Then all lines are there, and whole.
func TestOnePipeThatIsReadLate(t *testing.T) {
	p := startOnePipe(t, "console")
	p.fill(t)
	text := p.stop(t)
	var printed bytes.Buffer
	requests := 0
	for line := range strings.Lines(text) {
		switch {
		case !strings.HasPrefix(line, "time="):
			printed.WriteString(line)
		case strings.Count(line, "time=") != 1 || !strings.HasSuffix(line, "\n"):
			t.Errorf("not a whole line: %q", line)
		case strings.Contains(line, "msg=request"):
			requests++
		}
	}
	spans := map[string]bool{}
	for decoder := json.NewDecoder(&printed); ; {
		var one struct {
			Context struct {
				SpanID string `json:"span_id"`
			} `json:"context"`
		}
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("what is not the log is not spans: %v", err)
		}
		spans[one.Context.SpanID] = true
	}
	if requests != p.requests || len(spans) != 4*p.requests {
		t.Errorf("%d requests have %d lines and %d spans", p.requests, requests, len(spans))
	}
	if want := fmt.Sprintf("console.delivered=%d\n", len(spans)); !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text[strings.LastIndex(text, "msg=stopping"):])
	}
}

// A plugin that prints without end to all that it has open: no request waits.
func TestOnePipeAndAPluginThatFloodsIt(t *testing.T) {
	p := startOnePipe(t, "forger")
	p.fill(t)
	if text := p.stop(t); !strings.Contains(text, "msg=stopped") || strings.Count(text, "msg=request") != p.requests {
		t.Errorf("%d requests have %d lines", p.requests, strings.Count(text, "msg=request"))
	}
}

// A plugin cannot forge a line of the log, by any descriptor.
func TestPluginForgesNoLines(t *testing.T) {
	dir := t.TempDir()
	link(t, dir, "forger")
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=forger", "SERVE_TRACING_PLUGIN_DIR="+dir, "SERVE_TRACING_STOP_TIMEOUT=5s")
	get(t, p.url+"/")
	p.log.await(t, "forged") // as a line of the plugin's
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.Lines(p.log.String()) {
		if !strings.HasPrefix(line, "time=") || strings.HasPrefix(line, forged) {
			t.Fatalf("a line that the log did not write: %q", line)
		}
		if strings.Contains(line, "msg=forged") && !strings.Contains(line, "plugin=forger") {
			t.Fatalf("a line that does not name the plugin: %q", line)
		}
	}
	if !strings.Contains(p.stdout.String(), forged+"\n") {
		t.Error("what the plugin printed is not on standard output")
	}
}

// Standard output is never read: the service stops all the same, and reports the number
// of lost lines.
func TestHungOutputDoesNotKeepTheService(t *testing.T) {
	dir := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	link(t, dir, "console")
	cmd := exec.Command(link(t, dir, "service"))
	cmd.Env = []string{
		"GORACE=atexit_sleep_ms=0", "TMPDIR=" + dir, "SERVE_TRACING_PLUGIN_DIR=" + dir, "SERVE_HTTP_PORT=0",
		"SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_EXPORTER_PLUGIN=console",
	}
	log := newSyncBuffer()
	cmd.Stdout, cmd.Stderr = w, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // a test that failed half-way
	log.await(t, "msg=serving")
	p := &onePipe{url: urlIn(t, log.String()), own: w}
	p.fill(t)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the service ended: %v", err)
	}
	if !strings.Contains(log.String(), "did not reach the service's standard output\" plugin=console lines=") {
		t.Errorf("the log does not say what is lost:\n%s", log.String()[strings.LastIndex(log.String(), "msg=stopping"):])
	}
}
