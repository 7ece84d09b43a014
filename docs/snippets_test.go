// Package docs holds the documents, and the test that runs their examples.
//
// The info string of a fenced block marks its use:
//
//	```go file=names/main.go      written to that file
//	```diff edit=names/main.go    changes of lines that the file has exactly once
//	```sh run=names               run by sh -e in the folder names
//	```sh start=names             run in the background until the test ends
//	```text out=names             lines that must be in the output of names
//	```text stop=names            the same, after Ctrl-C has ended the program of start=
//	```sh norun="…"               not run, for that reason
//
// The text before a file's block has its name in backticks, because readers see no info
// string. The blocks of one folder are one test, in the order of the document. A block of
// Go, shell, YAML, Python or text without a mark fails, so that no example is left out by
// mistake. The variable SERVETRACE_CLONE is a clone, and a fake back end listens at
// localhost:4318 and localhost:8126. In a diff, a line with only @@ begins the next place.
//
// Open this file first. pages_test.go checks the pages themselves.
package docs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience is how long a step may take on a busy machine.
const patience = 5 * time.Minute

// clone is the variable of the documents for the folder of this repository. Where a file
// has no variables, it is yamlClone.
const clone, yamlClone = "$SERVETRACE_CLONE", "/path/to/servetrace"

func TestSnippets(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds modules")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	bin := buildPrograms(t, root)
	for _, name := range append(pages(t), "../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var folders []string
		steps := map[string][]block{}
		for _, b := range blocks(t, name, string(text)) {
			if _, seen := steps[b.folder]; !seen {
				folders = append(folders, b.folder)
			}
			steps[b.folder] = append(steps[b.folder], b)
		}
		for _, folder := range folders {
			t.Run(filepath.Base(name)+"/"+folder, func(t *testing.T) {
				t.Parallel()
				place := newPlace(t, root, bin)
				for _, b := range steps[folder] {
					place.do(t, b)
				}
			})
		}
	}
}

// block is a fenced block that a test can do something with.
type block struct {
	where  string // document and line
	what   string // file, edit, run, start, out or stop
	folder string
	file   string // for file and edit, below the folder
	text   string
}

var (
	fence = regexp.MustCompile("(?ms)^```([a-z]*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$")
	mark  = regexp.MustCompile(`^(file|edit|run|start|out|stop)=([a-z0-9-]+)(?:/([A-Za-z0-9_./-]+))?$`)
)

// blocks returns the blocks of a document that are to be run. Blocks in languages that
// cannot run (a picture, a table of output) need no mark.
func blocks(t *testing.T, name, text string) []block {
	t.Helper()
	var list []block
	last := 0 // where the block before ended
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		language, info, body := text[at[2]:at[3]], text[at[4]:at[5]], text[at[6]:at[7]]
		where := fmt.Sprintf("%s:%d", name, 1+strings.Count(text[:at[0]], "\n"))
		m := mark.FindStringSubmatch(strings.TrimSpace(info))
		if m != nil && m[1] == "file" && !strings.Contains(text[last:at[0]], "`"+filepath.Base(m[3])+"`") {
			t.Errorf("%s: the text before the block does not say that it is `%s`", where, filepath.Base(m[3]))
		}
		last = at[1]
		switch {
		case m != nil && (m[1] == "file" || m[1] == "edit") == (m[3] != ""):
			list = append(list, block{where: where, what: m[1], folder: m[2], file: m[3], text: body})
		case strings.HasPrefix(info, `norun="`), language == "" && info == "":
		default:
			t.Errorf("%s: block of %q with mark %q: want file=, edit=, run=, start=, out=, stop= or norun=", where, language, info)
		}
	}
	return list
}

// buildPrograms puts the results of `make build` into a folder of the test.
func buildPrograms(t *testing.T, root string) string {
	t.Helper()
	bin := t.TempDir()
	for to, packages := range map[string][]string{
		"":        {"./cmd/servetrace", "./examples/hello", "./examples/grpc", "./examples/composition", "./examples/upstream-downstream", "./examples/streaming"},
		"plugins": {"./plugins/console", "./plugins/otlp", "./plugins/datadog"},
	} {
		folder := filepath.Join(bin, to) + string(filepath.Separator)
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", linkFast, "-o", folder}, packages...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", packages, err, out)
		}
	}
	return bin
}

// linkFast is a flag of go build. Without debugging data, linking takes half the time.
const linkFast = "-ldflags=-s"

// place is the folder of one walk through a document, and all that its programs
// have printed.
type place struct {
	dir     string
	environ []string
	words   *strings.Replacer
	running []running

	mu     sync.Mutex
	output bytes.Buffer
}

// running is a program that a block of start= has started.
type running struct {
	pid   int
	ended chan struct{} // closed
}

func newPlace(t *testing.T, root, bin string) *place {
	t.Helper()
	dir := t.TempDir()
	tools := filepath.Join(dir, ".tools")
	if err := os.Mkdir(tools, 0o700); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(goScript, filepath.Join(root, "go.sum"), program)
	if err := os.WriteFile(filepath.Join(tools, "go"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	port, secondPort, adminPort, grpcPort, callPort := freePort(t), freePort(t), freePort(t), freePort(t), freePort(t)
	environ := append(os.Environ(),
		"PATH="+tools+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+filepath.Join(dir, ".state"),
		"GOFLAGS=-mod=mod "+linkFast, "GOWORK=off", "SERVE_HTTP_PORT="+port, "SERVE_GRPC_PORT="+grpcPort)
	backEnd := httptest.NewServer(http.HandlerFunc(takeAll))
	t.Cleanup(backEnd.Close)
	local := backEnd.Listener.Addr().String()
	return &place{
		dir:     dir,
		environ: environ,
		words: strings.NewReplacer(clone+"/bin", bin, clone, root, yamlClone, root, "localhost:8000", "127.0.0.1:"+port,
			"localhost:8002", "127.0.0.1:"+secondPort, "SERVE_HTTP_PORT=8002", "SERVE_HTTP_PORT="+secondPort,
			"localhost:9100", "127.0.0.1:"+callPort,
			"localhost:4318", local, "localhost:8126", local,
			"SERVE_ADMIN_PORT=8001", "SERVE_ADMIN_PORT="+adminPort, "localhost:8001", "127.0.0.1:"+adminPort),
	}
}

// takeAll is the back end of a document: an OTLP receiver at port 4318 and a Datadog agent
// at port 8126 for the programs of the document. It accepts everything. Readers see the
// number of delivered spans in the log of the service.
func takeAll(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a client that has left needs no answer
	switch {
	case r.URL.Path == "/info":
		_, _ = io.WriteString(w, `{"version": "7.66.0", "endpoints": ["/v0.4/traces"], "client_drop_p0s": false}`)
	case strings.HasSuffix(r.URL.Path, "/v0.4/traces"):
		_, _ = io.WriteString(w, `{"rate_by_service": {}}`)
	default:
		w.Header().Set("Content-Type", "application/x-protobuf") // and an empty message
	}
}

// goScript is the go command, but for `go mod tidy`, which would ask the
// network for modules that only the tests of dependencies need.
const goScript = `#!/bin/sh
if [ "$1 $2" = "mod tidy" ]; then
  cp '%s' go.sum
  exec '%[2]s' list -deps -test ./... >/dev/null
fi
exec '%[2]s' "$@"
`

// nextPort is the next port that freePort tries. It is below the ports that systems assign
// by themselves (32768 on Linux), which a client might get before a document's service
// listens.
var nextPort atomic.Int64

func freePort(t *testing.T) string {
	t.Helper()
	const first, ports, tries = 20000, 10000, 100
	nextPort.CompareAndSwap(0, int64(os.Getpid())) // beside other runs of this test
	for range tries {
		port := strconv.FormatInt(first+nextPort.Add(1)%ports, 10)
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return port
		}
	}
	t.Fatalf("no free port among %d", tries)
	return ""
}

// Write collects the output of programs.
func (p *place) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *place) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

func (p *place) do(t *testing.T, b block) {
	t.Helper()
	dir := filepath.Join(p.dir, b.folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	switch b.what {
	case "file":
		path := filepath.Join(dir, b.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(p.words.Replace(b.text)), 0o600); err != nil {
			t.Fatal(err)
		}
	case "edit":
		p.edit(t, filepath.Join(dir, b.file), b)
	case "run":
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := p.command(ctx, dir, b).Run(); err != nil {
			t.Fatalf("%s: %v\n%s\nprinted:\n%s", b.where, err, b.text, p.printed())
		}
	case "start":
		p.start(t, dir, b)
	case "out":
		p.expect(t, b)
	case "stop":
		p.stop(t, b)
	}
}

// edit changes a file like a reader with an editor: the lines to remove, with the lines
// around them in the block, must be in the file exactly once.
func (p *place) edit(t *testing.T, path string, b block) {
	t.Helper()
	content, err := os.ReadFile(path) //nolint:gosec // of the test's own folder
	if err != nil {
		t.Fatalf("%s: %v", b.where, err)
	}
	text := string(content)
	var before, after strings.Builder
	for line := range strings.Lines(p.words.Replace(b.text) + "@@\n") {
		switch line[0] {
		case '@':
			if n := strings.Count(text, before.String()); n != 1 {
				t.Fatalf("%s: these lines stand %d times in %s, want once:\n%s", b.where, n, b.file, before.String())
			}
			text = strings.Replace(text, before.String(), after.String(), 1)
			before.Reset()
			after.Reset()
		case '-':
			before.WriteString(line[1:])
		case '+':
			after.WriteString(line[1:])
		default:
			before.WriteString(strings.TrimPrefix(line, " "))
			after.WriteString(strings.TrimPrefix(line, " "))
		}
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// command is the shell over a block, in a process group that ends with ctx.
func (p *place) command(ctx context.Context, dir string, b block) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", p.words.Replace(b.text))
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, p.environ, p, p
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// start runs a block in the background, and waits until a service logs that it serves, or
// another program has printed a line that names a setting.
func (p *place) start(t *testing.T, dir string, b block) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := p.command(ctx, dir, b)
	before := len(p.printed())
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", b.where, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the end of a service is no subject of a document
		close(ended)
	}()
	p.running = append(p.running, running{cmd.Process.Pid, ended})
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	p.wait(t, b, func(printed string) bool {
		return strings.Contains(printed[before:], "msg=serving ") || strings.Contains(printed[before:], `msg="relay listens"`) || strings.Contains(printed[before:], "SERVE_TRACING_EXPORTER_PLUGIN=unix://")
	})
}

// stop ends the running program, and looks for its last lines.
func (p *place) stop(t *testing.T, b block) {
	t.Helper()
	for _, r := range p.running {
		if err := syscall.Kill(-r.pid, syscall.SIGINT); err != nil {
			t.Fatalf("%s: %v", b.where, err)
		}
		select {
		case <-r.ended:
		case <-time.After(patience):
			t.Fatalf("%s: does not end\nprinted:\n%s", b.where, p.printed())
		}
	}
	p.running = nil
	for _, want := range p.wanted(b) {
		if !strings.Contains(p.printed(), want) {
			t.Fatalf("%s: has ended without\n%s\nprinted:\n%s", b.where, want, p.printed())
		}
	}
}

// expect waits for each line of a block.
func (p *place) expect(t *testing.T, b block) {
	t.Helper()
	for _, want := range p.wanted(b) {
		p.wait(t, block{where: b.where, text: want}, func(printed string) bool { return strings.Contains(printed, want) })
	}
}

// wanted is the lines of a block that have to come out.
func (p *place) wanted(b block) []string {
	var list []string
	for line := range strings.Lines(b.text) {
		if want := strings.TrimSpace(p.words.Replace(line)); want != "…" && want != "" {
			list = append(list, want)
		}
	}
	return list
}

// wait polls for output, for the programs of a document tell no other way.
func (p *place) wait(t *testing.T, b block, done func(string) bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done(p.printed()) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: waited in vain for\n%s\nprinted:\n%s", b.where, b.text, p.printed())
		}
	}
}
