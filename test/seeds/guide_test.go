package seeds

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/servetrace/servetrace/examples/hellotest"
)

var rowsOfGuide = []row{
	{number: 19, says: "`default_tracing_service.yaml`", how: "the file as it is: `bin/hello --config FILE`", verdict: works, check: checkFirstFile, ray: sameChain, onRay: apart},
	{number: 20, says: "`name`, `working_dir`, `image_uri`, `requirements`, `import_path`, `runtime_env`", how: "`name` is `service.name`; the others give a warning with the line", verdict: different, why: "the applications of a Go service are compiled in", check: checkFirstFile},
	{number: 21, says: "`tracing_service.yaml`, application `my_app`", how: "the file as it is: `bin/hello --app my_app --config FILE`", verdict: works, check: checkSecondFile, ray: sameChain, onRay: apart},
	{number: 22, says: "`anyscale service deploy -f FILE`", how: "start the program", verdict: different, why: "the program is the service", check: checkFirstFile},
	{number: 23, says: "span files in the session's `logs/serve/spans`", how: "span files with Ray's names, in the folder that the log names", verdict: works, check: checkFirstFile, ray: sameFiles},
	{number: 24, says: "the JSON of a span, field by field", how: "`console` writes the same fields and forms", verdict: works, check: checkJSON, ray: sameJSON},
	{number: 25, says: "attributes of the proxy span", how: "the same", verdict: works, check: checkProxyAttributes, ray: sameAttributes("proxy_http_request")},
	{number: 26, says: "attributes of the router span", how: "the same; its name is that of Ray today", verdict: works, check: checkRouterAttributes, ray: sameAttributes("route_to_replica")},
	{number: 27, says: "each request exports a trace", how: "the same", verdict: works, check: checkEachRequest},
	{number: 28, says: "`FastAPIInstrumentor` and other instrumentors", how: "`otelhttp` and `otelgrpc` in `bin/instrumented`", verdict: works, check: checkInstrumented},
	{number: 29, says: "span `GET / http send`", how: "–", verdict: absent, why: "a span of ASGI's messages; otelhttp has none"},
	{number: 30, says: "`get_replica_context()`, `set_attributes`, `set_status`", how: "`serving.ReplicaContext(ctx)`", verdict: works, check: checkReplicaContext, ray: sameAttributes("application_span")},
	{number: 31, says: "exporter: a function that returns `List[SpanProcessor]`", how: "the function as a plugin, `python:module:function`; in Go `otelplugin.Pipeline`", verdict: works, check: checkPipeline, function: consoleFunction},
	{number: 32, says: "several span processors, several back ends", how: "several plugins, or `bin/multi-backend-plugin`", verdict: works, check: checkSeveral},
	{number: 33, says: "Honeycomb with its three variables", how: "`bin/honeycomb-plugin`", verdict: works, check: checkHoneycomb},
	{number: 34, says: "a Dockerfile, built and pushed", how: "the base image of `make release`, and a Dockerfile on it in `docs/how-to/install.md`", verdict: absent, why: "`test/deploy` runs the images, and no test runs Docker"},
	{number: 35, says: "`exporter_import_path: exporter:default_tracing_exporter`", how: "the same: the function runs in Python, as a plugin", verdict: works, check: checkImportPath},
	{number: 36, says: "`inject()` between services", how: "`bin/upstream-downstream`, twice", verdict: works, check: checkTwoServices},
	{number: 37, says: "one service with applications `app` and `app2`", how: "the file without `exporter_import_path`: `bin/upstream-downstream --config FILE`", verdict: works, check: checkOneService, ray: sameGuide},
	{number: 38, says: "the `Authorization` header goes on", how: "the same", verdict: works, check: checkAuthorization},
	{number: 39, says: "spans on the console of a workspace", how: "`python:exporter_dev:debug_span_processor`, or `console`", verdict: works, check: checkConsole, function: consoleFunction},
	{number: 40, says: "`ANYSCALE_TRACING_EXPORTER_IMPORT_PATH`, `RAY_SERVE_TRACING_*`", how: "one warning with the settings to use", verdict: different, why: "the names are `SERVE_TRACING_*`", check: checkRaysVariables},
	{number: 41, says: "an access log line beside the spans", how: "with `trace_id` and `span_id`", verdict: works, check: checkAccessLog},
	{number: 42, says: "Datadog's agent on ports 8126 and 4318", how: "`datadog`, in both modes", verdict: works, check: checkDatadog},
	{number: 43, says: "`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_LOG_LEVEL`, `OTEL_SERVICE_NAME`", how: "the same", verdict: works, check: checkVariables},
	{number: 44, says: "`RayServeSpanProcessor`: four `ray.*` ids on each span", how: "`python:exporter_dd:anyscale_span_processors`, or `SERVE_RAY_CONTEXT=on`", verdict: works, check: checkIdentity, function: datadogFunction, ray: processorFails, onRay: "the guide's processor fails the request: 500"},
	{number: 45, says: "it is an `on_start` hook", how: "`otelplugin.Processors` replays `OnStart` after the end", verdict: different, why: "a hook out of process cannot fail a request", check: checkOnStart},
	{number: 46, says: "`BatchSpanProcessor(OTLPSpanExporter())`", how: "the same in Python, or `otlp`", verdict: works, check: checkPipeline, function: datadogFunction},
	{number: 47, says: "processors are added to the default provider", how: "OpenTelemetry's global provider", verdict: works, check: checkGlobalProvider},
}

// checkFirstFile starts hello with the guide's first file, and reads its span files.
func checkFirstFile(t *testing.T) {
	s := start(t, "hello", []string{"--config", seedFile(t, "default_tracing_service.yaml")})
	folder := spanFolder(s)
	get(t, s.URL, nil)
	s.Stop()
	for _, key := range []string{"yaml:3:1: working_dir", "yaml:4:1: image_uri", "yaml:5:1: requirements", "yaml:15:5: applications[0].import_path"} {
		wantLog(t, s, key+" has no effect")
	}
	spans := spansOf(t, spanFiles(t, folder)...)
	wantTree(t, spans, helloChain("(root)"))
	for _, one := range spans {
		if one.resource["service.name"] != "default-tracing-service" {
			t.Errorf("span %q is of service %v", one.name, one.resource["service.name"])
		}
	}
	wantNames(t, spanFiles(t, folder), `^proxy_[0-9.]+_tracing\.json$`, `^replica_default_HelloWorld_[a-z0-9]{8}_tracing\.json$`)
}

// wantNames checks that the names of files match the patterns, in order.
func wantNames(t *testing.T, files []string, patterns ...string) {
	t.Helper()
	if len(files) != len(patterns) {
		t.Fatalf("files %q, want %q", files, patterns)
	}
	for i, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(filepath.Base(files[i])) {
			t.Errorf("file %q, want %s", files[i], pattern)
		}
	}
}

func checkSecondFile(t *testing.T) {
	s := start(t, "hello", []string{"--app", "my_app", "--config", seedFile(t, "tracing_service.yaml")})
	folder := spanFolder(s)
	get(t, s.URL, nil)
	s.Stop()
	spans := spansOf(t, spanFiles(t, folder)...)
	wantTree(t, spans, helloChain("(root)"))
	wantAttributes(t, one(t, spans, "proxy_http_request"), map[string]any{"app": "my_app"})
	wantNames(t, spanFiles(t, folder), `^proxy_`, `^replica_my_app_HelloWorld_`)
}

// checkJSON compares the JSON of a span with the guide's: the keys, and the forms of ids,
// times and kinds. The keys of the resource may be more.
func checkJSON(t *testing.T) {
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN=console")
	get(t, s.URL, nil)
	s.Stop()
	for decoder := json.NewDecoder(strings.NewReader(s.Stdout.String())); ; {
		var ours map[string]any
		if err := decoder.Decode(&ours); err != nil {
			t.Fatalf("no proxy span in the output: %v", err)
		}
		if strings.HasPrefix(ours["name"].(string), "proxy_http_request") {
			wantForm(t, ours)
			return
		}
	}
}

// wantForm compares a proxy span as JSON with the guide's.
func wantForm(t *testing.T, ours map[string]any) {
	t.Helper()
	text, err := os.ReadFile(seedFile(t, "proxy_http_request.json"))
	if err != nil {
		t.Fatal(err)
	}
	var guide map[string]any
	if err := json.Unmarshal(text, &guide); err != nil {
		t.Fatal(err)
	}
	keys := func(m any) []string { return slices.Sorted(maps.Keys(m.(map[string]any))) }
	for _, at := range []string{"", "context", "status"} {
		g, o := any(guide), any(ours)
		if at != "" {
			g, o = guide[at], ours[at]
		}
		if !slices.Equal(keys(g), keys(o)) {
			t.Errorf("keys of %q are %q, want %q", at, keys(o), keys(g))
		}
	}
	for _, at := range []string{"attributes", "resource"} {
		for key := range guide[at].(map[string]any) {
			if _, ok := ours[at].(map[string]any)[key]; !ok {
				t.Errorf("%s has no %q", at, key)
			}
		}
	}
	form := regexp.MustCompile(`[0-9a-f]`)
	if shape := func(id any) string { return form.ReplaceAllString(id.(string), "0") }; shape(ours["context"].(map[string]any)["trace_id"]) != shape(guide["context"].(map[string]any)["trace_id"]) ||
		shape(ours["start_time"]) != shape(guide["start_time"]) || ours["kind"] != guide["kind"] || ours["parent_id"] != guide["parent_id"] {
		t.Errorf("context %v, start %v, kind %v, parent %v; want the forms of %v", ours["context"], ours["start_time"], ours["kind"], ours["parent_id"], guide)
	}
}

func checkProxyAttributes(t *testing.T) {
	wantAttributes(t, one(t, hello(t, "/", header("X-Request-Id", "r-1")), "proxy_http_request"), map[string]any{
		"request_id": "r-1", "deployment": "HelloWorld", "app": "default", "request_type": "http", "request_method": "GET", "request_route_path": "/",
	})
}

func checkRouterAttributes(t *testing.T) {
	wantAttributes(t, one(t, hello(t, "/", header("X-Request-Id", "r-1")), "route_to_replica"), map[string]any{
		"request_id": "r-1", "deployment": "HelloWorld", "app": "default", "call_method": "__call__", "route": "/",
		"multiplexed_model_id": "", "is_streaming": true, "is_http_request": true, "is_grpc_request": false,
	})
}

func checkEachRequest(t *testing.T) {
	s, r := traced(t, "hello", nil)
	for range 5 {
		get(t, s.URL, nil)
	}
	s.Stop()
	traces := map[string]bool{}
	for _, s := range arrived(r) {
		traces[s.trace] = true
	}
	if len(traces) != 5 || len(arrived(r)) != 5*hellotest.SpansOfRequest {
		t.Errorf("%d traces of %d spans, want 5 of 20", len(traces), len(arrived(r)))
	}
}

func checkInstrumented(t *testing.T) {
	s, r := traced(t, "instrumented", []string{"--grpc", "127.0.0.1:" + freePort(t)})
	if _, body, _ := get(t, s.URL+"/translate/cat", nil); body != "Katze\n" {
		t.Errorf("answer %q", body)
	}
	s.Stop()
	wantTree(t, arrived(r), chain("(root)", "proxy_http_request Shop GET /translate/{word}", "route_to_replica Shop __call__", "replica_handle_request Shop __call__",
		"GET /translate/{word}", "translate.v1.TranslatorService/Translate", "proxy_grpc_request Translator /translate.v1.TranslatorService/Translate",
		"route_to_replica Translator Translate", "replica_handle_request Translator Translate", "translate.v1.TranslatorService/Translate", "look_up"))
}

func freePort(t *testing.T) string {
	t.Helper()
	held := httptest.NewServer(nil)
	defer held.Close()
	return held.URL[strings.LastIndex(held.URL, ":")+1:]
}

func checkReplicaContext(t *testing.T) {
	spans := hello(t, "/", nil)
	user := one(t, spans, "application_span")
	wantAttributes(t, user, map[string]any{"deployment": "HelloWorld", "replica_id": one(t, spans, "replica_handle_request").attributes["replica_id"]})
	if user.status != "STATUS_CODE_OK" {
		t.Errorf("status %s", user.status)
	}
}

// checkPipeline runs a plugin of the guide's parts: this test binary.
func checkPipeline(t *testing.T) {
	wantTree(t, hello(t, "/", nil, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, "batch-otlp")), helloChain("(root)"))
}

func checkSeveral(t *testing.T) {
	checkPluggable(t)
	r := hellotest.StartReceiver(t)
	lines := filepath.Join(t.TempDir(), "lines")
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN="+filepath.Join(*bin, "multi-backend-plugin"),
		"SPAN_LINES_FILE="+lines, "SERVE_TRACING_PLUGIN_ENV=*:SPAN_LINES_FILE", "OTEL_EXPORTER_OTLP_ENDPOINT="+r.URL)
	get(t, s.URL, nil)
	s.Stop()
	text, err := os.ReadFile(lines)
	if err != nil || strings.Count(string(text), "\n") != 4 || strings.Count(s.Stdout.String(), `"name"`) != 4 || len(arrived(r)) != 4 {
		t.Errorf("%v; file:\n%s\nreceiver: %d spans; output:\n%s", err, text, len(arrived(r)), s.Stdout)
	}
}

func checkHoneycomb(t *testing.T) {
	r := hellotest.StartReceiver(t)
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN="+filepath.Join(*bin, "honeycomb-plugin"), "OTEL_EXPORTER_OTLP_ENDPOINT="+r.URL,
		"HONEYCOMB_SERVICE_NAME=my-service-name", "HONEYCOMB_WRITE_KEY=key", "HONEYCOMB_DATASET_NAME=my-dataset-name")
	get(t, s.URL, nil)
	s.Stop()
	wantTree(t, arrived(r), helloChain("(root)"))
	for _, request := range r.Requests() {
		if request.Header.Get("X-Honeycomb-Team") != "key" || request.Header.Get("X-Honeycomb-Dataset") != "my-dataset-name" {
			t.Errorf("headers %v", request.Header)
		}
	}
	if name := arrived(r)[0].resource["service.name"]; name != "my-service-name" {
		t.Errorf("service %v", name)
	}
}

func checkImportPath(t *testing.T) {
	for _, c := range []struct {
		program string
		args    []string
	}{
		{"hello", []string{"--app", "my_app", "--config", seedFile(t, "tracing_service_with_exporter.yaml")}},
		{"upstream-downstream", []string{"--config", seedFile(t, "tracing_upstream_downstream_service.yaml")}},
	} {
		s := start(t, c.program, c.args)
		get(t, s.URL, nil)
		// The function runs if this machine has its packages: go test ./examples/ray-exporter.
		s.Await(s.Log, `plugin=exporter (?:path|cause)=`, 1)
		s.Stop()
	}
}

func checkOneService(t *testing.T) {
	text, err := os.ReadFile(seedFile(t, "tracing_upstream_downstream_service.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "service.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "  exporter_import_path: exporter:default_tracing_exporter\n", "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "upstream-downstream", []string{"--config", file})
	folder := spanFolder(s)
	if _, body, _ := get(t, s.URL, nil); !strings.Contains(body, `"downstream_message":"Hello world from DownstreamApp!"`) {
		t.Errorf("answer %q", body)
	}
	s.Stop()
	wantTree(t, spansOf(t, spanFiles(t, folder)...), guideChain("(root)"))
	wantNames(t, spanFiles(t, folder), `^proxy_`, `^replica_app2_DownstreamApp_`, `^replica_app_UpstreamApp_`)
}

func checkAuthorization(t *testing.T) {
	var got atomic.Value
	down := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.Store(r.Header.Get("Authorization")) }))
	defer down.Close()
	s := start(t, "upstream-downstream", []string{"--downstream", down.URL})
	get(t, s.URL, header("Authorization", "Bearer x"))
	s.Stop()
	if got.Load() != "Bearer x" {
		t.Errorf("Authorization %v", got.Load())
	}
}

func checkConsole(t *testing.T) {
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN=console")
	get(t, s.URL, nil)
	s.Stop()
	if n := strings.Count(s.Stdout.String(), `"trace_id": "0x`); n != hellotest.SpansOfRequest {
		t.Errorf("%d spans are printed", n)
	}
}

func checkRaysVariables(t *testing.T) {
	s := start(t, "hello", nil, "ANYSCALE_TRACING_EXPORTER_IMPORT_PATH=exporter_dev:debug_span_processor",
		"RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=a:b", "RAY_SERVE_TRACING_SAMPLING_RATIO=1.0")
	s.Await(s.Log, "Ray's settings have no effect here", 1)
	s.Stop()
	wantLog(t, s, "ANYSCALE_TRACING_EXPORTER_IMPORT_PATH, RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH, RAY_SERVE_TRACING_SAMPLING_RATIO: "+
		"Ray's settings have no effect here; set SERVE_TRACING_EXPORTER_PLUGIN=python:MODULE:FUNCTION and SERVE_TRACING_SAMPLING_RATIO")
	if n := strings.Count(s.Log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings, want one", n)
	}
}

func checkAccessLog(t *testing.T) {
	s := start(t, "hello", nil)
	get(t, s.URL, header("Traceparent", sampled))
	s.Stop()
	s.Await(s.Log, `msg=request method=GET status=200 .*trace_id=`+callerTrace+` span_id=[0-9a-f]{16}`, 1)
}

// checkDatadog checks both modes. The agent counts traces by a header of its protocol;
// test/peers runs the core of the real agent.
func checkDatadog(t *testing.T) {
	var traces atomic.Int64
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v0.4/traces" || r.URL.Path == "/v0.5/traces" {
			n, _ := strconv.Atoi(r.Header.Get("X-Datadog-Trace-Count")) // 0 without it
			traces.Add(int64(n))
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer agent.Close()
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN=datadog", "DD_TRACE_AGENT_URL="+agent.URL)
	get(t, s.URL, nil)
	s.Stop()
	wantLog(t, s, "datadog.delivered=4")
	if traces.Load() == 0 {
		t.Error("the agent got no trace")
	}
	spans := hello(t, "/", nil, "SERVE_TRACING_EXPORTER_PLUGIN=datadog", "SERVE_DATADOG_MODE=otlp")
	wantTree(t, spans, helloChain("(root)"))
	wantAttributes(t, one(t, spans, "proxy_http_request"), map[string]any{"resource.name": "*", "ray.task_id": "*"})
}

func checkVariables(t *testing.T) {
	s, r := traced(t, "hello", nil, "OTEL_LOG_LEVEL=DEBUG", "OTEL_SERVICE_NAME=my-service-name")
	get(t, s.URL, nil)
	s.Stop()
	wantTree(t, arrived(r), helloChain("(root)"))
	wantLog(t, s, "level=DEBUG")
	if name := arrived(r)[0].resource["service.name"]; name != "my-service-name" {
		t.Errorf("service %v", name)
	}
}

// checkIdentity runs the example that is the guide's RayServeSpanProcessor, and the
// stock plugin with the same processor.
func checkIdentity(t *testing.T) {
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN="+filepath.Join(*bin, "ray-console-plugin"))
	get(t, s.URL, header("X-Request-Id", "r-1"))
	s.Stop()
	spans := hello(t, "/", header("X-Request-Id", "r-1"), "SERVE_RAY_CONTEXT=on")
	wantIdentity(t, spans)
	wantIdentity(t, decodeSpans(t, s.Stdout.String()))
}

// wantIdentity checks Ray's ids on the spans of request r-1 to hello.
func wantIdentity(t *testing.T, spans []span) {
	t.Helper()
	wantTree(t, spans, helloChain("(root)"))
	for _, one := range spans {
		for key, digits := range map[string]int{"ray.job_id": 8, "ray.actor_id": 32, "ray.task_id": 48} {
			if id, _ := one.attributes[key].(string); !regexp.MustCompile(`^[0-9a-f]+$`).MatchString(id) || len(id) != digits {
				t.Errorf("span %q has %s=%q, want %d digits", one.name, key, id, digits)
			}
		}
		wantAttributes(t, one, map[string]any{"ray.request_id": "r-1"})
	}
}

func checkOnStart(t *testing.T) {
	spans := hello(t, "/", header("X-Request-Id", "r-1"), "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, "on-start"))
	wantTree(t, spans, helloChain("(root)"))
	for _, one := range spans {
		wantAttributes(t, one, map[string]any{"ray.request_id": "r-1"})
	}
}

func checkGlobalProvider(t *testing.T) {
	s, r := traced(t, "instrumented", []string{"--grpc", "127.0.0.1:" + freePort(t)})
	get(t, s.URL+"/translate/cat", nil)
	s.Stop()
	one(t, arrived(r), "look_up")               // the application's tracer
	one(t, arrived(r), "GET /translate/{word}") // otelhttp's
}
