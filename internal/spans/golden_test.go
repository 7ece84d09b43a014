package spans_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/test/golden"
	"github.com/servetrace/servetrace/tracing"
)

// goldenRequests make the spans of one request each, of every family.
var goldenRequests = map[string]func(r *recorder){
	"http": func(r *recorder) {
		in := httptest.NewRequest("post", "http://shop.example:8000/app1/users/7%2F8?token=secret", nil)
		in.Header.Set("User-Agent", "curl/8")
		in.RemoteAddr = "192.0.2.7:40001"
		r.golden(spans.ProxyStart{Protocol: spans.HTTP, Method: "post", RoutePath: "/users/7/8", HTTPRequest: in},
			spans.ReplicaStart{Method: "post"}, spans.ReplicaResult{StatusCode: 200}, spans.ProxyResult{StatusCode: 200}, nil)
	},
	"http_failed": func(r *recorder) {
		in := httptest.NewRequest("BREW", "https://[::1]/", nil)
		in.ProtoMajor, in.ProtoMinor = 2, 0
		in.RemoteAddr = "[2001:db8::7]:40001"
		boom := fmt.Errorf("predict: %w", failure{})
		r.golden(spans.ProxyStart{Protocol: spans.HTTP, Method: "BREW", RoutePath: "/", HTTPRequest: in},
			spans.ReplicaStart{Method: "BREW"}, spans.ReplicaResult{StatusCode: 500, Err: boom}, spans.ProxyResult{StatusCode: 500, Err: boom}, nil)
	},
	"http_refused": func(r *recorder) {
		full := errors.New("queue full")
		r.golden(spans.ProxyStart{Protocol: spans.HTTP, Method: "GET", RoutePath: "/"}, spans.ReplicaStart{}, spans.ReplicaResult{}, spans.ProxyResult{StatusCode: 503, Err: full}, full)
	},
	"http_not_found": func(r *recorder) {
		r.golden(spans.ProxyStart{Protocol: spans.HTTP, Method: "GET", RoutePath: "/"}, spans.ReplicaStart{Method: "GET"},
			spans.ReplicaResult{StatusCode: 404}, spans.ProxyResult{StatusCode: 404}, nil)
	},
	"websocket": func(r *recorder) {
		in := httptest.NewRequest("GET", "http://shop.example/chat", nil)
		in.RemoteAddr = "192.0.2.7:40001"
		r.golden(spans.ProxyStart{Protocol: spans.WebSocket, Method: "GET", RoutePath: "/chat", HTTPRequest: in},
			spans.ReplicaStart{Method: "GET"}, spans.ReplicaResult{}, spans.ProxyResult{StatusCode: 1000}, nil)
	},
	"websocket_failed": func(r *recorder) {
		r.golden(spans.ProxyStart{Protocol: spans.WebSocket, Method: "GET", RoutePath: "/chat"},
			spans.ReplicaStart{Method: "GET"}, spans.ReplicaResult{}, spans.ProxyResult{StatusCode: 1011}, nil)
	},
	"grpc": func(r *recorder) {
		r.golden(spans.ProxyStart{
			Protocol: spans.GRPC, Method: "/shop.v1.Cart/Add",
			Metadata: map[string][]string{":authority": {"shop.example:9000"}},
			Peer:     peer(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 40001}),
		}, spans.ReplicaStart{CallMethod: "Add", Streaming: true}, spans.ReplicaResult{}, spans.ProxyResult{GRPCCode: "OK"}, nil)
	},
	"grpc_failed": func(r *recorder) {
		r.golden(spans.ProxyStart{
			Protocol: spans.GRPC, Method: "/shop.v1.Cart/Add",
			Peer: peer(&net.UnixAddr{Net: "unix", Name: "/run/shop.sock"}),
		}, spans.ReplicaStart{CallMethod: "Add"}, spans.ReplicaResult{Err: failure{}}, spans.ProxyResult{GRPCCode: "INTERNAL", Err: failure{}}, nil)
	},
	"handle": func(r *recorder) {
		ctx, outer := r.StartReplica(context.Background(), spans.ReplicaStart{Request: r.request(), Protocol: spans.HTTP, Method: "GET"})
		ctx, router := r.StartRouter(ctx, spans.RouterStart{App: "shop", Deployment: "B", CallMethod: "predict", Protocol: spans.Handle, ModelID: "m1"})
		_, inner := r.StartReplica(ctx, spans.ReplicaStart{
			Request:  &identity.Request{ID: "r1", App: "shop", Deployment: "B", Route: "/users/{id}", ModelID: "m1", Component: r.component},
			Protocol: spans.Handle, CallMethod: "predict", Streaming: true,
		})
		router.EndRouter(spans.RouterResult{QueueWait: 1500 * time.Microsecond})
		inner.EndReplica(spans.ReplicaResult{Err: failure{}})
		outer.EndReplica(spans.ReplicaResult{StatusCode: 200})
	},
	"batch": func(r *recorder) {
		ctx, replica := r.StartReplica(context.Background(), spans.ReplicaStart{Request: r.request(), Protocol: spans.HTTP, Method: "GET"})
		other, second := r.StartReplica(context.Background(), spans.ReplicaStart{Request: r.request(), Protocol: spans.HTTP, Method: "GET"})
		_, batch := r.StartBatch([]context.Context{ctx, other}, "embed")
		batch.EndWork(nil)
		_, batch = r.StartBatch([]context.Context{ctx}, "embed")
		batch.EndWork(failure{})
		replica.EndReplica(spans.ReplicaResult{StatusCode: 200})
		second.EndReplica(spans.ReplicaResult{StatusCode: 200})
	},
	"model_load": func(r *recorder) {
		ctx, replica := r.StartReplica(context.Background(), spans.ReplicaStart{Request: r.request(), Protocol: spans.HTTP, Method: "GET"})
		_, load := r.StartModelLoad(ctx, "m1")
		load.EndWork(nil)
		_, load = r.StartModelLoad(context.Background(), "m2")
		load.EndWork(failure{})
		replica.EndReplica(spans.ReplicaResult{StatusCode: 200})
	},
}

func peer(addr net.Addr) func(context.Context) net.Addr {
	return func(context.Context) net.Addr { return addr }
}

// request is one that reached the golden replica.
func (r *recorder) request() *identity.Request {
	return &identity.Request{ID: "r1", App: "shop", Deployment: "D", Route: "/users/{id}", ModelID: "m1", Component: r.component}
}

// golden makes the three spans of a request. The last error is the router's, after which
// there is no replica span.
func (r *recorder) golden(ps spans.ProxyStart, rs spans.ReplicaStart, rr spans.ReplicaResult, pr spans.ProxyResult, refused error) {
	ps.Request, rs.Request, rs.Protocol = r.request(), r.request(), ps.Protocol
	ps.Request.Component = r.NewProxy()
	ctx, proxy := r.StartProxy(context.Background(), ps)
	ctx, router := r.StartRouter(ctx, spans.RouterStart{
		App: "shop", Deployment: "D", CallMethod: rs.CallMethod, Protocol: ps.Protocol, Streaming: rs.Streaming, ModelID: "m1",
	})
	if refused == nil {
		_, replica := r.StartReplica(ctx, rs)
		router.EndRouter(spans.RouterResult{QueueWait: 1500 * time.Microsecond})
		replica.EndReplica(rr)
	} else {
		router.EndRouter(spans.RouterResult{Outcome: spans.RouterRefused, Err: refused})
	}
	proxy.EndProxy(pr)
}

// goldenText writes the spans out, with random values blanked.
func (r *recorder) goldenText() string {
	var out strings.Builder
	for _, s := range r.spans() {
		fmt.Fprintf(&out, "%s\n  %s, %s", s.Name, strings.ToUpper(s.Kind), s.Status)
		if s.Description != "" {
			fmt.Fprintf(&out, " %q", s.Description)
		}
		if s.Links > 0 {
			fmt.Fprintf(&out, ", links %d", s.Links)
		}
		fmt.Fprintf(&out, "\n  parent: %s\n", cmp.Or(s.Parent, "none"))
		lines := goldenAttributes(s.Attributes, r.component.UniqueID())
		for _, e := range s.Events {
			lines = append(lines, "  event "+e.Name)
			for _, line := range goldenAttributes(e.Attributes, "") {
				lines = append(lines, "  "+line)
			}
		}
		out.WriteString(strings.Join(lines, "\n") + "\n\n")
	}
	return out.String()
}

func goldenAttributes(attrs map[string]any, replica string) []string {
	var lines []string
	for key, value := range attrs {
		text := fmt.Sprintf("  %s = %#v (%T)", key, value, value)
		if replica != "" {
			text = strings.ReplaceAll(text, replica, "REPLICA1")
		}
		lines = append(lines, text)
	}
	slices.Sort(lines)
	return lines
}

// The spans of every family under the names of every mode.
func TestGoldenSpans(t *testing.T) {
	for _, mode := range []string{tracing.SemconvRay, tracing.SemconvStable, tracing.SemconvDup} {
		for name, request := range goldenRequests {
			t.Run(mode+"/"+name, func(t *testing.T) {
				r := newRecorder(t, func(c *tracing.Config) { c.Semconv = mode })
				r.component = r.NewReplica("shop", "D")
				request(r)
				golden.Compare(t, filepath.Join("names", mode, name+".golden"), r.goldenText())
				for _, s := range r.exporter.GetSpans() {
					schema := semconv.SchemaURL
					if mode == tracing.SemconvRay {
						schema = ""
					}
					if got := s.InstrumentationScope.SchemaURL; got != schema {
						t.Errorf("schema of %q is %q, want %q", s.Name, got, schema)
					}
				}
			})
		}
	}
}

// The switches of HTTP and RPC move their own group and leave the others.
func TestFinerNames(t *testing.T) {
	for _, tc := range []struct {
		http, rpc string
		keys      []string // of the attributes that tell the groups apart
	}{
		{"", "", []string{"deployment", "http.status_code", "rpc.system"}},
		{tracing.SemconvStable, "", []string{"deployment", "http.response.status_code", "rpc.system"}},
		{"", tracing.SemconvDup, []string{"deployment", "http.status_code", "rpc.system", "rpc.system.name"}},
		{tracing.SemconvDup, tracing.SemconvStable, []string{"deployment", "http.response.status_code", "http.status_code", "rpc.system.name"}},
	} {
		r := newRecorder(t, func(c *tracing.Config) { c.SemconvHTTP, c.SemconvRPC = tc.http, tc.rpc })
		r.component = r.NewReplica("shop", "D")
		goldenRequests["http"](r)
		goldenRequests["grpc"](r)
		seen := map[string]bool{}
		for _, s := range r.spans() {
			for key := range s.Attributes {
				seen[key] = true
			}
		}
		var got []string
		for _, key := range []string{
			"deployment", "http.response.status_code", "http.status_code", "rpc.system", "rpc.system.name", "serve.deployment",
		} {
			if seen[key] {
				got = append(got, key)
			}
		}
		if diff := gocmp.Diff(tc.keys, got); diff != "" {
			t.Errorf("http %q, rpc %q (-want +got):\n%s", tc.http, tc.rpc, diff)
		}
	}
}
