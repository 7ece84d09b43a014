package seeds

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/examples/grpc/translatev1"
	"github.com/servetrace/servetrace/examples/hellotest"
)

// recorded is the result of rows whose comparison is in the recording of Ray Serve.
const recorded = "compared in `test/ray`"

var rowsOfPullRequest = []row{
	{number: 1, says: "visibility across proxy, router, replica and user spans", how: "`bin/hello`, `GET /`", verdict: works, check: checkFamilies, ray: sameChain, onRay: apart},
	{number: 2, says: "opt-in by a variable", how: "`SERVE_TRACING_EXPORTER_PLUGIN` unset", verdict: works, check: checkOff},
	{number: 3, says: "`ray.serve.get_trace_context()`", how: "`r.Context()`", verdict: different, why: "the context is Go's carrier, and cannot leak", check: checkFamilies, ray: sameGuide},
	{number: 4, says: "user spans linked to the request's trace", how: "`otel.Tracer(…).Start(ctx, …)`", verdict: works, check: checkFamilies, ray: sameGuide},
	{number: 5, says: "`TraceContextManager`, `BatchTraceContextManager`", how: "the runtime starts and ends these spans", verdict: works, check: checkBatching, onRay: recorded},
	{number: 6, says: "`tracing_decorator_factory`", how: "`ctx, span := tracer.Start(ctx, name)`, `defer span.End()`", verdict: different, why: "two lines of OpenTelemetry; Go has no decorators", check: checkFamilies},
	{number: 7, says: "`create_propagated_context`, `extract_propagated_context`", how: "`otel.GetTextMapPropagator()`", verdict: works, why: "proxy, router and replica are one process", check: checkTwoServices},
	{number: 8, says: "`RAY_SERVE_TRACING_SAMPLING_RATIO`", how: "`SERVE_TRACING_SAMPLING_RATIO`, default 1", verdict: works, check: checkSampling},
	{number: 9, says: "pluggable exporters", how: "plugins: `console`, `otlp`, one of an example", verdict: works, check: checkPluggable},
	{number: 10, says: "`traceparent` and `tracestate` of HTTP headers", how: "the same", verdict: works, why: "Ray drops `tracestate`", check: checkInboundHTTP, onRay: recorded},
	{number: 11, says: "the same of gRPC metadata", how: "the same", verdict: works, check: checkInboundGRPC, onRay: recorded},
	{number: 12, says: "HTTP and RPC semantic attributes on proxy spans", how: "`http.*`, `rpc.*`", verdict: works, check: checkSemantics, onRay: recorded},
	{number: 13, says: "router spans; the context goes on to replicas", how: "`bin/composition`", verdict: works, check: checkComposition, onRay: recorded},
	{number: 14, says: "error attributes and status", how: "`bin/hello`, `GET /fail`", verdict: works, check: checkErrors, onRay: recorded},
	{number: 15, says: "a batch belongs to the first request's trace", how: "`bin/batching`, with a link to each other request", verdict: works, check: checkBatching, onRay: recorded},
	{number: 16, says: "its test plan: HTTP, streams, gRPC, errors, batches, custom exporters", how: "`test/spans`, `test/ray`; here once more", verdict: works, check: checkTestPlan},
	{number: 17, says: "findings of its review: stack mismatch, context never detached, status as text, `tracestate` dropped", how: "none of them", verdict: works, check: checkFindings},
	{number: 18, says: "direct ingress of the replica", how: "–", verdict: absent, why: "proxy and replica are one process, so the proxy costs no hop"},
}

func checkFamilies(t *testing.T) {
	spans := hello(t, "/", nil)
	wantTree(t, spans, helloChain("(root)"))
}

func checkOff(t *testing.T) {
	s := start(t, "hello", nil)
	get(t, s.URL, header("Traceparent", sampled))
	children := childrenOf(t, s.PID())
	s.Stop()
	wantLog(t, s, `tracing=off because="SERVE_TRACING_EXPORTER_PLUGIN is not set"`, "trace_id="+callerTrace)
	if children != "" {
		t.Errorf("the service has started processes: %s", children)
	}
}

// childrenOf returns the ids of the processes that a process has started, on Linux.
func childrenOf(t *testing.T, pid int) string {
	t.Helper()
	var children strings.Builder
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		ids, _ := os.ReadFile(list) // the thread may have ended
		children.Write(ids)
	}
	if err != nil {
		t.Fatal(err)
	}
	return children.String()
}

func checkTwoServices(t *testing.T) {
	down, downSpans := traced(t, "upstream-downstream", nil, "OTEL_SERVICE_NAME=downstream")
	up, upSpans := traced(t, "upstream-downstream", []string{"--downstream", down.URL + "/downstream"}, "OTEL_SERVICE_NAME=upstream")
	if status, _, _ := get(t, up.URL, nil); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	up.Stop()
	down.Stop()
	wantTree(t, append(arrived(upSpans), arrived(downSpans)...), guideChain("(root)"))
	for service, spans := range map[string][]span{"upstream": arrived(upSpans), "downstream": arrived(downSpans)} {
		for _, s := range spans {
			if s.resource["service.name"] != service {
				t.Errorf("span %q is of %v, want %s", s.name, s.resource["service.name"], service)
			}
		}
	}
}

// guideChain is the chain of the guide's two applications.
func guideChain(root string) string {
	return chain(root, "proxy_http_request UpstreamApp GET /", "route_to_replica UpstreamApp __call__", "replica_handle_request UpstreamApp __call__",
		"upstream_application_span", "proxy_http_request DownstreamApp GET /downstream", "route_to_replica DownstreamApp __call__",
		"replica_handle_request DownstreamApp __call__", "downstream_application_span")
}

func checkSampling(t *testing.T) {
	s, r := traced(t, "hello", nil, "SERVE_TRACING_SAMPLING_RATIO=0")
	get(t, s.URL, nil)
	get(t, s.URL, header("Traceparent", sampled))
	get(t, s.URL, header("Traceparent", unsampled))
	s.Stop()
	wantTree(t, arrived(r), helloChain("(the caller)"))

	const requests = 200
	s, r = traced(t, "hello", nil, "SERVE_TRACING_SAMPLING_RATIO=0.5")
	for range requests {
		get(t, s.URL, nil)
	}
	s.Stop()
	// 55 from the mean are over seven standard deviations.
	if n := len(arrived(r)) / hellotest.SpansOfRequest; n < requests/2-55 || n > requests/2+55 {
		t.Errorf("%d of %d requests at ratio 0.5", n, requests)
	}

	cmd := exec.CommandContext(t.Context(), filepath.Join(*bin, "hello"))
	cmd.Env = []string{"SERVE_TRACING_SAMPLING_RATIO=1.5"}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "SERVE_TRACING_SAMPLING_RATIO") {
		t.Errorf("ratio 1.5: %v, %s", err, out)
	}
}

func checkPluggable(t *testing.T) {
	r := hellotest.StartReceiver(t)
	s := start(t, "hello", nil, "SERVE_TRACING_EXPORTER_PLUGIN=console,otlp,"+filepath.Join(*bin, "ray-console-plugin"), "OTEL_EXPORTER_OTLP_ENDPOINT="+r.URL)
	get(t, s.URL, nil)
	s.Stop()
	wantLog(t, s, "console.delivered=4", "otlp.delivered=4", "ray-console-plugin.delivered=4")
	if n := strings.Count(s.Stdout.String(), `"name": "application_span"`); n != 2 || len(arrived(r)) != hellotest.SpansOfRequest {
		t.Errorf("printed %d times, and %d spans at the receiver", n, len(arrived(r)))
	}
}

func checkInboundHTTP(t *testing.T) {
	spans := hello(t, "/", header("Traceparent", sampled, "Tracestate", "a=1,b=2"))
	wantTree(t, spans, helloChain("(the caller)"))
	for _, s := range spans {
		if s.trace != callerTrace || s.state != "a=1,b=2" {
			t.Errorf("span %q is of trace %s with tracestate %q", s.name, s.trace, s.state)
		}
	}
}

// translate sends a gRPC call to bin/grpc and returns its spans, and the trailers.
func translate(t *testing.T, word string) ([]span, metadata.MD, error) {
	t.Helper()
	s, r := traced(t, "grpc", []string{"--grpc", "127.0.0.1:0"})
	conn, err := grpc.NewClient("passthrough:///"+s.Await(s.Log, `\bgrpc=(\S+)`, 1)[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), hellotest.Patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", sampled, "tracestate", "a=1", "request_id", "call-1")
	var trailers metadata.MD
	_, err = translatev1.NewTranslatorServiceClient(conn).Translate(ctx, &translatev1.TranslateRequest{Word: word}, grpc.Trailer(&trailers))
	s.Stop()
	return arrived(r), trailers, err
}

func checkInboundGRPC(t *testing.T) {
	spans, trailers, err := translate(t, "cat")
	if err != nil || len(trailers.Get("request_id")) != 1 || trailers.Get("request_id")[0] != "call-1" {
		t.Errorf("answer %v, trailers %v", err, trailers)
	}
	wantTree(t, spans, chain("(the caller)", "proxy_grpc_request Translator /translate.v1.TranslatorService/Translate",
		"route_to_replica Translator Translate", "replica_handle_request Translator Translate", "look up"))
	if state := one(t, spans, "proxy_grpc_request").state; state != "a=1" {
		t.Errorf("tracestate %q", state)
	}
}

func checkSemantics(t *testing.T) {
	wantAttributes(t, one(t, hello(t, "/", nil), "proxy_http_request"), map[string]any{
		"http.method": "GET", "http.status_code": 200, "http.route": "/",
	})
	spans, _, _ := translate(t, "nothing")
	wantAttributes(t, one(t, spans, "proxy_grpc_request"), map[string]any{
		"rpc.system": "grpc", "rpc.method": "/translate.v1.TranslatorService/Translate", "rpc.grpc.status_code": "NOT_FOUND",
	})
}

func checkComposition(t *testing.T) {
	s, r := traced(t, "composition", nil)
	send(t, http.MethodPost, s.URL+"/describe", `{"text":"good day. more"}`, nil)
	s.Stop()
	wantTree(t, arrived(r), `(root)
  proxy_http_request Gateway POST /describe
    route_to_replica Gateway __call__
      replica_handle_request Gateway __call__
        route_to_replica Sentiment __call__
          replica_handle_request Sentiment __call__
        route_to_replica Shortener shorten
          replica_handle_request Shortener shorten
            route_to_replica Tokenizer tokens
              replica_handle_request Tokenizer tokens
`)
}

func checkErrors(t *testing.T) {
	spans := hello(t, "/fail", nil)
	for prefix, status := range map[string]string{
		"proxy_http_request": "STATUS_CODE_ERROR", "replica_handle_request": "STATUS_CODE_UNSET", "application_span": "STATUS_CODE_ERROR",
	} {
		s := one(t, spans, prefix)
		if s.status != status || len(s.events) != 1 || s.events[0]["exception.message"] != "model not found" {
			t.Errorf("span %q has status %s and events %v", s.name, s.status, s.events)
		}
	}
	proxy, replica := one(t, spans, "proxy_http_request"), one(t, spans, "replica_handle_request")
	if !t.Failed() && (proxy.events[0]["exception.escaped"] != "True" || replica.events[0]["exception.escaped"] != "False") {
		t.Errorf("exception.escaped is %v and %v", proxy.events[0]["exception.escaped"], replica.events[0]["exception.escaped"])
	}
	wantAttributes(t, one(t, spans, "proxy_http_request"), map[string]any{"http.status_code": 500})
}

func checkBatching(t *testing.T) {
	s, r := traced(t, "batching", nil)
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() { send(t, http.MethodPost, s.URL+"/score", `{"text":"good"}`, nil) })
	}
	clients.Wait()
	s.Stop()
	spans := arrived(r)
	linked := 0
	for _, s := range spans {
		if strings.HasPrefix(s.name, "batch_execute") {
			linked += 1 + s.links
			for _, parent := range spans {
				if parent.id == s.parent && !strings.HasPrefix(parent.name, "replica_handle_request") {
					t.Errorf("the batch is below %q", parent.name)
				}
			}
		}
	}
	if linked != 3 {
		t.Errorf("the batches have %d requests of 3:\n%s", linked, tree(spans))
	}
}

func checkTestPlan(t *testing.T) {
	s, r := traced(t, "streaming", nil)
	get(t, s.URL+"/text", nil)
	s.Stop()
	one(t, arrived(r), "proxy_http_request")
	for name, check := range map[string]func(*testing.T){
		"HTTP": checkFamilies, "gRPC": checkInboundGRPC, "errors": checkErrors, "batches": checkBatching, "custom exporter": checkIdentity,
	} {
		t.Run(name, check)
	}
}

func checkFindings(t *testing.T) {
	s, r := traced(t, "hello", nil)
	get(t, s.URL, header("Traceparent", unsampled)) // all on one connection
	get(t, s.URL, header("Traceparent", sampled, "Tracestate", "a=1"))
	get(t, s.URL, nil)
	s.Stop()
	var inbound, own []span
	for _, one := range arrived(r) {
		if one.trace == callerTrace {
			inbound = append(inbound, one)
		} else {
			own = append(own, one)
		}
	}
	wantTree(t, inbound, helloChain("(the caller)"))
	wantTree(t, own, helloChain("(root)")) // nothing of the requests before it
	for _, prefix := range []string{"proxy_http_request", "replica_handle_request"} {
		wantAttributes(t, one(t, own, prefix), map[string]any{"http.status_code": 200}) // not "200"
	}
	if state := one(t, inbound, "replica_handle_request").state; state != "a=1" {
		t.Errorf("tracestate %q", state)
	}
}
