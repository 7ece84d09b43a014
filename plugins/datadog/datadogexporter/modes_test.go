package datadogexporter

import (
	"context"
	"net/http/httptest"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/tracing"
)

// wired is a span processor that encodes what ends.
type wired struct{ sdkspan.Encoder }

func (*wired) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (w *wired) OnEnd(s sdktrace.ReadOnlySpan)                 { w.Append(s) }
func (*wired) ForceFlush(context.Context) error                { return nil }
func (*wired) Shutdown(context.Context) error                  { return nil }

// served is the spans of three requests under the names of a mode: one of HTTP
// that failed, a web socket, and a gRPC call.
func served(t *testing.T, mode string) *pluginsdk.Batch {
	t.Helper()
	cfg := tracing.DefaultConfig()
	cfg.Semconv = mode
	w := &wired{}
	p, err := tracing.NewProvider(cfg, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		protocol     tracing.Protocol
		verb, method string
		result       tracing.ProxyResult
	}{
		{tracing.HTTP, "GET", "", tracing.ProxyResult{StatusCode: 503}},
		{tracing.WebSocket, "GET", "", tracing.ProxyResult{StatusCode: 1000}},
		{tracing.GRPC, "/shop.v1.Cart/Add", "Add", tracing.ProxyResult{GRPCCode: "DATA_LOSS"}},
	} {
		request := func() *tracing.Request {
			return &tracing.Request{ID: "r-1", App: "shop", Deployment: "D", Route: "/users/{id}"}
		}
		ctx, proxy := p.StartProxy(t.Context(), tracing.ProxyStart{
			Request: request(), Protocol: r.protocol, Method: r.verb, RoutePath: "/users/7",
			HTTPRequest: httptest.NewRequest("GET", "http://shop.example/users/7", nil),
		})
		ctx, router := p.StartRouter(ctx, tracing.RouterStart{App: "shop", Deployment: "D", CallMethod: r.method, Protocol: r.protocol})
		_, replica := p.StartReplica(ctx, tracing.ReplicaStart{
			Request: request(), Protocol: r.protocol, CallMethod: r.method, Method: r.verb,
		})
		router.End(tracing.RouterResult{})
		replica.End(tracing.ReplicaResult{StatusCode: r.result.StatusCode})
		proxy.End(r.result)
	}
	return pluginsdk.NewBatch(w.AppendRequest(nil))
}

// shown is what Datadog lists, counts and finds a span by.
type shown struct {
	Operation, Type           string
	Failed                    bool
	Method, Route, Path, Code string // of the tags
	Status                    float64
}

// Under the names of every mode, the spans of a request are the same to Datadog,
// but for what Ray has in places of its own: the close code of a web socket, WS
// for its verb, and a verb on the router's span.
func TestNamesOfEveryMode(t *testing.T) {
	const users = "/users/{id}"
	ray := map[string]shown{ // by resource
		"proxy_http_request D GET /users/{id}": {
			Operation: "http.server.request", Type: "web", Failed: true, Method: "GET", Route: users, Status: 503,
		},
		"proxy_websocket_request D WS /users/{id}": {Operation: "http.server.request", Type: "web", Method: "WS", Route: users, Status: 1000},
		"proxy_grpc_request D /shop.v1.Cart/Add":   {Operation: "grpc.server.request", Type: "web", Failed: true, Code: "DATA_LOSS"},
		"route_to_replica D __call__":              {Operation: "http.server.request", Type: "web", Method: "__call__", Route: users},
		"route_to_replica D Add":                   {Operation: "grpc.server.request", Type: "web"},
		"replica_handle_request D Add":             {Operation: "grpc.server.request", Type: "web"},
	}
	for mode, change := range map[string]func(resource string, s *shown){
		tracing.SemconvRay: func(string, *shown) {},
		tracing.SemconvStable: func(resource string, s *shown) {
			switch resource {
			case "route_to_replica D __call__":
				s.Operation, s.Method = "server.request", ""
			case "proxy_websocket_request D WS /users/{id}":
				s.Method, s.Status, s.Path = "GET", 101, "/users/7"
			case "proxy_http_request D GET /users/{id}":
				s.Path = "/users/7"
			}
		},
		tracing.SemconvDup: func(resource string, s *shown) {
			switch resource {
			case "proxy_websocket_request D WS /users/{id}":
				s.Method, s.Path = "GET", "/users/7" // the status is Ray's
			case "proxy_http_request D GET /users/{id}":
				s.Path = "/users/7"
			}
		},
	} {
		a := startAgent(t)
		a.info = infoV04
		if err := export(t, open(t, a), served(t, mode)); err != nil {
			t.Fatal(err)
		}
		got := map[string]shown{}
		for _, s := range a.taken() {
			got[s.resource] = shown{
				s.name, s.typ, s.failed,
				s.meta["http.method"], s.meta["http.route"], s.meta["url.path"], s.meta["rpc.grpc.status_code"],
				s.metrics["http.status_code"],
			}
		}
		delete(got, "replica_handle_request D __call__") // one of each protocol
		want := map[string]shown{}
		for resource, s := range ray {
			change(resource, &s)
			want[resource] = s
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", mode, diff)
		}
	}
}
