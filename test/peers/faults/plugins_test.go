package faults

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/peers/peer"
	"github.com/servetrace/servetrace/test/testplugin"
)

// hello is the example, as a process.
type hello struct {
	t          *testing.T
	url, admin string
	log        *testplugin.Log
	end        func()
}

// startHello starts bin/hello, and returns when it serves.
func startHello(t *testing.T, env map[string]string) *hello {
	t.Helper()
	h := &hello{t: t, log: &testplugin.Log{}}
	program := filepath.Join(filepath.Dir(peer.Plugin(t, "otlp")), "..", "hello")
	cmd := exec.CommandContext(t.Context(), program, "--http", "127.0.0.1:0")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), admin.EnvPort + "=0"}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { // ends with the process
		defer close(read)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			_, _ = h.log.Write(append(lines.Bytes(), '\n'))
		}
	}()
	h.end = func() {
		t.Helper()
		_ = cmd.Process.Signal(syscall.SIGTERM) // or it has ended
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("hello: %v", err)
		}
		h.end = func() {}
	}
	t.Cleanup(func() {
		h.end()
		if t.Failed() {
			t.Logf("log:\n%s", h.log)
		}
	})
	serving := regexp.MustCompile(`\burl=(http://\S+)`)
	operators := regexp.MustCompile(`(http://\S+)/-/tracing`)
	testplugin.WaitFor(t, "hello to serve", func() bool {
		web, page := serving.FindStringSubmatch(h.log.String()), operators.FindStringSubmatch(h.log.String())
		if web == nil || page == nil {
			return false
		}
		h.url, h.admin = web[1], page[1]
		return true
	})
	return h
}

func (h *hello) get(url string) (int, string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (h *hello) status() map[string]admin.Plugin {
	h.t.Helper()
	_, body := h.get(h.admin + "/-/tracing.json")
	var status admin.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		h.t.Fatal(err)
	}
	if status.BooksError != "" {
		h.t.Fatal(status.BooksError)
	}
	plugins := map[string]admin.Plugin{}
	for _, p := range status.Plugins {
		plugins[p.Name] = p
	}
	return plugins
}

// request is good or the test fails.
func (h *hello) request() {
	h.t.Helper()
	if code, body := h.get(h.url); code != http.StatusOK || body != "Hello world!\n" {
		h.t.Errorf("a request was answered %d %q", code, body)
	}
}

// hole takes connections and answers nothing.
func hole(t *testing.T) (url string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // the kernel accepts connections, and the test does not
	return "http://" + listener.Addr().String()
}

// closed returns a URL at which no process listens.
func closed() string {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	return server.URL
}

const (
	requests        = 300
	spansPerRequest = 4 // proxy, router, replica and the handler's own
)

// TestDeadBackEndAmongThree: for any fault of one, the other two get every span at once,
// and requests are answered. The spans that the dead one loses are counted.
func TestDeadBackEndAmongThree(t *testing.T) {
	for _, c := range []struct{ dead, how, code string }{
		{"otlp", "refuses", "UNAVAILABLE"},
		{"otlp", "hangs", "DEADLINE_EXCEEDED"},
		{"otlp", "crashes", ""},
		{"datadog", "refuses", "UNAVAILABLE"},
		{"datadog", "hangs", "DEADLINE_EXCEEDED"},
		{"datadog", "crashes", ""},
		{"console", "refuses", ""},
		{"console", "crashes", ""},
	} {
		t.Run(c.dead+" "+c.how, func(t *testing.T) {
			collector, agent, folder := peer.StartCollector(t), peer.StartDatadogAgent(t), t.TempDir()
			where := map[string]string{"otlp": collector.HTTP(), "datadog": agent.URL(), "console": folder}
			switch {
			case c.how == "hangs":
				where[c.dead] = hole(t)
			case c.how == "refuses" && c.dead == "console":
				where[c.dead] = "/dev/null/spans" // no folder can be there
			case c.how == "refuses":
				where[c.dead] = closed()
			}
			h := startHello(t, map[string]string{
				host.EnvPlugins:               "otlp,datadog,console",
				host.EnvPluginDir:             filepath.Dir(peer.Plugin(t, "otlp")),
				host.EnvMaxAge:                "4s",
				host.EnvExportTimeout:         "2s",
				"OTEL_EXPORTER_OTLP_ENDPOINT": where["otlp"],
				"DD_TRACE_AGENT_URL":          where["datadog"],
				"SERVE_CONSOLE_OUTPUT":        where["console"],
			})
			killed := 0
			for range requests {
				h.request()
				if pid := h.status()[c.dead].PID; c.how == "crashes" && pid > 0 && pid != killed {
					_ = syscall.Kill(pid, syscall.SIGKILL) // or it has ended
					killed = pid
				}
			}
			const spans = requests * spansPerRequest
			others := map[string]bool{"otlp": true, "datadog": true, "console": true}
			delete(others, c.dead)
			var last map[string]admin.Plugin
			testplugin.WaitFor(t, "the others to get all, and the dead one to have none left to try", func() bool {
				last = h.status()
				for name := range others {
					if last[name].Spans.Delivered != spans {
						return false
					}
				}
				return last[c.dead].Spans.Accepted == spans && last[c.dead].Spans.Waiting == 0
			})
			for name := range others {
				if p := last[name]; p.Spans.Lost() > 0 || p.Crashes > 0 || p.State != "ready" {
					t.Errorf("%s: %s, crashed %d times, %+v", name, p.State, p.Crashes, p.Spans)
				}
			}
			dead := last[c.dead]
			if got := dead.Spans.Delivered + dead.Spans.Dropped["max_age"]; got != spans || c.how != "crashes" && dead.Spans.Delivered > 0 {
				t.Errorf("%s: %+v, want all %d dropped for their age, or delivered between two crashes", c.dead, dead.Spans, spans)
			}
			if dead.LastError == "" || dead.State == "ready" && c.how != "crashes" || c.code != "" && dead.Calls.Ended[c.code] == 0 {
				t.Errorf("%s: state %s, last error %q, calls %v", c.dead, dead.State, dead.LastError, dead.Calls.Ended)
			}
			if !strings.Contains(h.log.String(), "plugin="+c.dead) {
				t.Errorf("the log does not know %s", c.dead)
			}
			h.end()
			for name, has := range map[string]func() map[string]int{
				"otlp":    func() map[string]int { return ids(collector.WaitSpans(spans)) },
				"datadog": func() map[string]int { return atAgent(agent.WaitSpans(spans)) },
				"console": func() map[string]int { return inFiles(t, folder) },
			} {
				if !others[name] {
					continue
				}
				got := has()
				for id, n := range got {
					if n > 1 {
						t.Errorf("%s got span %s %d times", name, id, n)
					}
				}
				if len(got) != spans {
					t.Errorf("%s got %d spans, want %d", name, len(got), spans)
				}
			}
		})
	}
}

// inFiles are the ids of the spans that the console plugin has written.
func inFiles(t *testing.T, folder string) map[string]int {
	t.Helper()
	all := map[string]int{}
	files, err := filepath.Glob(filepath.Join(folder, "*_tracing.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer data.Close()
		for d := json.NewDecoder(data); d.More(); {
			var span struct {
				Context struct {
					SpanID string `json:"span_id"`
				} `json:"context"`
			}
			if err := d.Decode(&span); err != nil {
				t.Fatal(err)
			}
			all[span.Context.SpanID]++
		}
	}
	return all
}

// TestMinuteWithoutBackEnd holds a back end down for as long as LONG_OUTAGE says
// (such as 1m), under load: by hand, for it takes that long.
func TestMinuteWithoutBackEnd(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("LONG_OUTAGE"))
	if err != nil {
		t.Skip("set LONG_OUTAGE=1m")
	}
	collector := peer.StartCollector(t)
	list, env := otlp(t, "http/protobuf", collector.HTTP(), host.EnvMaxAge, (2 * length).String())
	s := startService(t, list, env)
	stop := s.load()
	s.delivers("otlp")
	before := s.plugin("otlp").Spans
	collector.Stop()
	<-time.After(length)
	during := s.status()
	collector.Restart()
	began := time.Now()
	s.delivers("otlp")
	s.await("otlp", "an end of the backlog", func(p admin.Plugin) bool { return p.Spans.Waiting < during.Plugins[0].Spans.Waiting/10 })
	caught := time.Since(began)
	stop()
	s.settled("otlp")
	p := s.plugin("otlp")
	t.Logf("down for %v: %d spans delivered before, %d waited at the end (%d bytes of %d), %v until nine tenths were delivered; %d in all, lost %d, calls %v",
		length, before.Delivered, during.Plugins[0].Spans.Waiting, during.Queue.Bytes, during.Queue.LimitBytes, caught.Round(time.Millisecond),
		p.Spans.Delivered, p.Spans.Lost(), p.Calls.Ended)
	t.Logf("log:\n%s", s.log)
	if lost := p.Spans.Lost(); lost > 0 {
		t.Errorf("%d spans are lost: %+v", lost, p.Spans)
	}
	s.wantAt("otlp", atCollector(t, collector, int(p.Spans.Delivered)), true)
}
