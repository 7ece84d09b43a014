package spans_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/tracing"
)

// exception is the event that an error leaves.
func exception(kind, message, escaped string) []seenEvent {
	return []seenEvent{{"exception", map[string]any{
		"exception.type": kind, "exception.message": message, "exception.escaped": escaped,
	}}}
}

// The golden spans of spec section 8, "basic", with our differences: an int
// status on the replica, the wait on the router, serve.* everywhere.
func TestHTTPRequestSpans(t *testing.T) {
	r := newRecorder(t)
	replica := r.NewReplica("default", "BasicModel")
	id := "default#BasicModel#" + replica.UniqueID()
	atProxy := &identity.Request{ID: "r1", App: "default", Deployment: "BasicModel", Route: "/", Component: r.NewProxy()}
	atReplica := &identity.Request{ID: "r1", App: "default", Deployment: "BasicModel", Route: "/", Component: replica}

	ctx, proxy := r.StartProxy(t.Context(), spans.ProxyStart{Request: atProxy, Protocol: spans.HTTP, Method: "post", RoutePath: "/"})
	ctx, router := r.StartRouter(ctx, spans.RouterStart{App: "default", Deployment: "BasicModel", Protocol: spans.HTTP})
	rctx, rs := r.StartReplica(ctx, spans.ReplicaStart{Request: atReplica, Protocol: spans.HTTP, Method: "post"})
	router.EndRouter(spans.RouterResult{QueueWait: 1500 * time.Microsecond})
	_, user := r.TracerProvider().Tracer("user").Start(rctx, "application_span")
	user.SetAttributes(attribute.String("deployment", "BasicModel"), attribute.String("replica_id", replica.UniqueID()))
	user.End()
	rs.EndReplica(spans.ReplicaResult{StatusCode: 200})
	proxy.EndProxy(spans.ProxyResult{StatusCode: 200})

	want := []seen{{
		Name: "route_to_replica BasicModel __call__", Parent: "proxy_http_request BasicModel POST /",
		Kind: "server", Status: "Unset",
		Attributes: map[string]any{
			"request_id": "r1", "deployment": "BasicModel", "app": "default",
			"call_method": "__call__", "route": "/", "multiplexed_model_id": "",
			"is_streaming": true, "is_http_request": true, "is_grpc_request": false,
			"http.method": "__call__", "http.route": "/",
			"resource.name":       "route_to_replica BasicModel __call__",
			"serve.queue_wait_ms": 1.5, "serve.request_id": "r1", "serve.task_id": "TASK",
		},
	}, {
		Name: "application_span", Parent: "replica_handle_request BasicModel __call__",
		Kind: "internal", Status: "Unset",
		Attributes: map[string]any{
			"deployment": "BasicModel", "replica_id": replica.UniqueID(),
			"serve.request_id": "r1", "serve.task_id": "TASK", "serve.replica_id": id,
		},
	}, {
		Name: "replica_handle_request BasicModel __call__", Parent: "route_to_replica BasicModel __call__",
		Kind: "server", Status: "Unset",
		Attributes: map[string]any{
			"request_id": "r1", "replica_id": replica.UniqueID(), "deployment": "BasicModel", "app": "default",
			"call_method": "__call__", "route": "/", "multiplexed_model_id": "", "is_streaming": true,
			"http.method": "POST", "http.status_code": int64(200), "http.route": "/",
			"resource.name":    "replica_handle_request BasicModel __call__",
			"serve.request_id": "r1", "serve.task_id": "TASK", "serve.replica_id": id,
		},
	}, {
		Name: "proxy_http_request BasicModel POST /", Kind: "server", Status: "Ok",
		Attributes: map[string]any{
			"request_id": "r1", "deployment": "BasicModel", "app": "default",
			"request_type": "http", "request_method": "POST", "request_route_path": "/",
			"http.method": "POST", "http.status_code": int64(200), "http.route": "/",
			"resource.name":    "proxy_http_request BasicModel POST /",
			"serve.request_id": "r1", "serve.task_id": "TASK",
		},
	}}
	if diff := cmp.Diff(want, r.spans()); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	for _, s := range r.exporter.GetSpans() {
		if s.Name != "application_span" && s.InstrumentationScope.Name != tracing.ScopeName {
			t.Errorf("scope of %q is %q, want %q", s.Name, s.InstrumentationScope.Name, tracing.ScopeName)
		}
	}
}

// The golden spans of spec section 8, "grpc", by the same rule.
func TestGRPCRequestSpans(t *testing.T) {
	r := newRecorder(t)
	at := func(c *identity.Component) *identity.Request {
		return &identity.Request{ID: "r1", App: "default", Deployment: "grpc-deployment", Route: "default", ModelID: "m", Component: c}
	}
	replica := r.NewReplica("default", "grpc-deployment")
	ctx, proxy := r.StartProxy(t.Context(), spans.ProxyStart{Request: at(nil), Protocol: spans.GRPC, Method: "/pkg.Service/Predict"})
	ctx, router := r.StartRouter(ctx, spans.RouterStart{App: "default", Deployment: "grpc-deployment", CallMethod: "Predict", Protocol: spans.GRPC, ModelID: "m"})
	_, rs := r.StartReplica(ctx, spans.ReplicaStart{Request: at(replica), Protocol: spans.GRPC, CallMethod: "Predict", Streaming: true})
	router.EndRouter(spans.RouterResult{})
	rs.EndReplica(spans.ReplicaResult{})
	proxy.EndProxy(spans.ProxyResult{GRPCCode: "OK"})

	want := []seen{{
		Name: "route_to_replica grpc-deployment Predict", Parent: "proxy_grpc_request grpc-deployment /pkg.Service/Predict",
		Kind: "server", Status: "Unset",
		Attributes: map[string]any{
			"request_id": "r1", "deployment": "grpc-deployment", "app": "default",
			"call_method": "Predict", "route": "default", "multiplexed_model_id": "m",
			"is_streaming": false, "is_http_request": false, "is_grpc_request": true,
			"rpc.system": "gRPC", "rpc.method": "Predict", "rpc.service": "grpc-deployment",
			"resource.name":       "route_to_replica grpc-deployment Predict",
			"serve.queue_wait_ms": 0.0, "serve.request_id": "r1",
		},
	}, {
		Name: "replica_handle_request grpc-deployment Predict", Parent: "route_to_replica grpc-deployment Predict",
		Kind: "server", Status: "Unset",
		Attributes: map[string]any{
			"request_id": "r1", "replica_id": replica.UniqueID(), "deployment": "grpc-deployment", "app": "default",
			"call_method": "Predict", "route": "default", "multiplexed_model_id": "m", "is_streaming": true,
			"rpc.system": "gRPC", "rpc.method": "Predict", "rpc.service": "grpc-deployment",
			"resource.name":    "replica_handle_request grpc-deployment Predict",
			"serve.request_id": "r1", "serve.task_id": "TASK",
			"serve.replica_id": "default#grpc-deployment#" + replica.UniqueID(),
		},
	}, {
		Name: "proxy_grpc_request grpc-deployment /pkg.Service/Predict", Kind: "server", Status: "Ok",
		Attributes: map[string]any{
			"request_id": "r1", "deployment": "grpc-deployment", "app": "default", "request_type": "grpc",
			"rpc.system": "grpc", "rpc.method": "/pkg.Service/Predict", "rpc.grpc.status_code": "OK",
			"resource.name":    "proxy_grpc_request grpc-deployment /pkg.Service/Predict",
			"serve.request_id": "r1",
		},
	}}
	if diff := cmp.Diff(want, r.spans()); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// A call by handle is a child of the caller's innermost span, carries the
// caller's identity on its router span and the callee's on its replica span,
// and keeps request id and route.
func TestHandleCallSpans(t *testing.T) {
	r := newRecorder(t)
	a, b := r.NewReplica("default", "A"), r.NewReplica("default", "B")
	ctx, outer := r.StartReplica(t.Context(), spans.ReplicaStart{
		Request: &identity.Request{ID: "r1", App: "default", Deployment: "A", Route: "/a", Component: a}, Protocol: spans.HTTP, Method: "GET",
	})
	ctx, user := r.TracerProvider().Tracer("user").Start(ctx, "think")
	ctx, router := r.StartRouter(ctx, spans.RouterStart{App: "default", Deployment: "B", CallMethod: "predict", Protocol: spans.Handle})
	_, inner := r.StartReplica(ctx, spans.ReplicaStart{
		Request: &identity.Request{ID: "r1", App: "default", Deployment: "B", Route: "/a", Component: b}, Protocol: spans.Handle, CallMethod: "predict",
	})
	router.EndRouter(spans.RouterResult{})
	inner.EndReplica(spans.ReplicaResult{})
	user.End()
	outer.EndReplica(spans.ReplicaResult{StatusCode: 200})

	got := r.spans()[:2]
	want := []seen{{
		Name: "route_to_replica B predict", Parent: "think", Kind: "server", Status: "Unset",
		Attributes: map[string]any{
			"request_id": "r1", "deployment": "B", "app": "default", "call_method": "predict", "route": "/a",
			"multiplexed_model_id": "", "is_streaming": false, "is_http_request": false, "is_grpc_request": false,
			"rpc.system": "UNDEFINED", "rpc.method": "predict", "rpc.service": "B",
			"resource.name": "route_to_replica B predict", "serve.queue_wait_ms": 0.0,
			"serve.request_id": "r1", "serve.task_id": "TASK", "serve.replica_id": "default#A#" + a.UniqueID(),
		},
	}, {
		Name: "replica_handle_request B predict", Parent: "route_to_replica B predict", Kind: "server", Status: "Unset",
		Attributes: map[string]any{
			"request_id": "r1", "replica_id": b.UniqueID(), "deployment": "B", "app": "default",
			"call_method": "predict", "route": "/a", "multiplexed_model_id": "", "is_streaming": false,
			"rpc.system": "UNDEFINED", "rpc.method": "predict", "rpc.service": "B",
			"resource.name":    "replica_handle_request B predict",
			"serve.request_id": "r1", "serve.task_id": "TASK", "serve.replica_id": "default#B#" + b.UniqueID(),
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// failure is a typed error, as user code has them.
type failure struct{}

func (failure) Error() string { return "out of memory" }

// The rows are in spec sections 2.1 to 2.3, with our differences.
func TestProxySpanEnd(t *testing.T) {
	boom := fmt.Errorf("predict: %w", failure{})
	boomEvent := exception("spans_test.failure", "predict: out of memory", "True")
	for _, tc := range []struct {
		name        string
		protocol    spans.Protocol
		result      spans.ProxyResult
		status      string
		description string
		events      []seenEvent
		code        any // http.status_code or rpc.grpc.status_code
	}{
		{name: "H1 200", result: spans.ProxyResult{StatusCode: 200}, status: "Ok", code: int64(200)},
		{name: "H1 302", result: spans.ProxyResult{StatusCode: 302}, status: "Ok", code: int64(302)},
		{name: "H2 404 by the handler", result: spans.ProxyResult{StatusCode: 404}, status: "Error", code: int64(404)},
		{name: "H3 503 by the handler", result: spans.ProxyResult{StatusCode: 503}, status: "Error", code: int64(503)},
		{name: "H4 error before the response", result: spans.ProxyResult{StatusCode: 500, Err: boom}, status: "Error",
			description: "predict: out of memory", events: boomEvent, code: int64(500)},
		{name: "H7 error after the response started", result: spans.ProxyResult{StatusCode: 200, Err: boom}, status: "Error",
			description: "predict: out of memory", events: boomEvent, code: int64(200)},
		{name: "H8 timeout", result: spans.ProxyResult{StatusCode: 408, Err: context.DeadlineExceeded}, status: "Error",
			events: exception("context.DeadlineExceeded", "context deadline exceeded", "True"), code: int64(408)},
		{name: "H10 client left", result: spans.ProxyResult{StatusCode: 499, Err: context.Canceled}, status: "Error",
			events: exception("context.Canceled", "context canceled", "True"), code: int64(499)},
		{name: "a handler's own timeout keeps its text", result: spans.ProxyResult{StatusCode: 500, Err: fmt.Errorf("query: %w", context.DeadlineExceeded)},
			status: "Error", description: "query: context deadline exceeded",
			events: exception("context.DeadlineExceeded", "query: context deadline exceeded", "True"), code: int64(500)},
		{name: "websocket 1000", protocol: spans.WebSocket, result: spans.ProxyResult{StatusCode: 1000}, status: "Ok", code: int64(1000)},
		{name: "websocket 1001", protocol: spans.WebSocket, result: spans.ProxyResult{StatusCode: 1001}, status: "Ok", code: int64(1001)},
		{name: "websocket 1006", protocol: spans.WebSocket, result: spans.ProxyResult{StatusCode: 1006}, status: "Error", code: int64(1006)},
		{name: "websocket 1005", protocol: spans.WebSocket, result: spans.ProxyResult{StatusCode: 1005}, status: "Error", code: int64(1005)},
		{name: "websocket refused", protocol: spans.WebSocket, result: spans.ProxyResult{StatusCode: 403}, status: "Error", code: int64(403)},
		{name: "websocket never opened", protocol: spans.WebSocket, result: spans.ProxyResult{StatusCode: 200}, status: "Ok", code: int64(200)},
		{name: "G1", protocol: spans.GRPC, result: spans.ProxyResult{GRPCCode: "OK"}, status: "Ok", code: "OK"},
		{name: "G2", protocol: spans.GRPC, result: spans.ProxyResult{GRPCCode: "INTERNAL", Err: boom}, status: "Error",
			description: "predict: out of memory", events: boomEvent, code: "INTERNAL"},
		{name: "G3 error with the user's code", protocol: spans.GRPC, result: spans.ProxyResult{GRPCCode: "NOT_FOUND", Err: boom}, status: "Error",
			description: "predict: out of memory", events: boomEvent, code: "NOT_FOUND"},
		{name: "G4 server code without error", protocol: spans.GRPC, result: spans.ProxyResult{GRPCCode: "DATA_LOSS"}, status: "Error", code: "DATA_LOSS"},
		{name: "G4 client code without error", protocol: spans.GRPC, result: spans.ProxyResult{GRPCCode: "NOT_FOUND"}, status: "Ok", code: "NOT_FOUND"},
		{name: "gRPC without a code", protocol: spans.GRPC, result: spans.ProxyResult{}, status: "Error", code: "UNKNOWN"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRecorder(t)
			_, span := r.StartProxy(t.Context(), spans.ProxyStart{
				Request: &identity.Request{Deployment: "D", Route: "/users/{id}"}, Protocol: tc.protocol, Method: "GET", RoutePath: "/users/7",
			})
			span.EndProxy(tc.result)
			span.EndProxy(spans.ProxyResult{StatusCode: 418}) // counts for nothing
			got := r.spans()
			if len(got) != 1 {
				t.Fatalf("%d spans, want 1", len(got))
			}
			type outcome struct {
				Status, Description string
				Events              []seenEvent
				Code                any
			}
			key := semconv.HTTPStatusCode
			if tc.protocol == spans.GRPC {
				key = semconv.RPCGRPCStatusCode
			}
			want := outcome{tc.status, tc.description, tc.events, tc.code}
			have := outcome{got[0].Status, got[0].Description, got[0].Events, got[0].Attributes[key]}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("end of the span (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProxySpanNames(t *testing.T) {
	for _, tc := range []struct {
		start spans.ProxyStart
		want  map[string]any
	}{
		{spans.ProxyStart{Protocol: spans.HTTP, Method: "get", RoutePath: "/users/7"}, map[string]any{
			"resource.name": "proxy_http_request D GET /users/{id}", "request_method": "GET", "request_route_path": "/users/7",
			"http.route": "/users/{id}", "http.method": "GET", "request_type": "http",
		}},
		{spans.ProxyStart{Protocol: spans.WebSocket, RoutePath: ""}, map[string]any{
			"resource.name": "proxy_websocket_request D WS /users/{id}", "request_method": "WS", "request_route_path": "",
			"http.route": "/users/{id}", "http.method": "WS", "request_type": "websocket",
		}},
	} {
		r := newRecorder(t)
		tc.start.Request = &identity.Request{Deployment: "D", Route: "/users/{id}"}
		_, span := r.StartProxy(t.Context(), tc.start)
		span.EndProxy(spans.ProxyResult{StatusCode: 200})
		got := r.spans()[0]
		if got.Name != tc.want["resource.name"] {
			t.Errorf("name %q, want %q", got.Name, tc.want["resource.name"])
		}
		for key, want := range tc.want {
			if diff := cmp.Diff(want, got.Attributes[key]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", key, diff)
			}
		}
	}
}

func TestRouterSpanEnd(t *testing.T) {
	for _, tc := range []struct {
		name   string
		result spans.RouterResult
		events []seenEvent
		ended  bool // carries the attributes of the end
	}{
		{"accepted", spans.RouterResult{Outcome: spans.RouterAccepted, Err: errors.New("not read")}, nil, true},
		{"H13 refused", spans.RouterResult{Outcome: spans.RouterRefused, Err: errors.New("queue full")}, nil, false},
		{"H8 timeout while queued", spans.RouterResult{Outcome: spans.RouterCanceled, Err: context.DeadlineExceeded},
			exception("context.DeadlineExceeded", "context deadline exceeded", "True"), true},
		{"H10 caller left while queued", spans.RouterResult{Outcome: spans.RouterCanceled, Err: context.Canceled},
			exception("context.Canceled", "context canceled", "True"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRecorder(t)
			_, span := r.StartRouter(t.Context(), spans.RouterStart{Deployment: "D", Protocol: spans.HTTP})
			span.EndRouter(tc.result)
			got := r.spans()[0]
			if got.Status != "Unset" {
				t.Errorf("status %s, want Unset", got.Status)
			}
			if diff := cmp.Diff(tc.events, got.Events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			for _, key := range []string{semconv.HTTPMethod, semconv.HTTPRoute, semconv.ServeQueueWaitMS} {
				if _, has := got.Attributes[key]; has != tc.ended {
					t.Errorf("%s present: %t, want %t", key, has, tc.ended)
				}
			}
		})
	}
}

func TestReplicaSpanEnd(t *testing.T) {
	boom := fmt.Errorf("predict: %w", failure{})
	panicked := &tracing.PanicError{Value: "index out of range", Stack: []byte("goroutine 7 [running]")}
	withStack := exception("panic", "panic: index out of range", "False")
	withStack[0].Attributes["exception.stacktrace"] = "goroutine 7 [running]"
	for _, tc := range []struct {
		name     string
		protocol spans.Protocol
		result   spans.ReplicaResult
		events   []seenEvent
		method   any
		status   any // nil: absent
	}{
		{"H1", spans.HTTP, spans.ReplicaResult{StatusCode: 204}, nil, "PUT", int64(204)},
		{"H4", spans.HTTP, spans.ReplicaResult{StatusCode: 500, Err: boom},
			exception("spans_test.failure", "predict: out of memory", "False"), "PUT", int64(500)},
		{"panic", spans.HTTP, spans.ReplicaResult{StatusCode: 500, Err: panicked}, withStack, "PUT", int64(500)},
		{"H8 no response started", spans.HTTP, spans.ReplicaResult{Err: context.DeadlineExceeded},
			exception("context.DeadlineExceeded", "context deadline exceeded", "False"), "PUT", nil},
		{"websocket", spans.WebSocket, spans.ReplicaResult{StatusCode: 1000}, nil, "WS", nil},
		{"handle", spans.Handle, spans.ReplicaResult{StatusCode: 200}, nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRecorder(t)
			_, span := r.StartReplica(t.Context(), spans.ReplicaStart{Request: &identity.Request{Deployment: "D"}, Protocol: tc.protocol, Method: "put"})
			span.EndReplica(tc.result)
			got := r.spans()[0]
			if got.Status != "Unset" {
				t.Errorf("status %s, want Unset", got.Status)
			}
			if diff := cmp.Diff(tc.events, got.Events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.method, got.Attributes[semconv.HTTPMethod]); diff != "" {
				t.Errorf("http.method (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.status, got.Attributes[semconv.HTTPStatusCode]); diff != "" {
				t.Errorf("http.status_code (-want +got):\n%s", diff)
			}
			if got.Attributes[semconv.ReplicaID] != nil {
				t.Errorf("replica_id without a component: %v", got.Attributes[semconv.ReplicaID])
			}
		})
	}
}

// namedError names its own type.
type namedError struct{ failure }

func (namedError) ErrorType() string { return "*other.Failure" }

func TestExceptionType(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{failure{}, "spans_test.failure"},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", failure{})), "spans_test.failure"},
		{errors.New("plain"), "*errors.errorString"},
		{errors.Join(failure{}, failure{}), "*errors.joinError"},
		{context.Canceled, "context.Canceled"},
		{fmt.Errorf("a: %w", context.DeadlineExceeded), "context.DeadlineExceeded"},
		{fmt.Errorf("a: %w", namedError{}), "*other.Failure"},
		{&tracing.PanicError{Value: 7}, "panic"},
		{&tracing.PanicError{Value: failure{}}, "spans_test.failure"},
	} {
		r := newRecorder(t)
		_, span := r.StartModelLoad(t.Context(), "m")
		span.EndWork(tc.err)
		if got := r.spans()[0].Events[0].Attributes[semconv.ExceptionType]; got != tc.want {
			t.Errorf("the exception's type of %v is %q, want %q", tc.err, got, tc.want)
		}
	}
}

// The limit on attributes holds for our spans, too, and the dropped attributes are counted.
func TestSpanLimits(t *testing.T) {
	r := newRecorder(t, func(c *tracing.Config) { c.Limits.AttributeCountLimit = 4 })
	_, span := r.StartProxy(t.Context(), spans.ProxyStart{Request: &identity.Request{ID: "r1", Deployment: "D", Route: "/"}, Method: "GET"})
	span.EndProxy(spans.ProxyResult{StatusCode: 200})
	got := r.spans()[0]
	if len(got.Attributes) != 4 || got.DroppedFields == 0 {
		t.Errorf("%d attributes and %d dropped, want 4 and some", len(got.Attributes), got.DroppedFields)
	}
}
