// Package hellotest runs examples/hello, or another service, with a list of plugins,
// for the tests of the examples. Each test proves its claim on the real spans of a real
// service.
//
//  1. TestMain calls [Main], which removes built files at the end. [Self] returns a
//     path at which the test binary acts as the example.
//  2. [Start] builds hello, once per test binary, and starts it on a free port. The
//     plugins are named in its environment, as an operator would do. [StartProgram]
//     starts a service that is already built.
//  3. [Service.Get] sends a request, which makes four spans in hello.
//  4. [Service.Await] waits for output: plugins print to the service's standard
//     output, the service and its host write the log.
//  5. [Service.Stop] ends the service by SIGTERM, as an operator would do. If a test
//     ends earlier, the service is killed.
//  6. [StartReceiver] starts a back end for plugins that send OTLP. [Batch] and
//     [Delivered] are for tests that send spans to a plugin without a service.
//
// The package judges nothing, and knows no more about plugins than a service does. Open
// this file first; receiver.go is the back end, and batch.go has the spans without a
// service.
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

	// Imported so that go test runs the tests of the examples again when servetrace
	// changes. It does not notice files that a child process reads.
	_ "github.com/servetrace/servetrace"
)

// SpansOfRequest is the number of spans of a request to hello: proxy, router, replica
// and handler have a span each.
const SpansOfRequest = 4

// Patience bounds every wait. On an idle machine no test takes a tenth of it.
const Patience = time.Minute

// patientSettings returns long timeouts. On a busy machine, short ones would kill a
// slow plugin, send its batches again, or drop spans at the stop.
func patientSettings() []string {
	const bound = "=1m"
	return []string{
		"SERVE_TRACING_START_TIMEOUT" + bound, "SERVE_TRACING_EXPORT_TIMEOUT" + bound, "SERVE_TRACING_STOP_TIMEOUT" + bound,
		"SERVE_TRACING_MAX_AGE=10m",
	}
}

// hello is the built program in a temporary folder.
var hello struct {
	once   sync.Once
	folder string
	path   string
	err    error
}

// Main runs the tests, removes built files and exits the process.
func Main(m *testing.M) {
	code := m.Run()
	if hello.folder != "" {
		_ = os.RemoveAll(hello.folder) // a temporary folder
	}
	os.Exit(code)
}

// Self returns a path at which the test binary has the given name: a link in a folder
// that is removed with the test. TestMain must check os.Args[0] for the name and then
// call the main function, of a plugin for example. Self does not block.
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

// build builds hello with the flags of the Makefile, so that the build cache is shared.
func build() {
	sources, err := filepath.Glob(filepath.Join("..", "hello", "*.go"))
	if err == nil && len(sources) == 0 {
		err = errors.New("no sources in ../hello: only tests of examples can use this package")
	}
	for _, name := range sources { // so that go test notices changes to them
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

// Service is a running service. Its methods must be called by the test's own goroutine.
type Service struct {
	// Stdout is the output of the plugins, Log the output of the service and its host.
	Stdout, Log *Output
	// URL is the base URL, such as "http://127.0.0.1:40123".
	URL string

	tb    testing.TB
	name  string // program name, for errors
	cmd   *exec.Cmd
	ended chan struct{} // closed when the service and all processes with its output have ended
	err   error         // result of the process; read after ended is closed
}

// Start starts hello with environ ("SERVE_TRACING_EXPORTER_PLUGIN=...") added to the
// test's environment without its settings. Time limits are a minute or more unless
// environ sets them. Start waits until hello accepts requests, and fails the test if it
// does not.
func Start(tb testing.TB, environ ...string) *Service {
	tb.Helper()
	hello.once.Do(build)
	if hello.err != nil {
		tb.Fatal(hello.err)
	}
	return StartProgram(tb, hello.path, []string{"--http", "127.0.0.1:0"}, environ...)
}

// StartProgram starts the service at path, like Start. The service must log the start
// line of servetrace.Run with its URL.
func StartProgram(tb testing.TB, path string, args []string, environ ...string) *Service {
	tb.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = slices.Concat(withoutSettings(cmd.Environ()), patientSettings(), environ)
	s := &Service{Stdout: newOutput(), Log: newOutput(), tb: tb, name: filepath.Base(path), cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = s.Stdout, s.Log
	cmd.WaitDelay = Patience // a plugin that survives the service holds the pipe open
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
		_ = cmd.Process.Kill() // fails if it has ended
		<-s.ended
		if tb.Failed() {
			tb.Logf("the log of %s:\n%s\nits standard output:\n%s", s.name, s.Log, s.Stdout)
		}
	})
	s.URL = s.Await(s.Log, `\burl=(http://\S+)`, 1)[0]
	return s
}

// withoutSettings removes variables that would change the service or a plugin.
func withoutSettings(environ []string) []string {
	return slices.DeleteFunc(environ, func(pair string) bool {
		return slices.ContainsFunc([]string{"SERVE_", "OTEL_", "RAY_", "DD_", "HONEYCOMB_"}, func(prefix string) bool {
			return strings.HasPrefix(pair, prefix)
		})
	})
}

// PID returns the id of the service's process.
func (s *Service) PID() int { return s.cmd.Process.Pid }

// Get sends a request for path with the request id and reads the response, which may
// have any status.
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

// Await waits until out has at least n matches of pattern. It returns the first group
// of each match, or the whole match if there is no group. It fails the test if the
// matches do not appear.
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

// Stop sends SIGTERM and waits until the service and its plugins have ended. It fails
// the test if they do not end, or the exit status is not 0.
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

// Output is the output of a process so far. It is safe for concurrent use.
type Output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // closed after each write, and at the end
}

func newOutput() *Output { return &Output{grown: make(chan struct{})} }

// Write appends p.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.grown)
	o.grown = make(chan struct{})
	return o.text.Write(p)
}

// String returns the output so far.
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
	o.grown = nil // no more writes: Wait has returned
}
