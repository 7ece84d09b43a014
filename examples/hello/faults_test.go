package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/examples/servicetest"
	"github.com/servetrace/servetrace/test/testplugin"
)

// service is hello under load and under attack.
type service struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
	// ended is closed when hello has ended and all of its log was read.
	ended chan struct{}

	log testplugin.Log
}

// startService starts hello with a list of plugins and waits until it serves.
// It takes up to a minute over its last spans, unless env says otherwise.
func startService(t *testing.T, plugins string, env ...string) *service {
	t.Helper()
	s := &service{t: t, cmd: exec.Command(hellotest.Self(t, "hello"), "--http", "127.0.0.1:0"), ended: make(chan struct{})}
	s.cmd.Env = append([]string{
		"GORACE=atexit_sleep_ms=0", "PATH=" + os.Getenv("PATH"), "SERVE_TRACING_EXPORTER_PLUGIN=" + plugins,
		"SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_STOP_TIMEOUT=1m",
	}, env...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			_, _ = s.log.Write(append(lines.Bytes(), '\n')) // never fails
		}
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended before
		patience := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() })
		<-s.ended
		patience.Stop()
		_ = s.cmd.Wait() // waited for before, or killed
		if t.Failed() {
			t.Logf("log:\n%s", s.log.String())
		}
	})
	s.url = s.find(`\burl=(http://\S+)`, 1)[0]
	return s
}

// find waits until the log holds n matches of pattern and gives its first group
// of each.
func (s *service) find(pattern string, n int) []string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	var groups []string
	testplugin.WaitFor(s.t, fmt.Sprintf("%d of %q in the log", n, pattern), func() bool {
		groups = nil
		for _, match := range re.FindAllStringSubmatch(s.log.String(), -1) {
			groups = append(groups, match[1])
		}
		return len(groups) >= n
	})
	return groups
}

// pluginPID is the process of the plugin that became ready as the n-th.
func (s *service) pluginPID(n int) int {
	s.t.Helper()
	pid, err := strconv.Atoi(s.find(`msg="plugin is ready".* pid=(\d+)`, n)[n-1])
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// terminate sends SIGTERM and waits for a clean end.
func (s *service) terminate() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	<-s.ended
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("hello ended: %v", err)
	}
}

// load sends requests from several clients until stop is closed, at most 250 a second
// each, so that the queue has room for the spans that a dead plugin misses. It counts the
// answers with 200, and all other outcomes by text.
type load struct {
	ok      atomic.Int64
	mu      sync.Mutex
	others  map[string]int
	clients sync.WaitGroup
	stop    chan struct{}
}

func (s *service) startLoad(clients int) *load {
	l := &load{others: map[string]int{}, stop: make(chan struct{})}
	for range clients {
		l.clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
			defer client.CloseIdleConnections()
			pace := time.NewTicker(4 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-l.stop:
					return
				case <-pace.C:
					l.one(client, s.url)
				}
			}
		})
	}
	return l
}

func (l *load) one(client *http.Client, url string) {
	resp, err := client.Get(url)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		err = errors.Join(err, resp.Body.Close())
		if err == nil && resp.StatusCode == http.StatusOK {
			l.ok.Add(1)
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.others[err.Error()]++
	} else {
		l.others[resp.Status]++
	}
}

func (l *load) end() {
	close(l.stop)
	l.clients.Wait()
}

// delivered counts the different spans at a plugin, and the proxy spans among them.
func delivered(t *testing.T, path string) (spans, proxies int) {
	t.Helper()
	seen := map[string]bool{}
	for _, b := range testplugin.Received(t, path) {
		for i, id := range b.IDs {
			if !seen[id] && strings.HasPrefix(b.Spans[i], "proxy_http_request ") {
				proxies++
			}
			seen[id] = true
		}
	}
	return len(seen), proxies
}

// The plugin is killed again and again under load: no request notices, and
// every span arrives.
func TestKilledPluginUnderLoad(t *testing.T) {
	path := testplugin.Install(t, "slow:2ms")
	s := startService(t, "p="+path)
	l := s.startLoad(4)
	for n := 1; n <= 3; n++ {
		pid := s.pluginPID(n)
		before := l.ok.Load()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testplugin.WaitFor(t, "requests while the plugin is down", func() bool { return l.ok.Load() > before+50 })
	}
	s.pluginPID(4)
	l.end()
	s.terminate()
	if len(l.others) > 0 {
		t.Errorf("requests failed: %v", l.others)
	}
	spans, proxies := delivered(t, path)
	if want := int(l.ok.Load()); proxies != want || spans != 4*want {
		t.Errorf("%d proxy spans and %d in all arrived, want %d and %d", proxies, spans, want, 4*want)
	}
	if !strings.Contains(s.log.String(), "msg=stopped ") {
		t.Error("the log does not say that everything is out")
	}
}

// The service is killed: its plugin goes too.
func TestKilledServiceLeavesNothing(t *testing.T) {
	s := startService(t, "p="+testplugin.Install(t, "record"))
	pid := s.pluginPID(1)
	l := s.startLoad(2)
	testplugin.WaitFor(t, "some requests", func() bool { return l.ok.Load() > 20 })
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	l.end()
	testplugin.WaitFor(t, "the plugin's end", func() bool { return testplugin.Gone(pid) })
}

// SIGTERM under load: all answered requests have their spans, and the spans are delivered.
func TestTerminatedUnderLoad(t *testing.T) {
	path := testplugin.Install(t, "record")
	s := startService(t, "p="+path)
	l := s.startLoad(4)
	testplugin.WaitFor(t, "some requests", func() bool { return l.ok.Load() > 100 })
	s.terminate()
	l.end()
	for outcome := range l.others {
		// Refused once the listener is closed, or 503 while it drains: never cut
		// off half-way, which would be an unexpected EOF.
		if !strings.Contains(outcome, "connection refused") && !strings.Contains(outcome, "503") &&
			!strings.HasSuffix(outcome, ": EOF") && !strings.Contains(outcome, "connection reset") {
			t.Errorf("outcome %q", outcome)
		}
	}
	spans, proxies := delivered(t, path)
	if ok := int(l.ok.Load()); proxies != ok || spans != 4*ok {
		t.Errorf("%d proxy spans and %d in all arrived, want %d and %d", proxies, spans, ok, 4*ok)
	}
}

// SIGTERM to hello's whole process group, as a shell or a container's init sends
// it: plugins are in groups of their own, and take every span before they go.
func TestHazard23SIGTERMToTheGroup(t *testing.T) {
	path := testplugin.Install(t, "slow:20ms")
	s := startService(t, "p="+path)
	s.pluginPID(1)
	l := s.startLoad(2)
	testplugin.WaitFor(t, "some requests", func() bool { return l.ok.Load() > 100 })
	l.end()
	if err := syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("hello ended: %v", err)
	}
	spans, proxies := delivered(t, path)
	if ok := int(l.ok.Load()); proxies != ok || spans != 4*ok {
		t.Errorf("%d proxy spans and %d in all arrived, want %d and %d", proxies, spans, ok, 4*ok)
	}
}

// hasty stops a service whose plugins never take all of their spans.
const hasty = "SERVE_TRACING_STOP_TIMEOUT=2s"

// A frozen plugin, and one that never gets ready: requests do not notice.
func TestFrozenPluginUnderLoad(t *testing.T) {
	s := startService(t, "p="+testplugin.Install(t, "record")+",late="+testplugin.Install(t, "silent:1m"), hasty)
	testplugin.Freeze(t, s.pluginPID(1))
	l := s.startLoad(2)
	testplugin.WaitFor(t, "requests", func() bool { return l.ok.Load() > 300 })
	l.end()
	if len(l.others) > 0 {
		t.Errorf("requests failed: %v", l.others)
	}
}

// Everything that may stand on the list by mistake: the service starts and
// serves, one line says which mistake it is, and the good plugin gets its spans.
func TestMisfits(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	good := testplugin.Install(t, "noise:100000")
	list := []string{
		"missing=/nowhere/plugin", "text=" + text, "hello=" + testplugin.Install(t, "hello"),
		"new=" + testplugin.Install(t, "version:99"), "bare", "good=" + good,
	}
	s := startService(t, strings.Join(list, ","), hasty)
	for range 5 {
		if status, _ := servicetest.Do(t, s.url, ""); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	for name, want := range map[string]string{
		"missing": "there is no such file",
		"text":    "the file is not executable (mode 0644)",
		"hello":   "it ended before the handshake (exit status 0)",
		"new":     "the plugin speaks protocol version 99, this host version 1",
		"bare":    `there is no plugin \"bare\" in`,
	} {
		s.find(`level=ERROR .* plugin=(`+name+`) cause=".*`+regexp.QuoteMeta(want), 1)
	}
	testplugin.WaitFor(t, "the spans", func() bool { spans, _ := delivered(t, good); return spans == 20 })
}

// A processor in a module of its own, built against pluginsdk, changes a real
// span.
func TestProcessorOfAnotherModule(t *testing.T) {
	plugin := buildPlugin(t, `package main

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

func main() {
	pluginsdk.Main(pluginsdk.Spec{
		Name:     "team",
		Exporter: consoleexporter.New,
		Processors: []pluginsdk.NewProcessor{
			pluginsdk.ProcessorFunc("team", func(_ context.Context, b *pluginsdk.Batch) error {
				for span := range b.Spans() {
					span.SetAttributes(attribute.String("team", "vision"))
				}
				return nil
			}),
		},
	})
}
`)
	spans, _ := serve(t, func(url string) {
		servicetest.Do(t, url, "")
	}, "SERVE_TRACING_EXPORTER_PLUGIN="+plugin)
	if len(spans) != 4 {
		t.Errorf("%d spans, want 4", len(spans))
	}
	for _, one := range spans {
		if one.Attributes["team"] != "vision" {
			t.Errorf("span %q has team %v", one.Name, one.Attributes["team"])
		}
	}
}

// buildPlugin builds a main in a module of its own that requires this one.
func buildPlugin(t *testing.T, source string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/servetrace/servetrace"
	mod := strings.Replace(string(ours), "module "+module, "module example.org/team", 1) +
		"\nrequire " + module + " v0.0.0\nreplace " + module + " => " + root + "\n"
	dir := t.TempDir()
	for name, data := range map[string][]byte{"go.mod": []byte(mod), "go.sum": sums, "main.go": []byte(source)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-o", "team", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-ldflags=-s", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	return filepath.Join(dir, "team")
}
