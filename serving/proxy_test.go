package serving_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// TestGoldenSpans compares every attribute with Ray's golden spans.
func TestGoldenSpans(t *testing.T) {
	r := startApps(t, serving.Config{}, serving.NewApp("default", serving.NewDeployment("BasicModel",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") }))))
	r.do(t.Context(), http.MethodPost, "/", "X-Request-ID", "id-1")
	got := map[string]map[string]any{}
	for _, s := range r.spans.take(t, 3) {
		if s.SpanKind() != trace.SpanKindServer {
			t.Errorf("%q is of kind %v", s.Name(), s.SpanKind())
		}
		got[s.Name()] = attributes(s)
	}
	want := map[string]map[string]any{
		"proxy_http_request BasicModel POST /": {
			"request_id": "id-1", "deployment": "BasicModel", "app": "default", "request_type": "http",
			"request_method": "POST", "request_route_path": "/", "resource.name": "proxy_http_request BasicModel POST /",
			"http.method": "POST", "http.status_code": int64(200), "http.route": "/",
		},
		"route_to_replica BasicModel __call__": {
			"request_id": "id-1", "deployment": "BasicModel", "app": "default", "call_method": "__call__", "route": "/",
			"multiplexed_model_id": "", "is_streaming": true, "is_http_request": true, "is_grpc_request": false,
			"resource.name": "route_to_replica BasicModel __call__", "http.method": "__call__", "http.route": "/",
		},
		"replica_handle_request BasicModel __call__": {
			"request_id": "id-1", "replica_id": "?", "deployment": "BasicModel", "app": "default",
			"call_method": "__call__", "route": "/", "multiplexed_model_id": "", "is_streaming": true,
			"resource.name": "replica_handle_request BasicModel __call__",
			"http.method":   "POST", "http.status_code": int64(200), "http.route": "/",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// attributes gives what Ray has too, ids that are drawn as "?".
func attributes(s sdktrace.ReadOnlySpan) map[string]any {
	out := map[string]any{}
	for _, kv := range s.Attributes() {
		key := string(kv.Key)
		switch {
		case strings.HasPrefix(key, "serve."):
		case key == "replica_id":
			out[key] = strings.Repeat("?", len(kv.Value.AsString())/8)
		case kv.Value.Type() == attribute.INT64:
			out[key] = kv.Value.AsInt64()
		case kv.Value.Type() == attribute.BOOL:
			out[key] = kv.Value.AsBool()
		default:
			out[key] = kv.Value.AsString()
		}
	}
	return out
}

// TestTraceContext: one trace from the client's span through proxy, router and
// replica to the handler's context; an unsampled client's decision holds.
func TestTraceContext(t *testing.T) {
	const traceID, parentID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	seen := make(chan trace.SpanContext, 1)
	r := start(t, serving.Config{}, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		seen <- trace.SpanContextFromContext(req.Context())
	}))
	r.get("/", "traceparent", "00-"+traceID+"-"+parentID+"-01", "tracestate", "vendor=1")
	inHandler := servingtest.Receive(t, "the handler", seen)
	parent := parentID
	spans := r.spans.take(t, 3)
	for _, family := range []string{"proxy_http_request", "route_to_replica", "replica_handle_request"} {
		for _, s := range spans {
			if !strings.HasPrefix(s.Name(), family) {
				continue
			}
			if got := s.Parent().SpanID().String(); got != parent {
				t.Errorf("%q has parent %s, want %s", s.Name(), got, parent)
			}
			if sc := s.SpanContext(); sc.TraceID().String() != traceID || sc.TraceState().String() != "vendor=1" {
				t.Errorf("%q has trace %s, state %q", s.Name(), sc.TraceID(), sc.TraceState())
			}
			parent = s.SpanContext().SpanID().String()
		}
	}
	if inHandler.SpanID().String() != parent {
		t.Errorf("the handler's span is %s, want the replica's, %s", inHandler.SpanID(), parent)
	}

	r.get("/", "traceparent", "00-"+traceID+"-"+parentID+"-00")
	inHandler = servingtest.Receive(t, "the handler", seen)
	if inHandler.IsSampled() || inHandler.TraceID().String() != traceID {
		t.Errorf("unsampled: the handler's span context is %v", inHandler)
	}
	if spans := r.spans.all(); len(spans) != 0 {
		t.Errorf("unsampled: %d spans", len(spans))
	}
	if id := r.access.take(t, "request", 2)[1]["trace_id"]; id != traceID {
		t.Errorf("unsampled: log has trace_id %v", id)
	}
}

// TestAppBelowPrefix: the app sees its own paths, its redirects come out right,
// and spans name the pattern.
func TestAppBelowPrefix(t *testing.T) {
	mux := http.NewServeMux()
	echo := func(w http.ResponseWriter, r *http.Request) error {
		info, ok := serving.ReplicaContext(r.Context())
		req := identity.RequestFromContext(r.Context())
		_, err := fmt.Fprintf(w, "%s id=%s app=%s deployment=%s ok=%v route=%s same=%v", r.URL.Path, r.PathValue("id"), info.App,
			info.Deployment, ok, req.Route, info.ReplicaID.String() == "users#U#"+req.Component.UniqueID())
		return err
	}
	mux.Handle("/v1/{id}", serving.HandlerFunc(echo))
	mux.Handle("/sub/", serving.HandlerFunc(echo))
	mux.Handle("/away", http.RedirectHandler("/other/place", http.StatusFound))
	r := startApps(t, serving.Config{}, serving.NewApp("users", serving.NewDeployment("U", mux), serving.WithRoutePrefix("/users")))
	for _, tt := range []struct {
		path, body, location string
		status               int
		name                 string
	}{
		{"/users/v1/7", "/v1/7 id=7 app=users deployment=U ok=true route=/users/v1/{id} same=true", "", 200,
			"proxy_http_request U GET /users/v1/{id}"},
		{"/users/sub?q=1", "", "/users/sub/?q=1", 307, "proxy_http_request U GET /users/sub/"},
		{"/users//sub/x", "", "/users/sub/x", 307, "proxy_http_request U GET /users/sub/"},
		{"/users/away", "", "/other/place", 302, "proxy_http_request U GET /users/away"},
		{"/users", "404 page not found\n", "", 404, "proxy_http_request U GET /users"},
	} {
		got := r.get(tt.path)
		if got.Status != tt.status || got.header.Get("Location") != tt.location || tt.body != "" && got.Body != tt.body {
			t.Errorf("%s: %d %q to %q, want %d %q to %q", tt.path, got.Status, got.Body, got.header.Get("Location"),
				tt.status, tt.body, tt.location)
		}
		for _, s := range r.spans.take(t, 3) {
			if strings.HasPrefix(s.Name(), "proxy_http_request") && s.Name() != tt.name {
				t.Errorf("%s: span %q, want %q", tt.path, s.Name(), tt.name)
			}
		}
	}
	if _, ok := serving.ReplicaContext(context.Background()); ok {
		t.Error("ReplicaContext outside of a handler")
	}
}

// TestEmptyPath: a target without a path is the root.
func TestEmptyPath(t *testing.T) {
	r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
		_, err := io.WriteString(w, req.Method+" "+req.URL.Path)
		return err
	}))
	for request, want := range map[string]string{
		"GET http://x HTTP/1.1":     "GET /",
		"GET http://x?q=1 HTTP/1.1": "GET /",
		"OPTIONS http://x HTTP/1.1": "OPTIONS /",
	} {
		resp, err := http.ReadResponse(bufio.NewReader(r.dial(request+"\r\nHost: x\r\n\r\n")), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || string(body) != want {
			t.Errorf("%s: %d %q, want 200 %q", request, resp.StatusCode, body, want)
		}
		for _, s := range r.spans.take(t, 3) {
			if path, ok := attr(s, "request_route_path"); ok && path.AsString() != "/" {
				t.Errorf("%s: request_route_path %q, want /", request, path.AsString())
			}
		}
	}
}

// TestUnknownMethod: what a client makes up as a method is in no span and no
// log.
func TestUnknownMethod(t *testing.T) {
	r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
		_, err := fmt.Fprint(w, len(req.Method)) // the handler sees it as it came
		return err
	}))
	requests := 0
	for method, want := range map[string]string{
		strings.Repeat("G", 60000): "_OTHER",
		"BREW":                     "_OTHER",
		"PATCH":                    "PATCH",
	} {
		c := r.dial(method + " / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		reply, err := io.ReadAll(c)
		if err != nil || !strings.HasSuffix(string(reply), fmt.Sprintf("\r\n\r\n%d", len(method))) {
			t.Errorf("%.10s: reply %q, %v", method, reply, err)
		}
		for _, s := range r.spans.take(t, 3) {
			if strings.HasPrefix(s.Name(), "proxy") && s.Name() != "proxy_http_request D "+want+" /" {
				t.Errorf("%.10s: span %.60q", method, s.Name())
			}
			for _, key := range []string{"request_method", "http.method"} {
				got, ok := attr(s, key)
				if ok && got.AsString() != want && got.AsString() != "__call__" {
					t.Errorf("%.10s: %s of %.30q is %.10q, want %q", method, key, s.Name(), got.AsString(), want)
				}
			}
			for _, kv := range s.Attributes() {
				if len(kv.Value.AsString()) > 100 {
					t.Errorf("%.10s: %s of %.30q has %d bytes", method, kv.Key, s.Name(), len(kv.Value.AsString()))
				}
			}
		}
		requests++
		if got := r.access.take(t, "request", requests)[requests-1]["method"]; got != want {
			t.Errorf("%.10s: log says %.10q, want %q", method, got, want)
		}
	}
}

// TestStreaming: every flush reaches the client while the handler runs.
func TestStreaming(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			next := make(chan struct{})
			r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				for i := range 3 {
					_, _ = fmt.Fprintf(w, "chunk %d\n", i)
					if err := http.NewResponseController(w).Flush(); err != nil {
						t.Errorf("Flush: %v", err)
					}
					<-next
				}
				w.Header().Set("X-Sum", "3")
				w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
			}))
			if proto == "HTTP/2.0" {
				protocols := new(http.Protocols)
				protocols.SetUnencryptedHTTP2(true)
				r.client.Transport.(*http.Transport).Protocols = protocols
			}
			resp, err := r.client.Get(r.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.Proto != proto {
				t.Errorf("protocol %s, want %s", resp.Proto, proto)
			}
			lines := bufio.NewReader(resp.Body)
			for i := range 3 {
				line, err := lines.ReadString('\n')
				if want := fmt.Sprintf("chunk %d\n", i); line != want || err != nil {
					t.Errorf("line %d: %q, %v", i, line, err)
				}
				next <- struct{}{}
			}
			if _, err := lines.ReadByte(); err != io.EOF {
				t.Errorf("after the last chunk: %v, want EOF", err)
			}
			if resp.Trailer.Get("X-Sum") != "3" || resp.Trailer.Get("X-Late") != "yes" {
				t.Errorf("trailers %v", resp.Trailer)
			}
		})
	}
}

// TestCutStreamHTTP2: only the stream ends, with RST_STREAM; the connection
// serves on.
func TestCutStreamHTTP2(t *testing.T) {
	r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
		if req.URL.Path == "/cut" {
			writeBegin(w)
			return errBoom
		}
		_, err := io.WriteString(w, req.RemoteAddr)
		return err
	}))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	r.client.Transport.(*http.Transport).Protocols = protocols
	first := r.get("/")
	cut := r.get("/cut")
	if cut.Status != 200 || cut.Body != "begin" || !cut.Cut {
		t.Errorf("cut stream: %+v", cut)
	}
	if again := r.get("/"); again.Body != first.Body || again.Status != 200 {
		t.Errorf("after the cut: %d from %s, before from %s", again.Status, again.Body, first.Body)
	}
}

func TestInformationalResponse(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusNoContent)
	}))
	c := r.dial("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	tp := textproto.NewReader(bufio.NewReader(c))
	for _, want := range []struct{ line, link string }{
		{"HTTP/1.1 103 Early Hints", "</style.css>"},
		{"HTTP/1.1 204 No Content", ""},
	} {
		line, err := tp.ReadLine()
		if line != want.line || err != nil {
			t.Fatalf("%q, %v, want %q", line, err, want.line)
		}
		h, err := tp.ReadMIMEHeader()
		if h.Get("Link") != want.link || err != nil {
			t.Errorf("%s: Link %q, %v, want %q", line, h.Get("Link"), err, want.link)
		}
	}
}

// TestPanicIsLogged: with its stack, beside the access log's line.
func TestPanicIsLogged(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }))
	r.get("/", "X-Request-ID", "id-1")
	line := r.access.take(t, "handler panicked", 1)[0]
	if line["panic"] != "boom" || line["request_id"] != "id-1" || !strings.Contains(line["stack"].(string), "TestPanicIsLogged") {
		t.Errorf("log line %v", line)
	}
	if level := r.access.take(t, "request", 1)[0]["level"]; level != "ERROR" {
		t.Errorf("access log line has level %v", level)
	}
}

// TestAccessLog: one line with everything that names the request.
func TestAccessLog(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r.get("/some/path", "X-Request-ID", "id-1")
	line := r.access.take(t, "request", 1)[0]
	for key, want := range map[string]any{
		"level": "INFO", "method": "GET", "status": 200.0, "request_id": "id-1", "route": "/", "app": "a", "deployment": "D",
	} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	for _, key := range []string{"latency_ms", "client", "replica", "trace_id", "span_id"} {
		if line[key] == nil {
			t.Errorf("no %s in %v", key, line)
		}
	}
}
