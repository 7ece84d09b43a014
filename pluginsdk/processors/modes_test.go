package processors

import (
	"context"
	"net/http/httptest"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/tracing"
)

// wired is a span processor that encodes ended spans.
type wired struct{ sdkspan.Encoder }

func (*wired) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (w *wired) OnEnd(s sdktrace.ReadOnlySpan)                 { w.Append(s) }
func (*wired) ForceFlush(context.Context) error                { return nil }
func (*wired) Shutdown(context.Context) error                  { return nil }

// served is the spans of a request under the names of a mode, encoded.
func served(t *testing.T, mode string) []byte {
	t.Helper()
	cfg := tracing.DefaultConfig()
	cfg.Semconv = mode
	w := &wired{}
	provider, err := tracing.NewProvider(cfg, w)
	if err != nil {
		t.Fatal(err)
	}
	p := spans.New(provider)
	in := httptest.NewRequest("GET", "http://shop.example/users/7", nil)
	in.Header.Set("User-Agent", "curl/8")
	request := func(c *identity.Component) *identity.Request {
		return &identity.Request{
			ID: "cf86e040-2c53-44b8-976e-55224b692141", App: "shop", Deployment: "D", Route: "/users/{id}", ModelID: "m1", Component: c,
		}
	}
	ctx, proxy := p.StartProxy(t.Context(), spans.ProxyStart{
		Request: request(p.NewProxy()), Method: "GET", RoutePath: "/users/7", HTTPRequest: in,
	})
	ctx, router := p.StartRouter(ctx, spans.RouterStart{App: "shop", Deployment: "D", ModelID: "m1"})
	ctx, replica := p.StartReplica(ctx, spans.ReplicaStart{Request: request(p.NewReplica("shop", "D")), Method: "GET"})
	_, load := p.StartModelLoad(ctx, "m1")
	_, batch := p.StartBatch([]context.Context{ctx}, "embed")
	load.EndWork(nil)
	batch.EndWork(nil)
	router.EndRouter(spans.RouterResult{})
	replica.EndReplica(spans.ReplicaResult{StatusCode: 200})
	proxy.EndProxy(spans.ProxyResult{StatusCode: 200})
	return w.AppendRequest(nil)
}

// Under the names of every mode, every span gets Ray's identity, and there is
// nothing that looks like a secret.
func TestNamesOfEveryMode(t *testing.T) {
	for _, mode := range []string{tracing.SemconvRay, tracing.SemconvStable, tracing.SemconvDup} {
		encoded := served(t, mode)
		before := unmarshal(t, encoded)
		out, err := process(t, construct(t, RayContext(), pluginsdk.Setup{}), encoded)
		if err != nil {
			t.Fatal(err)
		}
		spans := spansOf(unmarshal(t, out))
		if len(spans) != 5 {
			t.Fatalf("%s: %d spans, want 5", mode, len(spans))
		}
		for _, s := range spans {
			value := func(key string) string {
				v, _ := find(s.Attributes, key)
				return v.GetStringValue()
			}
			task := value(semconv.ServeTaskID)
			for key, want := range map[string]string{
				semconv.RayRequestID: "cf86e040-2c53-44b8-976e-55224b692141",
				semconv.RayTaskID:    task, semconv.RayActorID: task[16:], semconv.RayJobID: task[40:],
			} {
				if got := value(key); got != want {
					t.Errorf("%s: %s of %q is %q, want %q", mode, key, s.Name, got, want)
				}
			}
			if got := value(semconv.ResourceName); got != s.Name {
				t.Errorf("%s: resource.name of %q is %q", mode, s.Name, got)
			}
		}
		if out, err = process(t, construct(t, Redact(RedactConfig{}), pluginsdk.Setup{}), encoded); err != nil {
			t.Fatal(err)
		}
		if after := unmarshal(t, out); !proto.Equal(before, after) {
			t.Errorf("%s: redact made\n%v\nof\n%v", mode, after, before)
		}
	}
}
