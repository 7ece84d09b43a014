package spans

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/servetrace/servetrace/serving"
)

// textMethod describes a service with one method, which answers with a text.
func textMethod(service, method string, f func(context.Context) (string, error)) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: method,
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				if err := decode(&emptypb.Empty{}); err != nil {
					return nil, err
				}
				text, err := f(ctx)
				return wrapperspb.String(text), err
			},
		}},
	}
}

// dialGRPC gives a connection to the server's gRPC port.
func (r *rig) dialGRPC() *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient(r.server.GRPCAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// callText calls a method of textMethod under a request id, and gives its text.
func (r *rig) callText(conn *grpc.ClientConn, full, id string, md ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, append(md, "request_id", id)...)
	var out wrapperspb.StringValue
	if err := conn.Invoke(ctx, full, &emptypb.Empty{}, &out); err != nil {
		r.t.Fatal(err)
	}
	return out.GetValue()
}

// onGRPC is a deployment of app "a" whose gRPC method answers with the context
// that it would send on, as goesOut does.
func onGRPC(r **rig) *serving.App {
	d := serving.NewDeployment("D", nil)
	d.RegisterService(textMethod("test.Context", "Pass", func(ctx context.Context) (string, error) {
		out := http.Header{}
		(*r).tracing.Inject(ctx, out)
		text, err := json.Marshal(passed{out.Get("Traceparent"), out.Get("Tracestate")})
		return string(text), err
	}), struct{}{})
	return serving.NewApp("a", d)
}

const passMethod = "/test.Context/Pass"

// rpcConfig has the gRPC port on any free one.
func rpcConfig() (cfg serving.Config) {
	cfg.GRPC.Addr = "127.0.0.1:0"
	return cfg
}

// asMetadata gives header lines as gRPC's metadata, which has names in small
// letters alone, no space around values and no tabs in them.
func asMetadata(sent lines) (md []string) {
	for _, line := range sent {
		name, value, _ := strings.Cut(line, ":")
		md = append(md, strings.ToLower(name), strings.TrimSpace(strings.ReplaceAll(value, "\t", " ")))
	}
	return md
}

// TestW3COverGRPC: the rules of TestW3COverHTTP for gRPC's metadata.
func TestW3COverGRPC(t *testing.T) {
	var r *rig
	r = serve(t, rpcConfig(), onGRPC(&r))
	conn := r.dialGRPC()
	for i, row := range w3cRows() {
		t.Run(row.name, func(t *testing.T) {
			id := fmt.Sprintf("w3c-%d", i)
			checkPassed(t, row, r.callText(conn, passMethod, id, asMetadata(row.sent)...))
			if row.unsampled() {
				return
			}
			spans := r.spans.request(t, id)
			if len(spans) != 3 {
				t.Errorf("%d spans, want 3", len(spans))
			}
			r.checkParent(row, only(t, spans, "proxy_grpc_request D "+passMethod))
		})
	}
}

// TestTrustInboundGRPC: TestTrustInbound for gRPC.
func TestTrustInboundGRPC(t *testing.T) {
	for _, tt := range trustRows {
		t.Run("trust "+tt.trust+", ratio "+tt.ratio, func(t *testing.T) {
			var r *rig
			r = serveWith(t, environment("SERVE_TRACING_TRUST_INBOUND="+tt.trust, "SERVE_TRACING_SAMPLING_RATIO="+tt.ratio), rpcConfig(), onGRPC(&r))
			row := tt.row()
			checkPassed(t, row, r.callText(r.dialGRPC(), passMethod, "r", asMetadata(row.sent)...))
			if !tt.sampled {
				r.checkNoSpans()
				return
			}
			r.checkParent(row, only(t, r.spans.request(t, "r"), "proxy_grpc_request D "+passMethod))
		})
	}
}

// TestFixturesGRPC: Ray's test_tracing_e2e[grpc].
func TestFixturesGRPC(t *testing.T) {
	var r *rig
	d := serving.NewDeployment("grpc-deployment", nil)
	d.RegisterService(textMethod("ray.serve.UserDefinedService", "__call__", func(ctx context.Context) (string, error) {
		applicationSpan(ctx, r).End()
		return "Hello from grpc", nil
	}), struct{}{})
	r = serve(t, rpcConfig(), serving.NewApp("default", d))
	upstream, header := upstreamApp(t)
	got := r.callText(r.dialGRPC(), "/ray.serve.UserDefinedService/__call__", "grpc", "traceparent", header.Get("Traceparent"))
	if got != "Hello from grpc" {
		t.Errorf("the answer is %q", got)
	}
	r.checkFixture("grpc", "grpc", upstream())
}

// TestStableNamesGRPC: today's names of a real call, with the facts of its
// connection.
func TestStableNamesGRPC(t *testing.T) {
	var r *rig
	r = serveWith(t, environment("SERVE_TRACING_SEMCONV=stable"), rpcConfig(), onGRPC(&r))
	r.callText(r.dialGRPC(), passMethod, "r")
	r.stop()
	common := func(name string, more attributes) attributes {
		all := attributes{"serve.deployment": "D", "serve.app": "a", "serve.request_id": "r", "resource.name": name}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	proxy, router, replica := "proxy_grpc_request D "+passMethod, "route_to_replica D Pass", "replica_handle_request D Pass"
	checkNames(t, r, map[string]attributes{
		proxy: common(proxy, attributes{
			"serve.request_type": "grpc", "rpc.system.name": "grpc", "rpc.method": "test.Context/Pass",
			"rpc.response.status_code": "OK", "client.address": "127.0.0.1",
			"server.address": "127.0.0.1", "server.port": portOf(t, r.server.GRPCAddr()),
		}),
		router: common(router, attributes{
			"serve.call_method": "Pass", "serve.route": "a", "serve.multiplexed_model_id": "", "serve.is_streaming": false,
			"serve.is_http_request": false, "serve.is_grpc_request": true, "rpc.system.name": "grpc", "rpc.method": "test.Context/Pass",
		}),
		replica: common(replica, attributes{
			"serve.call_method": "Pass", "serve.route": "a", "serve.multiplexed_model_id": "", "serve.is_streaming": false,
			"rpc.system.name": "grpc", "rpc.method": "test.Context/Pass",
		}),
	})
}
