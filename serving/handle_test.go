package serving_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// functions is a deployment that only its app's code calls.
func functions(name string, opts ...serving.DeploymentOption) *serving.Deployment {
	return serving.NewDeployment(name, nil, opts...)
}

// caller serves an ingress A whose handler is f, and the others.
func caller(t testing.TB, cfg serving.Config, f serving.HandlerFunc, others ...*serving.Deployment) *rig {
	t.Helper()
	return startApps(t, cfg, serving.NewApp("a", serving.NewDeployment("A", f), serving.WithDeployments(others...)))
}

// family is the span's first word and its deployment.
func family(s sdktrace.ReadOnlySpan) string {
	return strings.Join(strings.SplitN(s.Name(), " ", 3)[:2], " ")
}

// chain gives the spans by name and fails unless each of names is once among
// them, the child of the one before, in one trace.
func chain(t *testing.T, spans []sdktrace.ReadOnlySpan, names ...string) map[string]sdktrace.ReadOnlySpan {
	t.Helper()
	byName := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range spans {
		byName[s.Name()] = s
	}
	if len(spans) != len(names) {
		t.Errorf("%d spans, want %d", len(spans), len(names))
	}
	var parent trace.SpanContext
	for i, name := range names {
		s := byName[name]
		if s == nil {
			t.Fatalf("no span %q", name)
		}
		if i > 0 && (s.Parent().SpanID() != parent.SpanID() || s.SpanContext().TraceID() != parent.TraceID()) {
			t.Errorf("%q is not the child of %q", name, names[i-1])
		}
		parent = s.SpanContext()
	}
	return byName
}

var chainABC = []string{
	"proxy_http_request A GET /items/{id}", "route_to_replica A __call__", "replica_handle_request A __call__",
	"route_to_replica B predict", "replica_handle_request B predict",
	"route_to_replica C __call__", "replica_handle_request C __call__",
}

// threeDeployments serves A, an HTTP handler that calls B, which calls C. inC is
// the context in C.
func threeDeployments(t *testing.T) (r *rig, inC chan context.Context) {
	t.Helper()
	inC = make(chan context.Context, 1)
	c := functions("C")
	double := serving.AddFunction(c, "", func(ctx context.Context, n int) (int, error) {
		inC <- ctx
		return 2 * n, nil
	})
	b := functions("B", serving.WithReplicas(2))
	predict := serving.AddFunction(b, "predict", func(ctx context.Context, text string) (string, error) {
		n, err := double.Call(ctx, len(text))
		return strconv.Itoa(n), err
	})
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		out, err := predict.Call(r.Context(), r.PathValue("id"))
		if err == nil {
			_, err = io.WriteString(w, out)
		}
		return err
	}))
	return startApps(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("A", mux), serving.WithDeployments(b, c))), inC
}

// TestComposition: the tree and every attribute of a call through three
// deployments.
func TestComposition(t *testing.T) {
	r, inC := threeDeployments(t)
	got := r.get("/items/seven", "X-Request-ID", "id-1", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if got.Status != 200 || got.Body != "10" {
		t.Errorf("client saw %+v", got)
	}
	byName := chain(t, r.spans.take(t, 7), chainABC...)
	for name, want := range map[string]map[string]any{
		"route_to_replica B predict": {
			"request_id": "id-1", "deployment": "B", "app": "a", "call_method": "predict", "route": "/items/{id}",
			"multiplexed_model_id": "", "is_streaming": false, "is_http_request": false, "is_grpc_request": false,
			"resource.name": "route_to_replica B predict",
			"rpc.system":    "UNDEFINED", "rpc.method": "predict", "rpc.service": "B",
		},
		"replica_handle_request B predict": {
			"request_id": "id-1", "replica_id": "?", "deployment": "B", "app": "a", "call_method": "predict",
			"route": "/items/{id}", "multiplexed_model_id": "", "is_streaming": false,
			"resource.name": "replica_handle_request B predict",
			"rpc.system":    "UNDEFINED", "rpc.method": "predict", "rpc.service": "B",
		},
		"route_to_replica C __call__": {
			"request_id": "id-1", "deployment": "C", "app": "a", "call_method": "__call__", "route": "/items/{id}",
			"multiplexed_model_id": "", "is_streaming": false, "is_http_request": false, "is_grpc_request": false,
			"resource.name": "route_to_replica C __call__",
			"rpc.system":    "UNDEFINED", "rpc.method": "__call__", "rpc.service": "C",
		},
	} {
		if diff := cmp.Diff(want, attributes(byName[name])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	tasks := map[string]bool{}
	for name, s := range byName {
		if s.SpanKind() != trace.SpanKindServer {
			t.Errorf("%q is of kind %v", name, s.SpanKind())
		}
		if task, ok := attr(s, "serve.task_id"); ok {
			tasks[task.AsString()] = true
		}
	}
	if len(tasks) != 4 {
		t.Errorf("%d task ids, want one for the proxy and one for each replica", len(tasks))
	}
	info, ok := serving.ReplicaContext(servingtest.Receive(t, "C", inC))
	if !ok || info.Deployment != "C" || info.App != "a" || info.ReplicaID.Deployment != "C" {
		t.Errorf("ReplicaContext in C: %+v, %v", info, ok)
	}
	if id, _ := attr(byName["replica_handle_request C __call__"], "serve.replica_id"); id.AsString() != info.ReplicaID.String() {
		t.Errorf("serve.replica_id %q, want %q", id.AsString(), info.ReplicaID)
	}
}

// TestUnsampledChain: no span in any of three deployments, and the decision and
// the identity reach the last.
func TestUnsampledChain(t *testing.T) {
	r, inC := threeDeployments(t)
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	checkStatus(t, r.get("/items/x", "X-Request-ID", "id-1", "traceparent", "00-"+traceID+"-b7ad6b7169203331-00"), 200)
	ctx := servingtest.Receive(t, "C", inC)
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() || sc.TraceID().String() != traceID {
		t.Errorf("in C the context is %v", sc)
	}
	if req := identity.RequestFromContext(ctx); req.ID != "id-1" || req.Route != "/items/{id}" || req.Deployment != "C" {
		t.Errorf("in C the request is %q of %q in %q", req.ID, req.Route, req.Deployment)
	}
	checkStatus(t, r.get("/items/x"), 200)
	<-inC
	for _, s := range r.spans.take(t, 7) {
		if s.SpanContext().TraceID().String() == traceID {
			t.Errorf("span %q of the trace that is not sampled", s.Name())
		}
	}
}

// TestParallelCallsAreSiblings: each call has a router span under the caller's
// replica span, and its own replica span under that.
func TestParallelCallsAreSiblings(t *testing.T) {
	const n = 4
	b := functions("B", serving.WithReplicas(2))
	together := make(chan struct{})
	var entered sync.WaitGroup
	entered.Add(n)
	square := serving.AddFunction(b, "square", func(_ context.Context, i int) (int, error) {
		entered.Done()
		<-together
		return i * i, nil
	})
	r := caller(t, serving.Config{}, func(w http.ResponseWriter, r *http.Request) error {
		out, errs := make([]int, n), make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { out[i], errs[i] = square.Call(r.Context(), i) })
		}
		entered.Wait()
		close(together)
		wg.Wait()
		_, _ = fmt.Fprint(w, out)
		return errors.Join(errs...)
	}, b)
	if got := r.get("/"); got.Status != 200 || got.Body != "[0 1 4 9]" {
		t.Errorf("client saw %+v", got)
	}
	var caller trace.SpanID
	routers := map[trace.SpanID]int{}
	spans := r.spans.take(t, 3+2*n)
	for _, s := range spans {
		switch family(s) {
		case "replica_handle_request A":
			caller = s.SpanContext().SpanID()
		case "route_to_replica B":
			routers[s.SpanContext().SpanID()] = 0
		}
	}
	for _, s := range spans {
		switch family(s) {
		case "route_to_replica B":
			if s.Parent().SpanID() != caller {
				t.Error("a router span that is not the child of the caller's replica span")
			}
		case "replica_handle_request B":
			routers[s.Parent().SpanID()]++
		}
	}
	for id, children := range routers {
		if children != 1 || len(routers) != n {
			t.Errorf("router span %v of %d has %d replica spans, want 1 of %d", id, len(routers), children, n)
		}
	}
}

// TestFailuresOfCallees: what the caller gets, and what its client and the spans
// show if it returns that.
func TestFailuresOfCallees(t *testing.T) {
	tests := []struct {
		name   string
		callee func(context.Context, int) (int, error)
		is     func(error) bool
		want   answer
		spans  []string // proxy, routers, replicas
		panics int      // log lines
	}{
		{
			name:   "error",
			callee: func(context.Context, int) (int, error) { return 7, errBoom },
			is:     func(err error) bool { return err == errBoom },
			want:   answer{Status: 500, Body: "Internal Server Error"},
			spans: []string{
				"proxy_http_request ERROR(boom) sc=500 event(*errors.errorString True)",
				"replica_handle_request A sc=500 event(*errors.errorString False)",
				"replica_handle_request B event(*errors.errorString False)",
			},
		}, {
			name:   "panic",
			callee: func(context.Context, int) (int, error) { panic("boom") },
			is: func(err error) bool {
				p, ok := errors.AsType[*tracing.PanicError](err)
				return ok && p.Value == "boom" && strings.Contains(string(p.Stack), "TestFailuresOfCallees")
			},
			want: answer{Status: 500, Body: "Internal Server Error"},
			spans: []string{
				"proxy_http_request ERROR(panic: boom) sc=500 event(panic True)",
				"replica_handle_request A sc=500 event(panic False)",
				"replica_handle_request B event(panic False)",
			},
			panics: 1,
		}, {
			name:   "abort",
			callee: func(context.Context, int) (int, error) { panic(http.ErrAbortHandler) },
			is:     func(err error) bool { return err == http.ErrAbortHandler },
			want:   answer{Cut: true},
			spans: []string{
				"proxy_http_request ERROR(net/http: abort Handler) sc=500 event(*errors.errorString True)",
				"replica_handle_request A event(*errors.errorString False)",
				"replica_handle_request B event(*errors.errorString False)",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := functions("B", serving.WithMaxOngoingRequests(1))
			h := serving.AddFunction(b, "f", tt.callee)
			r := caller(t, serving.Config{}, func(_ http.ResponseWriter, r *http.Request) error {
				for range 2 { // the second finds the slot free
					out, err := h.Call(r.Context(), 1)
					if !tt.is(err) || tt.name == "error" && out != 7 {
						t.Errorf("the caller got %d, %v", out, err)
					}
				}
				_, err := h.Call(r.Context(), 1)
				return err
			}, b)
			got := r.get("/")
			got.header = nil
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("client (-want +got):\n%s", diff)
			}
			seen := map[string]int{}
			for _, s := range r.spans.take(t, 9) {
				d := strings.Replace(digest(s), " no-http", "", 1)
				if strings.HasPrefix(d, "replica") {
					d = strings.Replace(d, "replica_handle_request", family(s), 1)
				}
				seen[d]++
			}
			want := map[string]int{tt.spans[0]: 1, tt.spans[1]: 1, tt.spans[2]: 3, "route_to_replica": 4}
			if diff := cmp.Diff(want, seen); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
			if n := len(r.access.Lines(t, "handler panicked")); n != 3*tt.panics {
				t.Errorf("%d lines tell of a panic, want %d: one each, where it was", n, 3*tt.panics)
			}
		})
	}
}

// TestQueueFullPassesOn: H6. A handler that lets the error of a full queue
// escape has its client told 503, with the text.
func TestQueueFullPassesOn(t *testing.T) {
	b := functions("B", serving.WithMaxOngoingRequests(1), serving.WithMaxQueuedRequests(0))
	entered, leave := make(chan struct{}), make(chan struct{})
	h := serving.AddFunction(b, "", func(context.Context, struct{}) (struct{}, error) {
		entered <- struct{}{}
		<-leave
		return struct{}{}, nil
	})
	r := caller(t, serving.Config{}, func(_ http.ResponseWriter, r *http.Request) error {
		_, err := h.Call(r.Context(), struct{}{})
		return err
	}, b)
	first := make(chan answer, 1)
	go func() { first <- r.get("/") }()
	servingtest.Receive(t, "the first call", entered)
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	got := r.get("/", "traceparent", "00-"+traceID+"-b7ad6b7169203331-01")
	text := "Request dropped due to backpressure (num_queued_requests=0, max_queued_requests=0)."
	if got.Status != 503 || got.Body != text {
		t.Errorf("client saw %d %q, want 503 %q", got.Status, got.Body, text)
	}
	servingtest.Await(t, "the spans", func() bool { return len(r.spans.all()) == 6 })
	seen := map[string]string{}
	for _, s := range r.spans.all() {
		if s.SpanContext().TraceID().String() == traceID {
			seen[family(s)] = strings.Replace(digest(s), " no-http", "", 1)
			if _, ended := attr(s, "rpc.system"); ended {
				t.Errorf("%q has attributes of a call that was looked for a replica", s.Name())
			}
		}
	}
	want := map[string]string{
		"proxy_http_request A":     "proxy_http_request ERROR(" + text + ") sc=503 event(*serving.QueueFullError True)",
		"route_to_replica A":       "route_to_replica",
		"replica_handle_request A": "replica_handle_request sc=503 event(*serving.QueueFullError False)",
		"route_to_replica B":       "route_to_replica",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	close(leave)
	checkStatus(t, servingtest.Receive(t, "the first answer", first), 200)
}

// TestGoexitOfCallee: the slot is free after it, and the span says so.
func TestGoexitOfCallee(t *testing.T) {
	b := functions("B", serving.WithMaxOngoingRequests(1))
	h := serving.AddFunction(b, "", func(_ context.Context, leave bool) (int, error) {
		if leave {
			runtime.Goexit()
		}
		return 1, nil
	})
	r := caller(t, serving.Config{}, func(_ http.ResponseWriter, r *http.Request) error {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = h.Call(r.Context(), true)
			t.Error("Call returned")
		}()
		<-done
		_, err := h.Call(r.Context(), false)
		return err
	}, b)
	checkStatus(t, r.get("/"), 200)
	var events []string
	for _, s := range r.spans.take(t, 7) {
		for _, e := range s.Events() {
			events = append(events, family(s)+" "+e.Attributes[1].Value.AsString())
		}
	}
	if diff := cmp.Diff([]string{"replica_handle_request B handler called runtime.Goexit"}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
