package spans

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/serving"
)

// attributesOf returns the attributes of a span without the identity.
func attributesOf(s sdktrace.ReadOnlySpan) attributes {
	got := attributes{}
	for _, kv := range s.Attributes() {
		switch key := string(kv.Key); key {
		case "serve.task_id", "serve.replica_id", "serve.queue_wait_ms":
		default:
			got[key] = kv.Value.AsInterface()
		}
	}
	return got
}

// TestStableNames: today's names, with the facts of a real request and its
// connection.
func TestStableNames(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /users/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		r := serveWith(t, environment("SERVE_TRACING_SEMCONV=stable"), serving.Config{},
			serving.NewApp("a", serving.NewDeployment("D", mux), serving.WithRoutePrefix("/shop")))
		r.get(c, "r", "/shop/users/7%2F8?token=secret", "User-Agent", "tester/1", "X-Forwarded-For", "203.0.113.9")

		version := map[string]string{"HTTP/1.1": "1.1", "HTTP/2": "2"}[strings.TrimPrefix(t.Name(), "TestStableNames/")]
		name := "proxy_http_request D GET /shop/users/{id}"
		want := map[string]attributes{
			name: {
				"serve.deployment": "D", "serve.app": "a", "serve.request_id": "r", "resource.name": name,
				"serve.request_type": "http", "serve.request_method": "GET", "serve.request_route_path": "/users/7/8",
				"url.path": "/shop/users/7%2F8", "url.scheme": "http", "user_agent.original": "tester/1",
				"server.address": "127.0.0.1", "server.port": portOf(t, r.server.Addr()), "client.address": "127.0.0.1",
				"network.protocol.version": version, "http.request.method": "GET", "http.route": "/shop/users/{id}",
				"http.response.status_code": int64(418), "error.type": "418",
			},
			"route_to_replica D __call__": {
				"serve.deployment": "D", "serve.app": "a", "serve.request_id": "r", "resource.name": "route_to_replica D __call__",
				"serve.call_method": "__call__", "serve.route": "/shop/users/{id}", "serve.multiplexed_model_id": "",
				"serve.is_streaming": true, "serve.is_http_request": true, "serve.is_grpc_request": false,
				"http.route": "/shop/users/{id}",
			},
			"replica_handle_request D __call__": {
				"serve.deployment": "D", "serve.app": "a", "serve.request_id": "r", "resource.name": "replica_handle_request D __call__",
				"serve.call_method": "__call__", "serve.route": "/shop/users/{id}", "serve.multiplexed_model_id": "",
				"serve.is_streaming": true, "http.request.method": "GET", "http.route": "/shop/users/{id}",
				"http.response.status_code": int64(418),
			},
		}
		r.stop()
		checkNames(t, r, want)
	})
}

// checkNames compares the attributes of all spans, by their names, and the schema
// that they claim to have.
func checkNames(t *testing.T, r *rig, want map[string]attributes) {
	t.Helper()
	got := map[string]attributes{}
	for _, spans := range r.spans.ended {
		for _, s := range spans {
			got[s.Name()] = attributesOf(s)
			if schema := s.InstrumentationScope().SchemaURL; schema != "https://opentelemetry.io/schemas/1.43.0" {
				t.Errorf("%s has the schema %q", s.Name(), schema)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

func portOf(t *testing.T, addr net.Addr) int64 {
	t.Helper()
	_, port, _ := strings.Cut(addr.String(), ":")
	number, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return number
}
