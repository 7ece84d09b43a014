package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/relay"
	"github.com/servetrace/servetrace/test/testplugin"
)

// relayInTest is a process of "servetrace relay", which is this test binary.
type relayInTest struct {
	cmd    *exec.Cmd
	log    testplugin.Log
	ended  chan struct{} // closed when the log ends
	plugin string
}

// startRelay starts a relay with a plugin of a mode, and returns when it listens.
func startRelay(t *testing.T, mode string, args ...string) *relayInTest {
	t.Helper()
	return startRelayWith(t, testplugin.Install(t, mode), nil, args...)
}

// ownBinary returns a link to this test binary under a name, which TestMain takes for a
// command or a plugin.
func ownBinary(t *testing.T, name string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// startRelayWith starts a relay with a plugin and variables ("NAME=value"), and returns
// when it listens.
func startRelayWith(t *testing.T, plugin string, env []string, args ...string) *relayInTest {
	t.Helper()
	r := &relayInTest{plugin: plugin, ended: make(chan struct{})}
	r.cmd = exec.Command(ownBinary(t, "servetrace"), append([]string{"relay"}, args...)...)
	r.cmd.Env = append(os.Environ(), "SERVE_TRACING_EXPORTER_PLUGIN="+r.plugin, "SERVE_TRACING_BATCH_AGE=20ms")
	r.cmd.Env = append(r.cmd.Env, env...)
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(r.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			_, _ = r.log.Write(append(lines.Bytes(), '\n'))
		}
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it has ended, except if the test has failed
		<-r.ended
		_ = r.cmd.Wait()
		if t.Failed() {
			t.Logf("log of the relay:\n%s", &r.log)
		}
	})
	r.waitLog(t, "relay listens")
	return r
}

func (r *relayInTest) waitLog(t *testing.T, text string) {
	t.Helper()
	testplugin.WaitFor(t, "the log line "+text, func() bool { return strings.Contains(r.log.String(), text) })
}

// endpoint returns the address of a listener in the log.
func (r *relayInTest) endpoint(t *testing.T, protocol string) string {
	t.Helper()
	m := regexp.MustCompile(protocol + `=(\S+)`).FindStringSubmatch(r.log.String())
	if m == nil {
		t.Fatalf("the log has no endpoint for %s", protocol)
	}
	return strings.TrimPrefix(m[1], "http://")
}

// stop sends SIGTERM and waits for the end.
func (r *relayInTest) stop(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.ended
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the relay ends with %v", err)
	}
}

func dialRelay(t *testing.T, target string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// named returns a request with one span.
func named(name string) *coltracepb.ExportTraceServiceRequest {
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{
		Spans: []*tracepb.Span{{TraceId: bytes.Repeat([]byte{1}, 16), SpanId: bytes.Repeat([]byte{2}, 8), Name: name}},
	}}}}}
}

// TestRelayLosesNothing sends spans while the plugin is killed and reloaded, and stops
// the relay right after the last span.
func TestRelayLosesNothing(t *testing.T) {
	socket := filepath.Join(shortTempDir(t), "relay.sock")
	r := startRelay(t, "record", "--socket", socket)
	client := coltracepb.NewTraceServiceClient(dialRelay(t, "unix://"+socket))
	wait := metadata.AppendToOutgoingContext(t.Context(), relay.HeaderWait, relay.WaitDelivered)
	const each = 200
	var senders sync.WaitGroup
	for s := range 4 {
		senders.Go(func() {
			ctx := t.Context()
			if s%2 == 0 {
				ctx = wait
			}
			for i := range each {
				if _, err := client.Export(ctx, named(fmt.Sprintf("s%d-%d", s, i))); err != nil {
					t.Errorf("send: %v", err)
					return
				}
			}
		})
	}
	testplugin.WaitFor(t, "spans", func() bool { return len(testplugin.Received(t, r.plugin)) > 3 })
	if err := syscall.Kill(testplugin.Received(t, r.plugin)[0].PID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	r.waitLog(t, "start=2")
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Error(err)
	}
	r.waitLog(t, "reloading plugins")
	senders.Wait()
	r.stop(t)
	got := testplugin.Spans(t, r.plugin)
	for s := range 4 {
		for i := range each {
			if name := fmt.Sprintf("s%d-%d", s, i); got[name] == 0 {
				t.Errorf("span %s is lost", name)
			}
		}
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket after the end: %v", err)
	}
}

// shortTempDir returns a folder whose path is short enough for sockets.
// TestRelayRefusesItsOwnSpans points the plugin otlp at the relay itself, as it does by
// default. The relay refuses the spans that come back.
func TestRelayRefusesItsOwnSpans(t *testing.T) {
	for protocol, flag := range map[string]string{"http/protobuf": "--http", "grpc": "--grpc"} {
		t.Run(flag, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addr := l.Addr().String()
			_ = l.Close()
			socket := filepath.Join(shortTempDir(t), "relay.sock")
			r := startRelayWith(t, ownBinary(t, "otlp"), []string{
				"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + addr, "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol,
			}, flag, addr, "--socket", socket)
			client := coltracepb.NewTraceServiceClient(dialRelay(t, "unix://"+socket))
			wait := metadata.AppendToOutgoingContext(t.Context(), relay.HeaderWait, relay.WaitDelivered)
			answer, err := client.Export(wait, named("a"))
			if err != nil || answer.GetPartialSuccess().GetRejectedSpans() != 1 {
				t.Errorf("answer %v, error %v; want one span rejected", answer, err)
			}
			r.waitLog(t, "one of its plugins sends to the relay itself")
			r.stop(t)
			if text := r.log.String(); !strings.Contains(text, `msg="stopped; spans were lost" spans=1 otlp.delivered=0 otlp.rejected=`) {
				t.Error("the relay has taken its own spans")
			}
		})
	}
}

func shortTempDir(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// TestRelayFlagsOverride: each flag overrides the environment and the service file, also
// with the value that is its default.
func TestRelayFlagsOverride(t *testing.T) {
	file := filepath.Join(t.TempDir(), "service.yaml")
	text := "relay: {linger: 30s, wait_for_result: true, max_streams: 7}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"SERVE_TRACING_EXPORTER_PLUGIN": "console", "SERVE_RELAY_GRPC": "1", "SERVE_RELAY_HTTP": "2", "SERVE_RELAY_LINGER": "20s",
	}
	for _, c := range []struct {
		args []string
		want relay.Config
	}{
		{nil, relay.Config{GRPCAddr: "127.0.0.1:1", HTTPAddr: "127.0.0.1:2", Linger: 20 * time.Second, WaitForResult: true, MaxStreams: 7}},
		{[]string{"--grpc", "3", "--linger", "9s"}, relay.Config{GRPCAddr: "127.0.0.1:3", HTTPAddr: "127.0.0.1:2", Linger: 9 * time.Second, WaitForResult: true, MaxStreams: 7}},
		{[]string{"--http", "", "--linger", "0", "--wait-for-result=false"}, relay.Config{GRPCAddr: "127.0.0.1:1", MaxStreams: 7}},
	} {
		var f relayFlags
		f.add(pflag.NewFlagSet("relay", pflag.ContinueOnError))
		if err := f.all.Parse(append(c.args, "--config", file)); err != nil {
			t.Fatal(err)
		}
		_, got, err := f.read(settings{func(name string) string { return env[name] }})
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", c.args, err, diff)
		}
	}
}

func TestLimitProcs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct {
		all       int
		set, want map[string]int
		own       int
	}{
		{1, nil, map[string]int{"": 1}, 1},
		{9, map[string]int{"a": 7}, map[string]int{"": 2, "a": 7}, 4},
		{8, map[string]int{"": 5}, map[string]int{"": 5}, 4},
	} {
		runtime.GOMAXPROCS(c.all)
		cfg := host.Config{PluginMaxProcs: c.set}
		limitProcs(&cfg)
		if diff := cmp.Diff(c.want, cfg.PluginMaxProcs); diff != "" || runtime.GOMAXPROCS(0) != c.own {
			t.Errorf("of %d processors the relay has %d; plugins (-want +got):\n%s", c.all, runtime.GOMAXPROCS(0), diff)
		}
	}
}

// TestRelayProcs: the relay leaves processors to other programs, except if the operator
// has set a number.
func TestRelayProcs(t *testing.T) {
	for value, most := range map[string]int{"": max(1, runtime.NumCPU()/2), "3": 3} {
		r := startRelayWith(t, testplugin.Install(t, "record"), []string{"GOMAXPROCS=" + value}, "--grpc", "0", "--admin", "127.0.0.1:0")
		addr, _, _ := strings.Cut(r.endpoint(t, "admin"), "/")
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		m := regexp.MustCompile(`(?m)^go_sched_gomaxprocs_threads (\d+)$`).FindSubmatch(metrics)
		if err != nil || m == nil {
			t.Fatalf("metrics of the relay: %v\n%s", err, metrics)
		}
		if got, err := strconv.Atoi(string(m[1])); err != nil || got > most || value != "" && got != most {
			t.Errorf("with GOMAXPROCS=%q the relay uses %d processors, want %d", value, got, most)
		}
		r.stop(t)
	}
}

// TestSignalDuringStart: a signal before all parts have started stops them in order.
func TestSignalDuringStart(t *testing.T) {
	socket := filepath.Join(shortTempDir(t), "relay.sock")
	env := map[string]string{"SERVE_TRACING_EXPORTER_PLUGIN": testplugin.Install(t, "record"), "SERVE_RELAY_SOCKET": socket, "GOMEMLIMIT": "off", "GOMAXPROCS": "unchanged"}
	var log testplugin.Log
	cmd := newRoot(func(name string) string { return env[name] }, nil)
	cmd.SetArgs([]string{"relay"})
	cmd.SetErr(&log)
	ctx, signal := context.WithCancel(t.Context())
	signal()
	if err := cmd.ExecuteContext(ctx); err != nil || !strings.Contains(log.String(), "msg=stopped") {
		t.Errorf("the end: %v, log:\n%s", err, &log)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket after the end: %v", err)
	}
}

// TestHangupDuringTheStop: a SIGHUP does not end the relay while it sends its last spans.
func TestHangupDuringTheStop(t *testing.T) {
	t.Setenv("SERVE_TRACING_STOP_TIMEOUT", "1s")
	r := startRelay(t, "hang", "--grpc", "0")
	client := coltracepb.NewTraceServiceClient(dialRelay(t, r.endpoint(t, "grpc")))
	if _, err := client.Export(t.Context(), named("last")); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.waitLog(t, "msg=stopping")
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	<-r.ended
	_ = r.cmd.Wait() // the state has the result
	if r.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(r.log.String(), "stopped; spans were lost") {
		t.Errorf("the end of the relay: %v, want exit code 1 because spans were lost", r.cmd.ProcessState)
	}
}

// TestStopWithoutAReaderOfTheLog: the reader of standard error reads no more. Senders get
// their answers, and the relay stops.
func TestStopWithoutAReaderOfTheLog(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "stderr")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	stderr, err := os.OpenFile(fifo, os.O_RDWR, 0) // it is its own reader
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stderr.Close() }()
	socket := filepath.Join(shortTempDir(t), "relay.sock")
	cmd := exec.Command(ownBinary(t, "servetrace"), "relay", "--socket", socket)
	cmd.Env = append(os.Environ(), "SERVE_TRACING_EXPORTER_PLUGIN="+testplugin.Install(t, "record"))
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()          // ends with the process
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, except if the test has failed
	client := coltracepb.NewTraceServiceClient(dialRelay(t, "unix://"+socket))
	if _, err := client.Export(t.Context(), named("first"), grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	fillPipe(t, fifo)
	if _, err := client.Export(t.Context(), named("second")); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the relay ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the relay does not stop")
	}
}

// fillPipe writes to a pipe until it has no room.
func fillPipe(t *testing.T, path string) {
	t.Helper()
	pipe, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	if err := pipe.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = pipe.Write(make([]byte, 4096)) // what fits in is written, until the deadline
	}
}

// TestRelayWarnsOfMisspeltVariables: a variable that nothing reads is in the log, when the
// plugin has been ready, and the sampling ratio of services at once. Variables of the program that has started the relay are not.
func TestRelayWarnsOfMisspeltVariables(t *testing.T) {
	t.Setenv("SERVE_RELAY_LINGR", "1s")
	t.Setenv("SERVE_RELAY_READ_TIMEOUT", "20s")
	t.Setenv("SERVE_TRACING_SAMPLING_RATIO", "0")
	t.Setenv("SERVE_TRACING_RELAY_BINARY", "/opt/servetrace")
	t.Setenv("RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH", "servetrace_ray:span_processors")
	r := startRelay(t, "record", "--socket", filepath.Join(shortTempDir(t), "relay.sock"))
	r.waitLog(t, `level=WARN msg="setting is not used" setting="SERVE_RELAY_LINGR: neither the relay nor a running plugin reads this variable; did you mean SERVE_RELAY_LINGER?"`)
	r.waitLog(t, `level=WARN msg="setting is not used" setting="SERVE_TRACING_SAMPLING_RATIO: a relay takes every span that is sent to it;`)
	r.stop(t)
	if n := strings.Count(r.log.String(), "level=WARN"); n != 2 {
		t.Errorf("%d warnings, want 2", n)
	}
}

// mostMemory bounds the resident memory of the relay in TestRelayUnderAttack, in KiB:
// twice memoryLimit. Without its bounds, the relay needs several GiB there. With the
// race detector the test checks the answers alone, because it needs memory of its own.
const mostMemory = 2 * memoryLimit >> 10

// TestRelayUnderAttack sends thousands of connections, requests that never end, gzip
// bombs and malformed requests. The relay's memory is bounded, and a good program sends
// on without an error.
func TestRelayUnderAttack(t *testing.T) {
	r := startRelay(t, "record", "--grpc", "0", "--http", "0")
	good := coltracepb.NewTraceServiceClient(dialRelay(t, r.endpoint(t, "grpc")))
	if _, err := good.Export(t.Context(), named("good-0")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	attack := func(times int, f func()) {
		for range times {
			attackers.Go(func() {
				for ctx.Err() == nil {
					f()
				}
			})
		}
	}
	target := r.endpoint(t, "http")
	bomb := gzipped(t, bytes.Repeat([]byte{0x0a, 0}, 50<<20))
	jsonBomb := gzipped(t, []byte(`{"resourceSpans":[`+strings.Repeat(`{},`, 1<<20)+`{}]}`))
	tooLarge, malformed := &atomic.Int64{}, &atomic.Int64{}
	attack(3, func() { postTo(ctx, target, "application/x-protobuf", bomb, map[int]*atomic.Int64{413: tooLarge}) })
	attack(1, func() { postTo(ctx, target, "application/json", jsonBomb, nil) })
	attack(2, func() {
		postTo(ctx, target, "application/x-protobuf", []byte("\x0a\xff\xff"), map[int]*atomic.Int64{400: malformed})
	})
	attack(6, func() { endless(ctx, target) })
	var idle []net.Conn
	for range 1500 {
		conn, err := net.Dial("tcp", r.endpoint(t, "grpc")) //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
	}
	for i := range 40 {
		_, err := good.Export(t.Context(), named(fmt.Sprintf("good-%d", i+1)))
		if err != nil {
			t.Errorf("the good program: %v", err)
		}
	}
	testplugin.WaitFor(t, "the answers", func() bool { return tooLarge.Load() >= 5 && malformed.Load() >= 5 })
	cancel()
	attackers.Wait()
	for _, conn := range idle {
		_ = conn.Close()
	}
	kib := peakMemory(t, r.cmd.Process.Pid)
	if kib > mostMemory && !hasRaceDetector() {
		t.Errorf("the relay used %d KiB, want at most %d", kib, mostMemory)
	}
	t.Logf("the relay used %d KiB", kib)
	r.stop(t)
	got := testplugin.Spans(t, r.plugin)
	for i := range 41 {
		if name := fmt.Sprintf("good-%d", i); got[name] != 1 {
			t.Errorf("span %s arrived %d times", name, got[name])
		}
	}
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// postTo posts a request, compressed if it is gzip, and counts its status.
func postTo(ctx context.Context, target, kind string, body []byte, count map[int]*atomic.Int64) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+target+"/v1/traces", bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", kind)
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		req.Header.Set("Content-Encoding", "gzip")
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return // the relay may have closed the connection
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if n := count[resp.StatusCode]; n != nil {
		n.Add(1)
	}
}

// endless begins a request of 16 MiB, and keeps it open before its last byte.
func endless(ctx context.Context, target string) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	const size = 16 << 20
	if _, err := fmt.Fprintf(conn, "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n", size); err != nil {
		return
	}
	part := make([]byte, 64<<10)
	for sent := 0; sent < size-len(part); sent += len(part) {
		if _, err := conn.Write(part); err != nil {
			return
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _ = conn.Read(part)
}

// hasRaceDetector reports whether this binary was built with -race.
func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// peakMemory returns the largest resident memory of a process so far, in KiB.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("the memory of a process: %v", err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the status has no VmHWM")
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
