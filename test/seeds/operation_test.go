package seeds

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/examples/hellotest"
)

var rowsOfPreview = []row{
	{number: 48, says: "a provider with `service.name` and `OTLPSpanExporter(endpoint=\".../v1/traces\")`", how: "`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`; a program's own provider in `bin/any-program`", verdict: works, check: checkEndpoint},
	{number: 49, says: "spans across `await DeploymentHandle.remote()`", how: "`Handle.Call(ctx)`", verdict: works, check: checkComposition},
	{number: 50, says: "`traceparent` by hand for raw clients", how: "the same", verdict: works, check: checkRawClient},
	{number: 51, says: "custom spans", how: "`tracer.Start`", verdict: works, check: checkCustomSpans},
	{number: 52, says: "any OpenTelemetry back end", how: "OTLP over HTTP, as protobuf or JSON, and gRPC", verdict: works, why: "`test/peers` has a real Collector, Jaeger and Datadog", check: checkProtocols},
	{number: 53, says: "Ray-internal spans by `RAY_BACKEND_LOG_LEVEL=debug`", how: "–", verdict: absent, why: "there is no Ray inside"},
	{number: 54, says: "pair traces with metrics", how: "`SERVE_ADMIN_PORT`: Ray's metrics, with exemplars", verdict: works, check: checkMetrics},
	{number: 55, says: "State API", how: "`servetrace status`, `/-/tracing`", verdict: works, check: checkStatus},
}

var rowsOfCore = []row{
	{number: 56, says: "a start-up hook that sets up provider, processors, instruments", how: "`host.FromEnv` in `bin/any-program`", verdict: works, check: checkAnyProgram},
	{number: 57, says: "span files of each process in a folder", how: "`SERVE_CONSOLE_OUTPUT=./spans`", verdict: works, check: checkAnyProgram},
	{number: 58, says: "`--tracing-startup-hook=module:attribute`", how: "`contrib/autoexport`, `OTEL_TRACES_EXPORTER=servetrace`", verdict: different, why: "Go loads no code by name; one import, and a variable", check: checkAnyProgram},
	{number: 59, says: "spans of Ray tasks and actors", how: "–", verdict: absent, why: "there are no Ray tasks here"},
	{number: 60, says: "a local JSON file, or Jaeger", how: "`console`, `otlp`", verdict: works, why: "`test/peers` has a real Jaeger", check: checkAnyProgram},
	{number: 61, says: "additional instruments", how: "OpenTelemetry's globals are set before the first request", verdict: works, check: checkInstrumented},
	{number: 62, says: "custom traces", how: "`tracer.Start`", verdict: works, check: checkAnyProgram},
	{number: 63, says: "the hook must be there for all worker processes", how: "a folder of plugins; one dropped in joins at SIGHUP", verdict: works, check: checkDroppedIn},
}

var rowsOfOperation = []row{
	{number: 64, says: "a broken exporter", how: "kill -9 of the plugin: requests are answered, spans wait", verdict: works, check: checkKilled},
	{number: 65, says: "an exporter that cannot be loaded", how: "requests are answered; the log has the reason, and the loss", verdict: works, why: "Ray's replicas do not start", check: checkMissing},
	{number: 66, says: "settings only at a restart", how: "SIGHUP reloads plugins and applications", verdict: works, check: checkDroppedIn},
}

func checkEndpoint(t *testing.T) {
	r := hellotest.StartReceiver(t)
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN=otlp", "OTEL_SERVICE_NAME=ray-app", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+r.URL+"/v1/traces")
	get(t, s.URL, nil)
	s.Stop()
	wantTree(t, arrived(r), helloChain("(root)"))
	if r.Requests()[0].Path != "/v1/traces" || arrived(r)[0].resource["service.name"] != "ray-app" {
		t.Errorf("path %s, service %v", r.Requests()[0].Path, arrived(r)[0].resource)
	}
}

// checkRawClient writes a request by hand.
func checkRawClient(t *testing.T) {
	s, r := traced(t, "hello", nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.0\r\ntraceparent: %s\r\n\r\n", sampled); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	_ = conn.Close()
	s.Stop()
	if err != nil || !strings.Contains(string(answer), "Hello world!") {
		t.Errorf("%v, answer %q", err, answer)
	}
	wantTree(t, arrived(r), helloChain("(the caller)"))
}

func checkCustomSpans(t *testing.T) {
	s, r := traced(t, "batching", nil)
	send(t, http.MethodPost, s.URL+"/score", `{"text":"good"}`, nil)
	s.Stop()
	wantTree(t, arrived(r), chain("(root)", "proxy_http_request Model POST /score", "route_to_replica Model __call__",
		"replica_handle_request Model __call__", "batch_execute Model score", "forward"))
}

// checkProtocols sends by the two protocols that the other checks do not use.
func checkProtocols(t *testing.T) {
	back := &backEnd{}
	overJSON := httptest.NewServer(back)
	defer overJSON.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	overGRPC := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(overGRPC, back)
	var served sync.WaitGroup
	served.Go(func() { _ = overGRPC.Serve(listener) }) // a failed call fails the test
	defer served.Wait()
	defer overGRPC.Stop()

	for protocol, endpoint := range map[string]string{"http/json": overJSON.URL, "grpc": "http://" + listener.Addr().String()} {
		s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint)
		get(t, s.URL, nil)
		s.Stop()
		if n := back.spans.Swap(0); n != hellotest.SpansOfRequest {
			t.Errorf("%d spans by %s", n, protocol)
		}
	}
}

// backEnd counts spans that come as JSON over HTTP, or over gRPC.
type backEnd struct {
	coltracepb.UnimplementedTraceServiceServer
	spans atomic.Int64
}

func (b *backEnd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		ResourceSpans []struct{ ScopeSpans []struct{ Spans []any } }
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, rs := range request.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			b.spans.Add(int64(len(ss.Spans)))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

// Export implements coltracepb.TraceServiceServer.
func (b *backEnd) Export(_ context.Context, request *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	for _, rs := range request.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			b.spans.Add(int64(len(ss.GetSpans())))
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func checkMetrics(t *testing.T) {
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_ADMIN_PORT=0")
	admin := s.Await(s.Log, `\badmin=(http://[0-9.:]+)`, 1)[0]
	get(t, s.URL, header("Traceparent", sampled))
	_, text, _ := get(t, admin+"/metrics", header("Accept", "application/openmetrics-text"))
	s.Stop()
	for _, want := range []string{"serve_num_http_requests_total", "serve_deployment_processing_latency_ms_bucket", `trace_id="` + callerTrace + `"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

func checkStatus(t *testing.T) {
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_ADMIN_PORT=0")
	admin := s.Await(s.Log, `\badmin=(http://[0-9.:]+)`, 1)[0]
	s.Await(s.Log, `msg="plugin is ready"`, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	text := ""
	for !strings.Contains(text, `"state": "ready"`) && ctx.Err() == nil { // an answer may be 20 ms old
		_, text, _ = get(t, admin+"/-/tracing", header("Accept", "application/json"))
		if !json.Valid([]byte(text)) || !strings.Contains(text, `"console"`) {
			t.Fatalf("/-/tracing: %s", text)
		}
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(*bin, "servetrace"), "status", "--addr", strings.TrimPrefix(admin, "http://")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "console") {
		t.Errorf("servetrace status: %v\n%s", err, out)
	}
	s.Stop()
}

func checkAnyProgram(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "spans")
	cmd := exec.CommandContext(t.Context(), filepath.Join(*bin, "any-program"))
	cmd.Env = []string{"SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_CONSOLE_OUTPUT=" + folder,
		"SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_EXPORT_TIMEOUT=1m", "SERVE_TRACING_STOP_TIMEOUT=1m"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("any-program: %v\n%s", err, out)
	}
	wantNames(t, spanFiles(t, folder), `^unknown_service_any-program_.+_tracing\.json$`)
	wantTree(t, spansOf(t, spanFiles(t, folder)...), "(root)\n  report\n    count\n    most\n")
}

// checkDroppedIn drops a plugin into a folder while the service runs.
func checkDroppedIn(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(t.TempDir(), "service.yaml")
	service := func(deployment string) {
		if err := os.WriteFile(file, []byte("applications: [{name: default, deployments: [{name: HelloWorld"+deployment+"}]}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	service("")
	r := hellotest.StartReceiver(t)
	s := start(t, "hello", []string{"--config", file}, "SERVE_TRACING_EXPORTER_PLUGIN="+folder+"/", "OTEL_EXPORTER_OTLP_ENDPOINT="+r.URL)
	get(t, s.URL, nil)
	if err := os.Link(filepath.Join(*bin, "plugins", "otlp"), filepath.Join(folder, "otlp")); err != nil {
		t.Fatal(err)
	}
	service(", num_replicas: 3")
	if err := syscall.Kill(s.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.Await(s.Log, `msg="plugin is ready" plugin=otlp`, 1)
	s.Await(s.Log, "the applications are reloaded from the service file", 1)
	get(t, s.URL, nil)
	s.Stop()
	wantTree(t, arrived(r), helloChain("(root)"))
}

func checkKilled(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "spans")
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_CONSOLE_OUTPUT="+folder)
	pid, err := strconv.Atoi(s.Await(s.Log, `msg="plugin is ready" .*\bpid=(\d+)`, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	get(t, s.URL, nil)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if status, _, _ := get(t, s.URL, nil); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	s.Await(s.Log, `msg="plugin is ready"`, 2)
	s.Stop()
	ids := map[string]bool{}
	for _, one := range spansOf(t, spanFiles(t, folder)...) {
		ids[one.id] = true
	}
	if len(ids) != 4*hellotest.SpansOfRequest {
		t.Errorf("%d of 16 spans are in the files", len(ids))
	}
}

func checkMissing(t *testing.T) {
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN=nosuch,/nowhere/plugin", "SERVE_TRACING_STOP_TIMEOUT=1s")
	if status, _, _ := get(t, s.URL, nil); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	s.Stop()
	wantLog(t, s, `there is no plugin \"nosuch\"`, "there is no such file", "nosuch.dropped=map[shutdown:4]")
}
