package servetrace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"github.com/servetrace/servetrace/serving"
)

// serviceMain is the service of the process tests. /slow prints on standard error that it
// has begun, and answers after the begin of the shutdown; /hang ignores everything.
func serviceMain() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		_, span := otel.Tracer("service").Start(r.Context(), "user")
		defer span.End()
		_, _ = io.WriteString(w, "hello")
	})
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM, os.Interrupt)
		fmt.Fprintln(os.Stderr, "slow has begun")
		<-told
		for healthy("http://" + r.Host) { // until draining has begun, too
		}
		_, _ = io.WriteString(w, "done")
	})
	mux.HandleFunc("GET /log", func(_ http.ResponseWriter, r *http.Request) {
		slog.InfoContext(r.Context(), "from slog", "own", 1)
		log.Print("from log") // as libraries do
	})
	mux.HandleFunc("GET /verbose", func(_ http.ResponseWriter, r *http.Request) {
		for range verboseLines {
			slog.InfoContext(r.Context(), "verbose", "text", strings.Repeat("word ", 1000))
		}
	})
	mux.HandleFunc("GET /fatal", func(http.ResponseWriter, *http.Request) { log.Fatalf("last words by %s", "log") })
	mux.HandleFunc("GET /exit", func(_ http.ResponseWriter, r *http.Request) {
		slog.With("by", "slog").ErrorContext(r.Context(), "last words")
		os.Exit(1)
	})
	mux.HandleFunc("GET /hang", func(http.ResponseWriter, *http.Request) {
		fmt.Fprintln(os.Stderr, "hang has begun")
		select {}
	})
	d := serving.NewDeployment("D", mux, serving.WithReplicas(2))
	if os.Getenv("WITH_GRPC") != "" {
		d.RegisterService(&echoService, struct{}{})
	}
	apps := []*serving.App{serving.NewApp("default", d)}
	if os.Getenv("WITH_GREETER") != "" {
		apps = append(apps, serving.NewApp("greetings", greeter(), serving.WithRoutePrefix("/greet")))
	}
	Main(apps...)
}

func healthy(url string) bool {
	resp, err := http.Get(url + "/-/healthz")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// The whole way: a request's spans leave through the plugin, and nothing is
// left when the service has stopped.
func TestServiceStopsWithEverySpanOut(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "OTEL_SERVICE_NAME=test", "RAY_JOB_ID=0a0b0c0d")
	const requests = 20
	for range requests {
		if status, body := get(t, p.url+"/"); status != 200 || body != "hello" {
			t.Fatalf("status %d, body %q", status, body)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, p.log)
	}
	names := map[string]int{}
	children := map[string]string{} // by the parent's span id
	for _, s := range p.spans() {
		names[s.Name]++
		children[s.ParentID] = s.Name
		if s.Resource.Attributes["service.name"] != "test" {
			t.Errorf("span %q is of service %v", s.Name, s.Resource.Attributes["service.name"])
		}
		if task, _ := s.Attributes["serve.task_id"].(string); !strings.HasSuffix(task, "0a0b0c0d") {
			t.Errorf("span %q has task id %q, which does not end in the job id", s.Name, task)
		}
	}
	want := map[string]int{
		"proxy_http_request D GET /": requests, "route_to_replica D __call__": requests,
		"replica_handle_request D __call__": requests, "user": requests,
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	for _, s := range p.spans() {
		next := map[string]string{
			"proxy_http_request D GET /":  "route_to_replica D __call__",
			"route_to_replica D __call__": "replica_handle_request D __call__", "replica_handle_request D __call__": "user",
		}
		if got := children[s.Context.SpanID]; got != next[s.Name] {
			t.Errorf("child of %q is %q, want %q", s.Name, got, next[s.Name])
		}
	}
	log := p.log.String()
	for _, line := range []string{
		`msg=serving url=` + p.url + ` tracing=on plugins="console (`,
		`sampler=parentbased_traceidratio ratio=1 trust_inbound=true`,
		`msg=stopping because="terminated signal received"`,
		`msg=stopped spans=80 console.delivered=80`,
	} {
		if !strings.Contains(log, line) {
			t.Errorf("no %q in the log:\n%s", line, log)
		}
	}
}

// SIGHUP puts a new process in the plugin's place: no request and no span is
// lost, and each is delivered once.
func TestHangUpReloadsPlugins(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console")
	p.log.await(t, "plugin is ready")
	if status, _ := get(t, p.url+"/"); status != 200 {
		t.Errorf("status %d", status)
	}
	p.signal(syscall.SIGHUP)
	if status, _ := get(t, p.url+"/"); status != 200 {
		t.Errorf("status %d", status)
	}
	p.log.await(t, "the reload of plugins has ended")
	if status, _ := get(t, p.url+"/"); status != 200 {
		t.Errorf("status %d", status)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 || len(p.spans()) != 12 {
		t.Errorf("exit code %d with %d spans, want 0 and 12\n%s", code, len(p.spans()), p.log)
	}
}

// TestStartLineHasTheRootRatio checks that the start line has the ratio of the sampler,
// not the argument of another sampler.
func TestStartLineHasTheRootRatio(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "OTEL_TRACES_SAMPLER=always_off")
	p.log.await(t, "sampler=always_off ratio=0 ")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
}

func TestHangUpWithoutPlugins(t *testing.T) {
	p := startProc(t)
	p.signal(syscall.SIGHUP)
	p.log.await(t, `msg="there are no plugins to reload: tracing is off"`)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
}

// startPiped starts the service with a pipe for its log. The log is read up to the line
// with the URL.
func startPiped(t *testing.T, env ...string) (cmd *exec.Cmd, log io.ReadCloser, serving string) {
	t.Helper()
	dir := t.TempDir()
	cmd = exec.Command(link(t, dir, "service"))
	cmd.Env = append([]string{"GORACE=atexit_sleep_ms=0", "TMPDIR=" + dir, "SERVE_HTTP_PORT=0"}, env...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // a test that failed half-way
	lines := bufio.NewReader(pipe)
	log = struct {
		io.Reader
		io.Closer
	}{lines, pipe}
	for !strings.Contains(serving, "msg=serving") {
		if serving, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("the service does not serve: %v", err)
		}
	}
	return cmd, log, serving
}

// urlIn is the url in the line serving of the log.
func urlIn(t *testing.T, serving string) string {
	t.Helper()
	found := regexp.MustCompile(`\burl=(http://\S+)`).FindStringSubmatch(serving)
	if found == nil {
		t.Fatalf("no url in %q", serving)
	}
	return found[1]
}

// The reader of the log has ended: writes to it fail, and nothing else.
func TestBrokenLogDoesNotEndTheService(t *testing.T) {
	cmd, log, serving := startPiped(t)
	url := urlIn(t, serving)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if status, _ := get(t, url+"/"); status != 200 {
			t.Errorf("status %d", status)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the service ended: %v", err)
	}
}

func TestRequestInFlightFinishes(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console")
	answer := make(chan string, 1)
	go func() { // ends with the service
		resp, err := http.Get(p.url + "/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		answer <- fmt.Sprint(resp.StatusCode, " ", string(body), " ", err)
	}()
	p.log.await(t, "slow has begun")
	p.signal(os.Interrupt.(syscall.Signal))
	if got, want := <-answer, "200 done <nil>"; got != want {
		t.Errorf("the request in flight: %q, want %q", got, want)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, p.log)
	}
	if n := len(p.spans()); n != 3 {
		t.Errorf("%d spans of the request in flight, want 3", n)
	}
}

// A second signal does not wait for a handler that hangs, and no plugin stays.
func TestSecondSignalCutsShort(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console")
	go func() { // ends with the service
		if resp, err := http.Get(p.url + "/hang"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	p.log.await(t, "hang has begun")
	p.log.await(t, "plugin is ready")
	p.signal(syscall.SIGTERM)
	p.log.await(t, "msg=stopping")
	<-time.After(2 * signalWindow) // a second one, not the first again
	began := time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if took := time.Since(began); took > 15*time.Second { // of the 20 s for requests and the minute for plugins
		t.Errorf("it took %v", took)
	}
	if log := p.log.String(); !strings.Contains(log, "stopped by a second signal") || !strings.Contains(log, "1 handlers still running") {
		t.Errorf("the log does not say what was cut short:\n%s", log)
	}
}

// The error of a drain that took too long names the setting that ended it.
func TestDrainBeyondItsTime(t *testing.T) {
	p := startProc(t, "SERVE_SHUTDOWN_TIMEOUT=50ms")
	go func() { // ends with the service
		if resp, err := http.Get(p.url + "/hang"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	p.log.await(t, "hang has begun")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if want := "drain: 1 requests cut off, 1 handlers still running: SERVE_SHUTDOWN_TIMEOUT=50ms is over"; !strings.Contains(p.log.String(), want) {
		t.Errorf("the log does not say %q:\n%s", want, p.log)
	}
}

// A signal that is sent twice at once, as GNU timeout does, is one.
func TestSignalsAtOnceAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, err := serving.New(serving.Config{}, []*serving.App{serving.NewApp("app", serving.NewDeployment("d", http.NotFoundHandler()))})
		if err != nil {
			t.Fatal(err)
		}
		signals := make(chan os.Signal, 2)
		s := &service{log: slog.New(slog.DiscardHandler), server: server, signals: handleStopSignals(signals, func() {})}
		signals <- syscall.SIGTERM
		if err := s.wait(t.Context()); err != nil {
			t.Error(err)
		}
		s.closers = append(s.closers, func(ctx context.Context) error {
			signals <- syscall.SIGTERM
			select {
			case <-time.After(time.Second): // with the patience that a stop has
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		if err := s.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

// A signal within the window is a repetition of the first. The next one forces the stop.
func TestWhichSignalsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal)
		resets := 0
		s := handleStopSignals(signals, func() { resets++ })
		defer s.end()
		for i, tc := range []struct {
			after  time.Duration // the signal before
			forced bool
		}{{time.Second, false}, {signalWindow - 1, false}, {1, true}} {
			time.Sleep(tc.after)
			signals <- syscall.SIGTERM
			synctest.Wait()
			if got := s.forced.Err() != nil; got != tc.forced || (resets == 1) != tc.forced {
				t.Errorf("after signal %d: forced %t and %d resets, want forced %t", i+1, got, resets, tc.forced)
			}
		}
		if got := len(s.asked); got != 1 {
			t.Errorf("%d signals to stop are passed on, want 1", got)
		}
	})
}

func TestPluginThatIsMissingHurtsNothing(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=/nowhere/plugin", "SERVE_TRACING_STOP_TIMEOUT=500ms")
	if status, _ := get(t, p.url+"/"); status != 200 {
		t.Errorf("status %d", status)
	}
	p.log.await(t, "/nowhere/plugin")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d, want 0: lost spans are not the service's failure", code)
	}
	if log := p.log.String(); !strings.Contains(log, `msg="stopped; spans were lost" spans=4 plugin.delivered=0 plugin.dropped=map[shutdown:4]`) {
		t.Errorf("the last line has no delivery accounting:\n%s", log)
	}
}

func TestTracingOff(t *testing.T) {
	const plugin = "SERVE_TRACING_EXPORTER_PLUGIN=console"
	file := filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(file, []byte("tracing_config: {plugins: {console: {}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		because string
		env     []string
	}{
		{`because="SERVE_TRACING_EXPORTER_PLUGIN is not set"`, nil},
		{`because="SERVE_TRACING_EXPORTER_PLUGIN is not set, and tracing_config.enabled is not true in the service file"`, []string{"SERVE_CONFIG=" + file}},
		{`because="OTEL_SDK_DISABLED=true"`, []string{"OTEL_SDK_DISABLED=true", plugin}},
		{`because="OTEL_TRACES_EXPORTER=none"`, []string{"OTEL_TRACES_EXPORTER=none", plugin}},
	} {
		p := startProc(t, append([]string{"SERVE_HTTP_PORT=0"}, tc.env...)...)
		if status, _ := get(t, p.url+"/"); status != 200 {
			t.Errorf("%s: status %d", tc.env, status)
		}
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("%s: exit code %d", tc.env, code)
		}
		if log := p.log.String(); !strings.Contains(log, "tracing=off "+tc.because) || strings.Contains(log, "plugin is ready") {
			t.Errorf("%s: the log does not say that tracing is off, or a plugin ran:\n%s", tc.env, log)
		}
		if p.stdout.Len() > 0 {
			t.Errorf("%s: spans were printed:\n%s", tc.env, p.stdout.String())
		}
	}
}

// All faults of all parts come at once, and nothing starts.
func TestWrongSettingsEndTheStart(t *testing.T) {
	p := launchProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_TRACING_SAMPLING_RATIO=2", "SERVE_HTTP_PORT=many", "SERVE_TRACING_QUEUE_BYTES=lots")
	if code := p.wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	log := p.log.String()
	for _, fault := range []string{
		`SERVE_TRACING_SAMPLING_RATIO="2": want a number from 0 to 1`,
		`SERVE_HTTP_PORT="many": want a whole number from 0 to 65535`,
		`SERVE_TRACING_QUEUE_BYTES="lots"`,
	} {
		if !strings.Contains(log, fault) {
			t.Errorf("no %q in:\n%s", fault, log)
		}
	}
	if strings.Contains(log, "plugin is ready") {
		t.Error("a plugin was started")
	}
}

// takenPort returns a port of 127.0.0.1 with a listener until the test ends.
func takenPort(t *testing.T) string {
	t.Helper()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	return port
}

func TestAddressInUseStopsThePlugin(t *testing.T) {
	p := launchProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_HTTP_PORT="+takenPort(t))
	if code := p.wait(); code != 1 { // waits for the plugin, too
		t.Errorf("exit code %d, want 1", code)
	}
	if log := p.log.String(); !strings.Contains(log, "address already in use: another process listens there; choose another port with SERVE_HTTP_PORT") {
		t.Errorf("the log does not say why:\n%s", log)
	}
}

func TestWarningsAndLogLevel(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "OTEL_TRACES_SAMPLER=coin", "OTEL_LOG_LEVEL=loud")
	p.signal(syscall.SIGTERM)
	p.wait()
	for line := range strings.Lines(p.log.String()) { // the SDK's own message of the sampler is none
		if strings.Contains(line, "coin") && !strings.Contains(line, "setting is not used") {
			t.Errorf("the sampler is reported twice: %s", line)
		}
	}
	for _, text := range []string{"OTEL_TRACES_SAMPLER: ", "OTEL_LOG_LEVEL: "} {
		if !strings.Contains(p.log.String(), text) {
			t.Errorf("no warning with %q in:\n%s", text, p.log)
		}
	}

	cfg, err := ConfigFromEnv(func(key string) string { return map[string]string{"OTEL_LOG_LEVEL": "error"}[key] })
	if err != nil || cfg.LogLevel != slog.LevelError {
		t.Errorf("level %v, error %v; want ERROR", cfg.LogLevel, err)
	}
}

func TestParseLevel(t *testing.T) {
	for text, want := range map[string]slog.Level{
		"": slog.LevelInfo, "info": slog.LevelInfo, "WARN": slog.LevelWarn, " error ": slog.LevelError,
		"debug": slog.LevelDebug, "none": silent, "loud": slog.LevelInfo,
	} {
		if got, ok := parseLevel(text); got != want || ok != (text != "loud") {
			t.Errorf("parseLevel(%q) = %v, %t; want %v", text, got, ok, want)
		}
	}
}

// inProcess is a Config for Run in this process.
func inProcess(t *testing.T) Config {
	t.Helper()
	cfg, err := ConfigFromEnv(func(key string) string { return map[string]string{"SERVE_HTTP_PORT": "0"}[key] })
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// While Run runs, OpenTelemetry's globals are its own: user code that asks them
// keeps an inbound context, even with tracing off.
func TestRunSetsGlobalsAndPutsThemBack(t *testing.T) {
	tracers, propagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	ctx, cancel := context.WithCancelCause(t.Context())
	const inbound = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var outbound atomic.Value
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, span := otel.Tracer("user").Start(r.Context(), "user")
		defer span.End()
		header := http.Header{}
		otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(header))
		outbound.Store(header.Get("traceparent"))
	})
	ready := func(addr net.Addr) {
		if otel.GetTracerProvider() == tracers {
			t.Error("the global provider is not Run's")
		}
		req, err := http.NewRequest(http.MethodGet, "http://"+addr.String(), http.NoBody)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("traceparent", inbound)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
		} else {
			_ = resp.Body.Close()
		}
		cancel(errors.New("enough"))
	}
	app := serving.NewApp("default", serving.NewDeployment("D", handler))
	err := Run(ctx, inProcess(t), []*serving.App{app}, WithReady(ready), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := outbound.Load(); got != inbound {
		t.Errorf("user code passes on %v, want the inbound %s", got, inbound)
	}
	if otel.GetTracerProvider() != tracers || otel.GetTextMapPropagator() != propagator {
		t.Error("the globals are not what they were")
	}
}

func TestRunReportsWrongAppsAndSettings(t *testing.T) {
	log := WithLogger(slog.New(slog.DiscardHandler))
	err := Run(t.Context(), inProcess(t), nil, log)
	if want := "settings: no apps"; err == nil || err.Error() != want {
		t.Errorf("without apps: %v, want %q", err, want)
	}
	cfg := inProcess(t)
	cfg.Tracing.Ratio = 2
	cfg.Serving.HTTPAddr = "nowhere"
	app := serving.NewApp("default", serving.NewDeployment("D", http.NotFoundHandler()))
	err = Run(t.Context(), cfg, []*serving.App{app}, log)
	if err == nil || !strings.Contains(err.Error(), "sampling ratio 2") || !strings.Contains(err.Error(), `HTTPAddr "nowhere"`) {
		t.Errorf("with two faults: %v, want both", err)
	}
}
