// Package hellotest runs examples/hello, or another service, with a list of
// plugins, for the tests of the examples: each of them proves its claim on the
// real spans of a real service.
//
//  1. [Main], called by TestMain, removes in the end what the tests have built.
//     [Self] is a path at which the test binary is the example.
//  2. [Start] builds hello, once for each test binary, and starts it on a free
//     port; the plugins are named in its environment, as an operator does it.
//     [StartProgram] starts a service that is built already.
//  3. [Service.Get] sends a request, which makes four spans in hello.
//  4. [Service.Await] waits for what is printed: by plugins to the service's
//     standard output, by the service and its host to the log.
//  5. [Service.Stop] ends the service as an operator does, by SIGTERM. Where a
//     test does not come to it, the service is killed.
//  6. [StartReceiver] is a back end for plugins that send by OTLP.
//
// It judges nothing, and knows of plugins no more than a service does. Open this
// file; receiver.go is the back end.
package hellotest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	// What hello is made of, so that go test runs the tests of the examples again
	// when that changes: it does not see what a child process reads.
	_ "github.com/servetrace/servetrace"
)

// SpansOfRequest is how many spans a request of hello makes: one each of proxy,
// router, replica and handler.
const SpansOfRequest = 4

// Patience is how long whatever is waited for may take. No test takes a tenth of
// it, unless the machine is busy.
const Patience = time.Minute

// patientSettings keep a busy machine from being taken for a plugin that hangs:
// it would be killed, or sent what it has a second time, or left with spans.
func patientSettings() []string {
	const bound = "=1m"
	return []string{
		"SERVE_TRACING_START_TIMEOUT" + bound, "SERVE_TRACING_EXPORT_TIMEOUT" + bound, "SERVE_TRACING_STOP_TIMEOUT" + bound,
		"SERVE_TRACING_MAX_AGE=10m",
	}
}

// hello is the built program, folder what it lies in.
var hello struct {
	once   sync.Once
	folder string
	path   string
	err    error
}

// Main runs the tests, removes what they have built, and does not return.
func Main(m *testing.M) {
	code := m.Run()
	if hello.folder != "" {
		_ = os.RemoveAll(hello.folder) // a temporary folder
	}
	os.Exit(code)
}

// Self gives a path at which the test binary is called name: a link to it, in a
// folder that ends with the test. TestMain has to know the name, by os.Args[0],
// and to call main, of a plugin say. It does not block.
func Self(tb testing.TB, name string) string {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), name)
	if err := os.Symlink(exe, path); err != nil {
		tb.Fatal(err)
	}
	return path
}

// build builds hello as the Makefile does, so that what that has compiled is
// used again.
func build() {
	sources, err := filepath.Glob(filepath.Join("..", "hello", "*.go"))
	if err == nil && len(sources) == 0 {
		err = errors.New("no sources in ../hello: only tests of examples can use this package")
	}
	for _, name := range sources { // so that go test knows of them too
		_, fault := os.ReadFile(name)
		err = errors.Join(err, fault)
	}
	if err != nil {
		hello.err = err
		return
	}
	if hello.folder, hello.err = os.MkdirTemp("", "hellotest"); hello.err != nil {
		return
	}
	hello.path = filepath.Join(hello.folder, "hello")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", hello.path, "../hello")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		hello.err = fmt.Errorf("build hello: %w\n%s", err, out)
	}
}

// Service is a running service. Its methods are for the test's own goroutine.
type Service struct {
	// Stdout is what plugins have printed, Log what the service and its host
	// have.
	Stdout, Log *Output
	// URL is where it serves, such as "http://127.0.0.1:40123".
	URL string

	tb    testing.TB
	name  string // of the program, for errors
	cmd   *exec.Cmd
	ended chan struct{} // closed when the service, and whoever has its output, has ended
	err   error         // how; read after ended is closed
}

// Start starts hello with environ ("SERVE_TRACING_EXPORTER_PLUGIN=..."), beside
// the test's own environment without the settings in it, and time limits of a
// minute and more where environ has no others. It waits until hello serves, and
// fails the test where that does not come.
func Start(tb testing.TB, environ ...string) *Service {
	tb.Helper()
	hello.once.Do(build)
	if hello.err != nil {
		tb.Fatal(hello.err)
	}
	return StartProgram(tb, hello.path, []string{"--http", "127.0.0.1:0"}, environ...)
}

// StartProgram starts the service at path as Start does hello. It must log the
// line of servetrace.Run that says where it serves.
func StartProgram(tb testing.TB, path string, args []string, environ ...string) *Service {
	tb.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = slices.Concat(withoutSettings(cmd.Environ()), patientSettings(), environ)
	s := &Service{Stdout: newOutput(), Log: newOutput(), tb: tb, name: filepath.Base(path), cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = s.Stdout, s.Log
	cmd.WaitDelay = Patience // a plugin that outlives the service holds the pipe
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() { // ends with the service
		defer close(s.ended)
		s.err = cmd.Wait()
		s.Stdout.close()
		s.Log.close()
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, or the test failed
		<-s.ended
		if tb.Failed() {
			tb.Logf("the log of %s:\n%s\nits standard output:\n%s", s.name, s.Log, s.Stdout)
		}
	})
	s.URL = s.Await(s.Log, `\burl=(http://\S+)`, 1)[0]
	return s
}

// withoutSettings leaves out what would make the service, or a plugin, another
// one.
func withoutSettings(environ []string) []string {
	return slices.DeleteFunc(environ, func(pair string) bool {
		return slices.ContainsFunc([]string{"SERVE_", "OTEL_", "RAY_", "DD_", "HONEYCOMB_"}, func(prefix string) bool {
			return strings.HasPrefix(pair, prefix)
		})
	})
}

// PID is the id of the service's process.
func (s *Service) PID() int { return s.cmd.Process.Pid }

// Get sends a request for path under a request id and reads the answer, whatever
// its status.
func (s *Service) Get(path, requestID string) {
	s.tb.Helper()
	req, err := http.NewRequestWithContext(s.tb.Context(), http.MethodGet, s.URL+path, http.NoBody)
	if err != nil {
		s.tb.Fatal(err)
	}
	req.Header.Set("X-Request-Id", requestID)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.tb.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		s.tb.Fatal(err)
	}
}

// Await waits until out has at least n matches of pattern, and gives the first
// group of each, or the whole match where there is none. It fails the test where
// they do not come.
func (s *Service) Await(out *Output, pattern string, n int) []string {
	s.tb.Helper()
	re := regexp.MustCompile(pattern)
	late := time.NewTimer(Patience)
	defer late.Stop()
	for {
		text, grown := out.state()
		var found []string
		for _, match := range re.FindAllStringSubmatch(text, -1) {
			found = append(found, match[min(1, len(match)-1)])
		}
		if len(found) >= n {
			return found
		}
		select {
		case <-grown:
		case <-s.ended:
			if again, _ := out.state(); again == text {
				s.tb.Fatalf("%s has ended (%v) with %d of %d matches of %q printed", s.name, s.err, len(found), n, pattern)
			}
		case <-late.C:
			s.tb.Fatalf("%d of %d matches of %q within %v", len(found), n, pattern, Patience)
		}
	}
}

// Stop sends SIGTERM and waits until the service has ended, and its plugins with
// it. It fails the test where it does not end by itself and with status 0.
func (s *Service) Stop() {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.tb.Fatalf("stop %s: %v", s.name, err)
	}
	select {
	case <-s.ended:
	case <-time.After(Patience):
		s.tb.Fatalf("%s does not end within %v", s.name, Patience)
	}
	if s.err != nil {
		s.tb.Fatalf("%s ended: %v", s.name, s.err)
	}
}

// Output is what a process has printed so far. Safe for concurrent use.
type Output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // closed when there is more, and in the end
}

func newOutput() *Output { return &Output{grown: make(chan struct{})} }

// Write takes what is printed.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.grown)
	o.grown = make(chan struct{})
	return o.text.Write(p)
}

// String is all of it.
func (o *Output) String() string {
	text, _ := o.state()
	return text
}

func (o *Output) state() (text string, grown <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.grown
}

func (o *Output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.grown)
	o.grown = nil // Wait has returned: nobody writes any more
}
