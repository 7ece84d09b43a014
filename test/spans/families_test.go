package spans

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

func ok(http.ResponseWriter, *http.Request) {}

// Test11Resource: the resource of every span. checkCommon checks the rest of table 1.1
// for all trees.
func Test11Resource(t *testing.T) {
	r := one(t, serving.Config{}, http.HandlerFunc(ok))
	r.get(client(t, "HTTP/1.1"), "r", "/")
	root := r.check("r", request("r").proxy(200, request("r").called(200)))
	got := map[string]string{}
	for _, kv := range root.Resource().Attributes() {
		got[string(kv.Key)] = kv.Value.String()
	}
	for _, key := range []string{"telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version", "service.name"} {
		if got[key] == "" {
			t.Errorf("the resource has no %s: %v", key, got)
		}
	}
	if got["telemetry.sdk.language"] != "go" || !regexp.MustCompile(`^unknown_service:`).MatchString(got["service.name"]) {
		t.Errorf("the resource is %v", got)
	}
}

// Test12ProxySpan: names and paths. Ray names the span for the path that is left
// after the prefix; here the name has the pattern, else the prefix.
func Test12ProxySpan(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", ok)
	mux.HandleFunc("/exact/{$}", ok)
	mux.HandleFunc("/", ok)
	plain := http.HandlerFunc(ok)
	tests := []struct {
		name    string
		prefix  string
		handler http.Handler
		verb    string
		path    string
		want    call // verb, path and route
	}{
		{"the root", "/", plain, "POST", "/", call{verb: "POST", path: "/", route: "/"}},
		{"below the root", "/", plain, "GET", "/a/b?c=d", call{verb: "GET", path: "/a/b", route: "/"}},
		{"below a prefix", "/app1", plain, "GET", "/app1/predict", call{verb: "GET", path: "/predict", route: "/app1"}},
		{"the prefix itself", "/app1", plain, "GET", "/app1", call{verb: "GET", path: "", route: "/app1"}},
		{"a pattern", "/", mux, "GET", "/users/7", call{verb: "GET", path: "/users/7", route: "/users/{id}"}},
		{"a pattern below a prefix", "/app1", mux, "GET", "/app1/users/7", call{verb: "GET", path: "/users/7", route: "/app1/users/{id}"}},
		{"a pattern with an end", "/", mux, "GET", "/exact/", call{verb: "GET", path: "/exact/", route: "/exact/"}},
		{"no pattern but /", "/app1", mux, "GET", "/app1/else", call{verb: "GET", path: "/else", route: "/app1"}},
		{"a verb of no standard", "/", plain, "BREW", "/", call{verb: "_OTHER", path: "/", route: "/"}},
		{"a verb in small letters", "/", plain, "delete", "/", call{verb: "DELETE", path: "/", route: "/"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, c *http.Client) {
				r := serve(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("D", tt.handler), serving.WithRoutePrefix(tt.prefix)))
				checkAnswer(t, r.do(t.Context(), c, tt.verb, "r", tt.path), answer{Status: 200})
				want := request("r")
				want.verb, want.path, want.route = tt.want.verb, tt.want.path, tt.want.route
				r.check("r", want.proxy(200, want.called(200)))
			})
		})
	}
}

var uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// Test12RequestID: a request without an id gets a UUIDv4, and its client is told.
func Test12RequestID(t *testing.T) {
	r := one(t, serving.Config{}, http.HandlerFunc(ok))
	c := client(t, "HTTP/1.1")
	req := r.request(t.Context(), http.MethodGet, "", "/")
	req.Header.Del("X-Request-Id")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	id := resp.Header.Get("X-Request-Id")
	if !uuid4.MatchString(id) {
		t.Errorf("the request id %q is no UUIDv4", id)
	}
	r.check(id, request(id).proxy(200, request(id).called(200)))
}

// Test12Parent: the proxy span is the child of the caller's, if there is one.
func Test12Parent(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		r := one(t, serving.Config{}, http.HandlerFunc(ok))
		r.get(c, "child", "/", "traceparent", sampledParent, "tracestate", "vendor=value")
		root := r.check("child", request("child").proxy(200, request("child").called(200)))
		parent := root.Parent()
		if got := parent.TraceID().String() + "-" + parent.SpanID().String(); got != parentTrace+"-"+parentSpan || !parent.IsRemote() {
			t.Errorf("the proxy span's parent is %s, remote %v", got, parent.IsRemote())
		}
		for _, s := range r.spans.request(t, "child") {
			if got := s.SpanContext().TraceState().String(); got != "vendor=value" {
				t.Errorf("span %q has the tracestate %q", s.Name(), got)
			}
		}
		r.get(c, "root", "/")
		root = r.check("root", request("root").proxy(200, request("root").called(200)))
		if root.Parent().IsValid() {
			t.Errorf("without a caller's context the proxy span has the parent %v", root.Parent())
		}
	})
}

// Test13QueueWait: the router span lasts as long as the request waits, and says
// so.
func Test13QueueWait(t *testing.T) {
	b := newBarrier()
	r := one(t, serving.Config{}, b, serving.WithMaxOngoingRequests(1))
	first := r.inBackground(client(t, "HTTP/1.1"), "first")
	b.entered(t, 1)
	second := r.inBackground(client(t, "HTTP/1.1"), "second")
	r.spans.waitFor(t, 5)
	b.open()
	checkAnswer(t, servingtest.Receive(t, "the first answer", first), answer{Status: 200})
	checkAnswer(t, servingtest.Receive(t, "the second answer", second), answer{Status: 200})
	r.check("second", request("second").proxy(200, request("second").called(200)))
	for _, s := range r.spans.request(t, "second") {
		wait, ok := attributeOf(s, "serve.queue_wait_ms")
		if !ok {
			continue
		}
		span := float64(s.EndTime().Sub(s.StartTime()).Microseconds()) / 1000
		if got := wait.AsFloat64(); got > span {
			t.Errorf("the request waited %v ms, in a span of %v ms", got, span)
		}
	}
}

// Test14ReplicaOfMany: one replica span in each replica; the user's spans are below it,
// and name the same replica.
func Test14ReplicaOfMany(t *testing.T) {
	b := newBarrier()
	ids := make(chan string, 3)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		info, _ := serving.ReplicaContext(req.Context())
		ids <- info.ReplicaID.UniqueID
		b.wait()
	})
	r := one(t, serving.Config{}, handler, serving.WithReplicas(3), serving.WithMaxOngoingRequests(1))
	c := client(t, "HTTP/1.1")
	var answers []<-chan answer
	for _, id := range []string{"r0", "r1", "r2"} {
		answers = append(answers, r.inBackground(c, id))
	}
	b.entered(t, 3)
	b.open()
	seen := map[string]bool{}
	for i, a := range answers {
		checkAnswer(t, servingtest.Receive(t, "an answer", a), answer{Status: 200})
		seen[servingtest.Receive(t, "an id", ids)] = true
		id := []string{"r0", "r1", "r2"}[i]
		r.check(id, request(id).proxy(200, request(id).called(200)))
		replica, _ := attributeOf(only(t, r.spans.request(t, id), "replica_handle_request D __call__"), "replica_id")
		seen[replica.AsString()] = true
	}
	if len(seen) != 3 {
		t.Errorf("handlers and spans name the replicas %v, want the same three", seen)
	}
}

// only gives the one span of a name.
func only(t testing.TB, spans []sdktrace.ReadOnlySpan, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	i := slices.IndexFunc(spans, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == name })
	if i < 0 {
		t.Fatalf("there is no span %q", name)
	}
	return spans[i]
}

// startSpan starts a span of user code.
func startSpan(r *rig, req *http.Request, name string) (*http.Request, trace.Span) {
	ctx, span := r.tracing.TracerProvider().Tracer(userScope).Start(req.Context(), name)
	return req.WithContext(ctx), span
}

// Test15HTTP: an answer at once and a stream have the same tree, below the
// caller's span; the user's spans are below the replica's, and nest.
func Test15HTTP(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		var r *rig
		unary := func(w http.ResponseWriter, req *http.Request) error {
			req, outer := startSpan(r, req, "outer")
			defer outer.End()
			_, inner := startSpan(r, req, "inner")
			defer inner.End()
			_, err := io.WriteString(w, "answer")
			return err
		}
		stream := func(w http.ResponseWriter, req *http.Request) error {
			var errs []error
			for range 3 {
				_, span := startSpan(r, req, "chunk")
				errs = append(errs, begin(w))
				span.End()
			}
			return errors.Join(errs...)
		}
		mux := http.NewServeMux()
		mux.Handle("POST /unary", serving.HandlerFunc(unary))
		mux.Handle("/stream", serving.HandlerFunc(stream))
		r = one(t, serving.Config{}, mux)

		got := r.do(t.Context(), c, http.MethodPost, "unary", "/unary", "traceparent", sampledParent)
		checkAnswer(t, got, answer{Status: 200, Body: "answer"})
		want := request("unary")
		want.verb, want.path, want.route = "POST", "/unary", "/unary"
		r.check("unary", want.proxy(200, want.called(200, user("outer", user("inner")))))

		checkAnswer(t, r.get(c, "stream", "/stream"), answer{Status: 200, Body: "beginbeginbegin"})
		want = request("stream")
		want.path, want.route = "/stream", "/stream"
		r.check("stream", want.proxy(200, want.called(200, user("chunk"), user("chunk"), user("chunk"))))
	})
}

// Test21UserSpans: a user's span has the status and the events that user code
// gives it, and the runtime none to add.
func Test21UserSpans(t *testing.T) {
	var r *rig
	r = one(t, serving.Config{}, serving.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) error {
		_, span := startSpan(r, req, "failing")
		defer span.End()
		span.RecordError(errBoom)
		span.SetStatus(codes.Error, "the user's")
		return errBoom
	}))
	r.get(client(t, "HTTP/1.1"), "r", "/")
	want := request("r").boomed(500)
	failing := user("failing").failed("the user's")
	failing.Events = []event{{Name: "exception", Attributes: attributes{
		"exception.type": "*errors.errorString", "exception.message": "boom",
	}}}
	replica := want.Children[0].Children[0]
	replica.Children = []*span{failing}
	r.check("r", want)
}
