package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/printable"
)

// serviceWith answers as a service with these plugins does.
func serviceWith(t *testing.T, plugins ...host.ExporterStats) string {
	t.Helper()
	srv := httptest.NewServer(admin.Handler(func() host.Stats { return host.Stats{LimitBytes: 32 << 20, Exporters: plugins} }))
	t.Cleanup(srv.Close)
	return srv.URL
}

// status runs the command with this environment.
func status(t *testing.T, env map[string]string, args ...string) (code int, stdout, failure string) {
	t.Helper()
	var out bytes.Buffer
	cmd := newRoot(func(name string) string { return env[name] }, nil)
	cmd.SetArgs(append([]string{"status"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return exitCode(t.Context(), err), out.String(), textOf(err)
}

func in(name string, state host.State) host.ExporterStats {
	return host.ExporterStats{Name: name, State: state, Since: time.Now().Add(-time.Minute)}
}

func TestStatusExitCodes(t *testing.T) {
	for _, c := range []struct {
		plugins []host.ExporterStats
		code    int
		failure string
	}{
		{nil, 0, ""},
		{[]host.ExporterStats{in("a", host.StateReady), in("b", host.StateReady)}, 0, ""},
		{[]host.ExporterStats{in("a", host.StateReady), in("gone", host.StateStopped)}, 0, ""},
		{[]host.ExporterStats{in("a", host.StateDegraded), in("b", host.StateBroken), in("c", host.StateReady)}, 3, "2 of 3 plugins not ready: a (degraded), b (broken)"},
		{[]host.ExporterStats{in("a", host.StateStarting)}, 3, "1 of 1 plugin not ready: a (starting)"},
		{[]host.ExporterStats{in("a", host.StateStopped)}, 3, "the plugins are stopped: the service is about to end"},
	} {
		at := serviceWith(t, c.plugins...)
		for _, args := range [][]string{{"--addr", at}, {"--addr", strings.TrimPrefix(at, "http://"), "--json"}} {
			if code, _, failure := status(t, nil, args...); code != c.code || failure != c.failure {
				t.Errorf("%v %v: exit code %d, %q; want %d, %q", c.plugins, args, code, failure, c.code, c.failure)
			}
		}
	}
}

// TestStatusOfRelay reads the part of the output about a relay.
func TestStatusOfRelay(t *testing.T) {
	shown := admin.Status{
		Version: admin.StatusVersion,
		Spans:   admin.Spans{PushedBack: 50},
		Relay: &admin.Relay{
			Endpoints:   []string{"grpc unix:///run/relay.sock", "http http://127.0.0.1:4318"},
			Connections: map[string]int{"grpc": 2, "http": 0},
			Requests:    map[string]map[string]uint64{"grpc": {"OK": 3, "RESOURCE_EXHAUSTED": 1}},
			Spans:       map[string]uint64{"grpc": 15},
			Closed:      map[string]uint64{"bytes": 4},
			Lost:        map[string]uint64{"queue_full": 5, "refused": 1, "encode": 0},
			Senders:     []admin.RelaySender{{Name: "pid 7 (uid 0)", Connections: 2, Requests: 4, PushedBack: 1, Spans: 15, Lost: map[string]uint64{"queue_full": 3}}},
		},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(shown)
	}))
	t.Cleanup(srv.Close)
	_, out, _ := status(t, nil, "--addr", srv.URL)
	_, got, _ := strings.Cut(out, "\nrelay ")
	want := `   grpc unix:///run/relay.sock, http http://127.0.0.1:4318
         50 spans pushed back, connections closed by a limit: bytes 4
         spans lost by senders: queue_full 5, refused 1
plugins  none: tracing is off, or its folders have none

PROTOCOL  CONNECTIONS  SPANS  REQUESTS
grpc      2            15     OK 3, RESOURCE_EXHAUSTED 1
http      0            0      0

SENDER         CONNECTIONS  SPANS  REQUESTS  PUSHED BACK  LOST
pid 7 (uid 0)  2            15     4         1            queue_full 3
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusShowsEverything(t *testing.T) {
	x := in("console", host.StateDegraded)
	x.Cause, x.LastError, x.Path, x.PID = "503", "UNAVAILABLE: 503", "/opt/console", 4242
	x.Version, x.SDK, x.Digest, x.Granted = "1.2.3", "servetrace-go", strings.Repeat("0a", 32), []string{"TERM", "LANG"}
	x.Starts, x.Crashes, x.LastCrash = 7, 6, time.Now().Add(-time.Hour)
	x.Accepted, x.Delivered, x.Waiting, x.InFlight, x.InFlightBatches, x.HeldBytes = 30, 5, 10, 4, 2, 2048
	x.Rejected, x.Filtered, x.Dropped = map[string]uint64{"INTERNAL": 1}, map[string]uint64{"sample": 2}, map[string]uint64{"max_age": 12}
	x.Answers, x.Quarantined = map[string]uint64{"OK": 9, "LOST": 1}, 3
	x.Changed, x.Unkept, x.OutputSuppressed, x.OutputDropped = true, 2, 77, 78
	x.LastErrorTime, x.HeldUntil = time.Now().Add(-2*time.Hour), time.Now().Add(3*time.Hour+30*time.Second)
	x.Failures = []host.Failure{
		{Code: "UNAVAILABLE", Reason: "503", Calls: 21, Last: x.LastErrorTime},
		{Code: "INTERNAL", Reason: "500", Calls: 1, Spans: 3, Last: x.LastErrorTime},
	}
	_, out, _ := status(t, nil, "--addr", serviceWith(t, x))
	squeezed := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"memory 0 B of 32.0 MiB", "console degraded 1m0s 5 10 4 13 7 6", "cause 503", "path /opt/console", "pinned to 0a0a", "pid 4242",
		"version 1.2.3", "SDK servetrace-go", "last success never", "last crash 1h0m ago", "last error UNAVAILABLE: 503, 2h0m ago", "left alone for 3h0m more",
		"UNAVAILABLE 21 calls, the last 2h0m ago: 503", "INTERNAL 3 spans lost, 1 call, the last 2h0m ago: 500", "variables TERM, LANG",
		"accepted 30", "rejected INTERNAL 1", "filtered sample 2", "dropped max_age 12", "calls LOST 1, OK 9", "quarantined 3 batches",
		"file is not the one that runs any more", "not kept 2 files", "not logged 77 lines of its output", "not printed 78 lines of its output",
		"held 2.0 KiB, 2 calls in flight",
	} {
		if !strings.Contains(squeezed, want) {
			t.Errorf("no %q in the output:\n%s", want, out)
		}
	}
	if _, out, _ := status(t, nil, "--addr", serviceWith(t)); !strings.Contains(out, "none: tracing is off, or its folders have none") {
		t.Errorf("without plugins:\n%s", out)
	}
}

// No text of a plugin, or of another program at the service's address, controls a
// terminal.
func TestStatusIsSafeForTerminals(t *testing.T) {
	const evil = "\x1b]0;owned\x07\x1b[2J\u202eevil\x9b31m"
	x := in("a"+evil, host.StateBroken)
	x.Cause, x.LastError, x.Path, x.Version, x.SDK, x.Digest, x.Granted = evil, evil, evil, evil, evil, evil, []string{evil}
	x.Rejected, x.Filtered, x.Dropped = map[string]uint64{evil: 1}, map[string]uint64{evil: 1}, map[string]uint64{evil: 1}
	x.Answers = map[string]uint64{evil: 1}
	x.Failures = []host.Failure{{Code: evil, Reason: evil, Calls: 1}}
	at := serviceWith(t, x)
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, evil, http.StatusTeapot)
	}))
	defer liar.Close()
	for _, args := range [][]string{{"--addr", at}, {"--addr", at, "--json"}, {"--addr", liar.URL}} {
		_, out, failure := status(t, nil, args...)
		shown := out + printable.Lines(failure) // as runProcess shows it
		if i := strings.IndexFunc(shown, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%v: a terminal would obey %q", args, shown[i:min(len(shown), i+20)])
		}
	}
}

func TestStatusThatCanNotBeHad(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/next"):
			_, _ = io.WriteString(w, `{"version": 2}`)
		case strings.HasPrefix(r.URL.Path, "/html"):
			_, _ = io.WriteString(w, "<html>")
		case strings.HasPrefix(r.URL.Path, "/moved"):
			http.Redirect(w, r, "/next", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer other.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for addr, want := range map[string]string{
		other.URL:            "/-/tracing.json: status 404 Not Found: 404 page not found",
		other.URL + "/next":  "the status has version 2, and this command knows 1: use the servetrace of the service's version",
		other.URL + "/html":  "the answer is not a status: is that the port of SERVE_ADMIN_PORT?",
		other.URL + "/moved": "status 302 Found",
		closed.URL:           "connection refused; does the service run with SERVE_ADMIN_PORT set? --addr sets another address",
	} {
		if code, _, failure := status(t, nil, "--addr", addr); code != exitNo || !strings.Contains(failure, want) {
			t.Errorf("%s: exit code %d, %q; want 1, %q", addr, code, failure, want)
		}
	}
	for addr, want := range map[string]string{
		"": "--addr", "http://": "--addr", "ftp://x": "--addr", "http://user:pw@x": "--addr", "http://x?y": "--addr", "h h": "--addr",
	} {
		if code, _, failure := status(t, nil, "--addr", addr); code != exitUsage || !strings.Contains(failure, want) {
			t.Errorf("--addr %q: exit code %d, %q; want 2", addr, code, failure)
		}
	}
}

func TestWhereTheStatusIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		host, port, want string
	}{
		{"", "", "http://127.0.0.1:8001/-/tracing.json"},
		{"", "9001", "http://127.0.0.1:9001/-/tracing.json"},
		{"0.0.0.0", "9001", "http://127.0.0.1:9001/-/tracing.json"},
		{"::", "", "http://127.0.0.1:8001/-/tracing.json"},
		{"::1", "", "http://[::1]:8001/-/tracing.json"},
		{"ops.example", "80", "http://ops.example:80/-/tracing.json"},
		{"", "0", ""},
		{"", "many", ""},
	} {
		s := settings{func(name string) string { return map[string]string{admin.EnvHost: c.host, admin.EnvPort: c.port}[name] }}
		got, err := adminURL(s, "", false)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("host %q, port %q: %q, %v; want %q", c.host, c.port, got, err, c.want)
		}
	}
	for _, c := range []struct {
		file string
		env  map[string]string
		want string // the URL, or what the error has
	}{
		{"admin: {port: 9001}", nil, "http://127.0.0.1:9001/-/tracing.json"},
		{"admin: {port: 9001, host: ops.example}", nil, "http://ops.example:9001/-/tracing.json"},
		{"admin: {port: 9001, host: ops.example}", map[string]string{admin.EnvPort: "80"}, "http://ops.example:80/-/tracing.json"},
		{"admin: {port: 9001, pprof: perhaps}\nother: 1", nil, "http://127.0.0.1:9001/-/tracing.json"}, // edited since the service has read it
		{"{}", nil, "http://127.0.0.1:8001/-/tracing.json"},
		{"admin: {port: 0}", nil, "serve.yaml: admin.port is \"0\": want a port from 1 to 65535"},
		{"admin: {port: many}", nil, "serve.yaml:1:15: admin.port: the text \"many\""},
		{"", nil, "the file is empty"},
		{"", map[string]string{admin.EnvPort: "80"}, "http://127.0.0.1:80/-/tracing.json"},
	} {
		path := filepath.Join(t.TempDir(), "serve.yaml")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		s := settings{func(name string) string {
			if name == servetrace.EnvConfig {
				return path
			}
			return c.env[name]
		}}
		got, err := adminURL(s, "", false)
		if err == nil && got != c.want || err != nil && (strings.HasPrefix(c.want, "http") || !strings.Contains(err.Error(), c.want) || exitCode(t.Context(), err) != exitUsage) {
			t.Errorf("file %q, environment %v: %q, %v; want %q", c.file, c.env, got, err, c.want)
		}
	}
	nowhere := settings{func(name string) string { return map[string]string{servetrace.EnvConfig: "/nowhere/serve.yaml"}[name] }}
	if got, err := adminURL(nowhere, "", false); err == nil || !strings.Contains(err.Error(), "there is no such file") {
		t.Errorf("a file that is missing: %q, %v", got, err)
	}
	if got, err := adminURL(nowhere, "h:1", true); got != "http://h:1/-/tracing.json" || err != nil {
		t.Errorf("with --addr: %q, %v", got, err)
	}
	for addr, want := range map[string]string{
		"h:1": "http://h:1/-/tracing.json", "http://h:1/-/tracing": "http://h:1/-/tracing.json", "https://h/ops/": "https://h/ops/-/tracing.json",
		"http://h/-/tracing.json": "http://h/-/tracing.json", "[::1]:8001": "http://[::1]:8001/-/tracing.json", ":8132": "http://127.0.0.1:8132/-/tracing.json",
	} {
		if got, err := statusURL("--addr", addr); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", addr, got, err, want)
		}
	}
}

// Watching goes on while the service is away, and ends by a signal with the
// exit code of the last answer.
func TestStatusIsWatched(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	handler := admin.Handler(func() host.Stats { return host.Stats{Exporters: []host.ExporterStats{in("a", host.StateBroken)}} })
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer srv.Close()
	var out, errs bytes.Buffer
	err := watchStatus(ctx, writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "broken") {
			cancel()
		}
		return out.Write(p)
	}), &errs, srv.URL+"/-/tracing.json", false)
	if _, ok := errors.AsType[notReadyError](err); !ok || exitCode(ctx, err) != exitNotReady {
		t.Errorf("error %v, exit code %d; want 3", err, exitCode(ctx, err))
	}
	if !strings.Contains(errs.String(), "503 Service Unavailable: not yet") || !strings.Contains(out.String(), "broken") {
		t.Errorf("printed\n%s\nand\n%s", out.String(), errs.String())
	}
}

// A signal before the answer to a request leaves the exit code of the last answer, and
// prints nothing.
func TestWatchIsEndedBetweenAnswers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	handler := admin.Handler(func() host.Stats { return host.Stats{Exporters: []host.ExporterStats{in("a", host.StateBroken)}} })
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 2 {
			cancel()
			<-r.Context().Done()
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer srv.Close()
	var out, errs bytes.Buffer
	err := watchStatus(ctx, &out, &errs, srv.URL+"/-/tracing.json", false)
	if got := exitCode(ctx, err); got != exitNotReady || errs.Len() > 0 {
		t.Errorf("error %v, exit code %d, %q; want 3 and nothing", err, got, errs.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// What the service serves stands above its plugins, and without any.
func TestStatusShowsDeployments(t *testing.T) {
	s := admin.Status{Deployments: []admin.Deployment{{
		App: "shop", Name: "Model", State: "UNHEALTHY", Error: "check\x1b: boom", NumReplicas: 3, Queued: 6,
		Replicas: []admin.Replica{{State: "RUNNING", Ongoing: 4}, {State: "STARTING", Ongoing: 1}},
	}, {
		App: "shop", Name: "Rank", State: "UNHEALTHY", Target: "dns:///rank:9100", Error: "search for processes: no such host",
	}}}
	var out bytes.Buffer
	if err := writeStatus(&out, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"APP   DEPLOYMENT  STATE      REPLICAS        ONGOING  QUEUED\n",
		"shop  Model       UNHEALTHY  1 of 3 running  5        6\n" +
			"shop  Rank        UNHEALTHY  0 of 0 running  0        0\n" +
			"shop/Model: check\u241b: boom\n" +
			"shop/Rank: in other processes, at dns:///rank:9100\nshop/Rank: search for processes: no such host\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("a terminal would take it for a command:\n%q", out.String())
	}
}
