package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/servetrace/servetrace/host"
)

func TestConfigFromEnv(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want Config
		err  string
	}{
		{nil, Config{}, ""},
		{map[string]string{EnvPort: "8001"}, Config{Addr: "127.0.0.1:8001"}, ""},
		{map[string]string{EnvPort: " 8001 ", EnvProfiles: "true "}, Config{Addr: "127.0.0.1:8001", Profiles: true}, ""},
		{map[string]string{EnvPort: "0", EnvHost: "::1", EnvProfiles: "true"}, Config{Addr: "[::1]:0", Profiles: true}, ""},
		{map[string]string{EnvPort: "1", EnvTraces: "false"}, Config{Addr: "127.0.0.1:1", NoTraces: true}, ""},
		{map[string]string{EnvTraces: "no"}, Config{}, `SERVE_ADMIN_TRACES="no": want true or false`},
		{map[string]string{EnvPort: "8001", EnvHost: "ops.example"}, Config{Addr: "ops.example:8001"}, ""},
		{map[string]string{EnvHost: "0.0.0.0", EnvProfiles: "false"}, Config{}, ""},
		{map[string]string{EnvPort: "many"}, Config{}, `SERVE_ADMIN_PORT="many": want a whole number from 0 to 65535; unset it for no listener`},
		{map[string]string{EnvPort: "65536"}, Config{}, `SERVE_ADMIN_PORT="65536": want a whole number from 0 to 65535; unset it for no listener`},
		{map[string]string{EnvPort: "-1"}, Config{}, `SERVE_ADMIN_PORT="-1": want a whole number from 0 to 65535; unset it for no listener`},
		{map[string]string{EnvPort: "1", EnvHost: "host:80"}, Config{}, `SERVE_ADMIN_HOST="host:80": want an IP address or a host name, without a port`},
		{map[string]string{EnvPort: "x", EnvHost: "a b", EnvProfiles: "yes"}, Config{}, `SERVE_ADMIN_PPROF="yes": want true or false` + "\n" +
			`SERVE_ADMIN_PORT="x": want a whole number from 0 to 65535; unset it for no listener` + "\n" +
			`SERVE_ADMIN_HOST="a b": want an IP address or a host name, without a port`},
	} {
		cfg, err := ConfigFromEnv(func(name string) string { return c.env[name] })
		text := ""
		if err != nil {
			text = err.Error()
		} else if diff := cmp.Diff(c.want, cfg); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.env, diff)
		}
		if text != c.err {
			t.Errorf("%v: error\n%s\nwant\n%s", c.env, text, c.err)
		}
	}
}

func TestValidate(t *testing.T) {
	for addr, want := range map[string]string{
		"": "", "127.0.0.1:0": "", ":8001": "", "[::1]:80": "",
		"127.0.0.1": `admin address "127.0.0.1": want host:port`,
		"a b:80":    `admin address "a b:80": want an IP address or a host name before the port`,
		"h:http":    `admin address "h:http": want a port from 0 to 65535`,
	} {
		err := Config{Addr: addr}.Validate()
		if got := fmt.Sprint(err); (want == "") != (err == nil) || (err != nil && got != want) {
			t.Errorf("%q: %v, want %q", addr, err, want)
		}
	}
}

// startServer runs a server on any free port until the test ends.
func startServer(t *testing.T, stats func() host.Stats) *Server {
	t.Helper()
	s := newServer(t, stats)
	start(t, s)
	return s
}

func newServer(t *testing.T, stats func() host.Stats) *Server {
	t.Helper()
	s, err := NewServer(Config{Addr: "127.0.0.1:0"}, stats, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.http.ReadTimeout, s.http.WriteTimeout = 0, 0 // a busy machine under the race detector is no slow client
	return s
}

func start(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

func TestServerLife(t *testing.T) {
	s := startServer(t, sample)
	url := s.URL()
	if status, body := fetch(t, url); status != http.StatusOK || !strings.Contains(body, "console") {
		t.Errorf("%d %q", status, body)
	}
	if err := s.Start(t.Context()); err == nil || err.Error() != "start admin listener: started or shut down before" {
		t.Errorf("second start: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
	for range 2 {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	}
	if resp, err := http.Get(url); err == nil {
		_ = resp.Body.Close()
		t.Error("it answers after its end")
	}
}

func TestServerCannotStart(t *testing.T) {
	if _, err := NewServer(Config{}, sample, slog.Default()); err == nil || err.Error() != "admin listener: no address: set SERVE_ADMIN_PORT" {
		t.Errorf("without an address: %v", err)
	}
	if _, err := NewServer(Config{Addr: "x"}, sample, slog.Default()); err == nil {
		t.Error("a wrong address is no error")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for addr, want := range map[string]string{
		taken.Addr().String(): "address already in use: another process listens there; choose another port with SERVE_ADMIN_PORT, or 0 for any",
		"192.0.2.1:0":         "; check SERVE_ADMIN_HOST and SERVE_ADMIN_PORT", // an address of no machine: TEST-NET-1
	} {
		s, err := NewServer(Config{Addr: addr}, sample, slog.Default())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q at the end", addr, err, want)
		}
		if err := s.Shutdown(t.Context()); err != nil || s.URL() != "" {
			t.Errorf("the end of one that did not start: %v, URL %q", err, s.URL())
		}
	}
}

func TestReachable(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1:1", "0.0.0.0:1": "localhost:1", "[::]:1": "localhost:1", "[::1]:1": "[::1]:1", "10.0.0.1:1": "10.0.0.1:1",
	} {
		if got := reachable(addr); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// The name of SERVE_ADMIN_HOST is one that requests may come by.
func TestConfiguredNameIsAnswered(t *testing.T) {
	s, err := NewServer(Config{Addr: "ops.example:0", Profiles: true}, sample, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"ops.example:80": 200, "other.example": 421} {
		if w := ask(s.http.Handler, http.MethodGet, "/debug/pprof/", "Host", name); w.Code != want {
			t.Errorf("host %s: %d, want %d", name, w.Code, want)
		}
	}
}

// big is a status of some megabytes: more than the sockets between a server and
// a client that does not read, and takes little, can hold.
func big() host.Stats {
	stats := host.Stats{}
	for i := range 500 {
		stats.Exporters = append(stats.Exporters, host.ExporterStats{Name: fmt.Sprint("p", i), LastError: strings.Repeat("x", 10<<10)})
	}
	return stats
}

// Clients that do not read delay neither other clients, nor the end, nor readers of the
// statistics.
func TestSlowClients(t *testing.T) {
	var mu sync.Mutex // held while the statistics are read
	var handlers sync.WaitGroup
	s := newServer(t, func() host.Stats {
		mu.Lock()
		defer mu.Unlock()
		return big()
	})
	next := s.http.Handler
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		next.ServeHTTP(w, r)
	})
	start(t, s)
	addr := strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http://"), "/-/tracing")
	for range 3 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /-/tracing.json HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		// The answer has begun, and is not read on.
		first, err := bufio.NewReaderSize(conn, 32).ReadString('\n')
		if err != nil || first != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("answer %q, %v", first, err)
		}
	}
	if !mu.TryLock() {
		t.Error("the statistics are held while an answer is being sent")
	} else {
		mu.Unlock()
	}
	if status, _ := fetch(t, "http://"+addr+"/-/healthz"); status != http.StatusOK {
		t.Errorf("another client: %d", status)
	}
	http.DefaultClient.CloseIdleConnections()
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Shutdown waits for clients that do not read")
	}
	cut := make(chan struct{})
	go func() { handlers.Wait(); close(cut) }()
	select {
	case <-cut:
	case <-time.After(time.Minute):
		t.Error("slow clients are still being answered after the end")
	}
}

// Each client gets a whole answer with a balanced accounting.
func TestHundredScrapesConcurrentSafe(t *testing.T) {
	s := startServer(t, sample)
	base := strings.TrimSuffix(s.URL(), "/-/tracing")
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			path := []string{"/metrics", "/-/tracing.json", "/-/tracing", "/-/healthz"}[i%4]
			status, body := fetch(t, base+path)
			if status != http.StatusOK {
				t.Errorf("%s: %d", path, status)
			}
			var got Status
			if path == "/-/tracing.json" && (json.Unmarshal([]byte(body), &got) != nil || got.BooksError != "" || len(got.Plugins) != 3) {
				t.Errorf("status %s", body)
			}
			if path == "/metrics" && !strings.Contains(body, `servetrace_plugin_spans_accepted_total{plugin="console"} 100`) {
				t.Errorf("metrics %s", body)
			}
		})
	}
	all.Wait()
}

// A part that starts after the listener adds its metrics, once.
func TestRegister(t *testing.T) {
	s := startServer(t, sample)
	late := prometheus.NewGauge(prometheus.GaugeOpts{Name: "late", Help: "It came late."})
	late.Set(7)
	if err := s.Register(late); err != nil {
		t.Fatal(err)
	}
	if _, body := fetch(t, strings.Replace(s.URL(), pathPage, pathMetrics, 1)); !strings.Contains(body, "\nlate 7\n") {
		t.Errorf("metrics without what was added:\n%s", body)
	}
	if err := s.Register(late); err == nil || !strings.HasPrefix(err.Error(), "admin listener: metrics: ") {
		t.Errorf("the second time: %v", err)
	}
}

// The deployments of the process are on the page and in JSON when they are added, and
// none of their texts becomes markup of the page.
func TestShowDeployments(t *testing.T) {
	s := startServer(t, sample)
	asJSON := strings.Replace(s.URL(), pathPage, pathJSON, 1)
	if _, body := fetch(t, asJSON); strings.Contains(body, "deployments") {
		t.Errorf("deployments before there are any:\n%s", body)
	}
	want := []Deployment{{
		App: "shop", Name: "Model", State: "UNHEALTHY", Error: "check: " + evil,
		NumReplicas: 3, MaxOngoingRequests: 5, MaxQueuedRequests: 7, Queued: 6, Target: "dns:///model:9100",
		Replicas: []Replica{
			{ID: "abcd0001", State: "RUNNING", Since: time.Now().UTC(), Ongoing: 4, Models: []string{"m1", evil}},
			{ID: "abcd0002", State: "STARTING", Since: time.Now().UTC(), Ongoing: 1},
		},
	}}
	s.ShowDeployments(func() []Deployment { return want })
	_, body := fetch(t, asJSON)
	var status Status
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		t.Fatal(err)
	}
	for _, text := range []*string{&want[0].Error, &want[0].Replicas[0].Models[1]} {
		*text = strings.ToValidUTF8(*text, "\uFFFD")
	}
	if diff := cmp.Diff(want, status.Deployments); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	_, page := fetch(t, s.URL())
	for _, part := range []string{
		`<td>shop/Model at dns:///model:9100</td>`, `<a class="state UNHEALTHY" href="`, `UNHEALTHY</a>, 2 of 3 replicas`, `<td class="n">5</td>`, `<td class="n">6 of 7</td>`,
		`<td>abcd0001</td><td><span class="state RUNNING">RUNNING</span> for 0s, models m1, &lt;/style`, `<td class="n">4 of 5</td>`,
	} {
		if !strings.Contains(page, part) {
			t.Errorf("no %q in the page", part)
		}
	}
	if strings.Contains(page, "<script>") || strings.ContainsAny(page, "\x00\x1b\u202e") {
		t.Errorf("the page has what a replica said:\n%s", page)
	}
}

// The sampler is on the page and in JSON, also at ratio 0.
func TestShowSampling(t *testing.T) {
	s := startServer(t, sample)
	asJSON := strings.Replace(s.URL(), pathPage, pathJSON, 1)
	if _, body := fetch(t, asJSON); strings.Contains(body, "sampling") {
		t.Errorf("a sampler before there is one:\n%s", body)
	}
	want := Sampling{Sampler: "parentbased_always_off", TrustInbound: true}
	s.ShowSampling(want)
	var status Status
	_, body := fetch(t, asJSON)
	if err := json.Unmarshal([]byte(body), &status); err != nil || status.Sampling == nil || *status.Sampling != want {
		t.Errorf("sampler %+v in JSON, want %+v, %v", status.Sampling, want, err)
	}
	if _, page := fetch(t, s.URL()); !strings.Contains(page, `<dt>sampled</dt><dd class="error">0 of root traces (parentbased_always_off)</dd>`) {
		t.Errorf("not on the page:\n%s", page)
	}
}

// The dropped lines of the log are a metric, on the page and in JSON when they are added.
func TestShowLog(t *testing.T) {
	s := startServer(t, sample)
	asJSON, metrics := strings.Replace(s.URL(), pathPage, pathJSON, 1), strings.Replace(s.URL(), pathPage, pathMetrics, 1)
	dropped := uint64(0)
	if err := s.ShowLog(func() uint64 { return dropped }); err != nil {
		t.Fatal(err)
	}
	_, body := fetch(t, asJSON)
	_, page := fetch(t, s.URL())
	if strings.Contains(body, "log_lines_dropped") || strings.Contains(page, "log lines dropped") {
		t.Errorf("dropped lines where there are none:\n%s\n%s", body, page)
	}
	if _, text := fetch(t, metrics); !strings.Contains(text, "\nserve_log_lines_dropped_total 0\n") {
		t.Errorf("no counter at zero:\n%s", text)
	}
	dropped = 42
	var status Status
	_, body = fetch(t, asJSON)
	if err := json.Unmarshal([]byte(body), &status); err != nil || status.Process.LogLinesDropped != 42 {
		t.Errorf("%d lines in JSON, %v", status.Process.LogLinesDropped, err)
	}
	if _, page := fetch(t, s.URL()); !strings.Contains(page, `<dt>log lines dropped</dt><dd class="error">42</dd>`) {
		t.Errorf("not on the page:\n%s", page)
	}
	if _, text := fetch(t, metrics); !strings.Contains(text, "\nserve_log_lines_dropped_total 42\n") {
		t.Errorf("not in the metrics:\n%s", text)
	}
}
