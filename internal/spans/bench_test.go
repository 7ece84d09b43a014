package spans_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/tracing"
)

// sink is a processor that drops every span: the benchmark measures this package and the
// SDK.
type sink struct{}

func (sink) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (sink) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (sink) ForceFlush(context.Context) error                { return nil }
func (sink) Shutdown(context.Context) error                  { return nil }

var asked = httptest.NewRequest(http.MethodGet, "http://shop.example:8000/", nil)

// threeSpans is one request without the user's own spans.
func threeSpans(p *spans.Tracer, proxy, replica *identity.Component, header http.Header) {
	atProxy := &identity.Request{ID: "r1", App: "default", Deployment: "HelloWorld", Route: "/", Component: proxy}
	atReplica := &identity.Request{ID: "r1", App: "default", Deployment: "HelloWorld", Route: "/", Component: replica}
	ctx, ps := p.StartProxy(p.Provider.Extract(context.Background(), header),
		spans.ProxyStart{Request: atProxy, Method: "GET", RoutePath: "/", HTTPRequest: asked})
	ctx, rt := p.StartRouter(ctx, spans.RouterStart{App: "default", Deployment: "HelloWorld"})
	_, rs := p.StartReplica(ctx, spans.ReplicaStart{Request: atReplica, Method: "GET"})
	rt.EndRouter(spans.RouterResult{})
	rs.EndReplica(spans.ReplicaResult{StatusCode: 200})
	ps.EndProxy(spans.ProxyResult{StatusCode: 200})
}

func sunk(tb testing.TB, ratio float64, mode ...string) *spans.Tracer {
	tb.Helper()
	cfg := tracing.DefaultConfig()
	cfg.Ratio = ratio
	for _, m := range mode {
		cfg.Semconv = m
	}
	provider, err := tracing.NewProvider(cfg, sink{})
	if err != nil {
		tb.Fatal(err)
	}
	p := spans.New(provider)
	return p
}

// The two Requests and the two contexts that carry them are four allocations
// that serving makes in any case.
func BenchmarkRequest(b *testing.B) {
	for _, bc := range []struct {
		name     string
		provider *spans.Tracer
		header   http.Header
	}{
		{"off", spans.New(tracing.Off()), http.Header{}},
		{"off/inbound", spans.New(tracing.Off()), inbound("01")},
		{"unsampled/root", sunk(b, 0), http.Header{}},
		{"unsampled/inbound", sunk(b, 1), inbound("00")},
		{"sampled/root", sunk(b, 1), http.Header{}},
		{"sampled/inbound", sunk(b, 1), inbound("01")},
		{"sampled/stable", sunk(b, 1, tracing.SemconvStable), http.Header{}},
		{"sampled/dup", sunk(b, 1, tracing.SemconvDup), http.Header{}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			proxy, replica := bc.provider.NewProxy(), bc.provider.NewReplica("default", "HelloWorld")
			b.ReportAllocs()
			for b.Loop() {
				threeSpans(bc.provider, proxy, replica, bc.header)
			}
		})
	}
}

// tracing.Off and unsampled requests pay for their context, and for one span if there is a
// provider.
func TestAllocationsWithoutSpans(t *testing.T) {
	for _, tc := range []struct {
		name     string
		provider *spans.Tracer
		header   http.Header
		most     float64
	}{
		// Two Requests and the two contexts that carry them.
		{"off", spans.New(tracing.Off()), http.Header{}, 4},
		// And the inbound span context, in its span and its context.
		{"off, inbound", spans.New(tracing.Off()), inbound("01"), 6},
		// And the proxy's span, with its context and its options.
		{"unsampled, inbound", sunk(t, 1), inbound("00"), 9},
		{"unsampled, root", sunk(t, 0), http.Header{}, 7},
	} {
		proxy, replica := tc.provider.NewProxy(), tc.provider.NewReplica("default", "HelloWorld")
		got := testing.AllocsPerRun(200, func() { threeSpans(tc.provider, proxy, replica, tc.header) })
		if got > tc.most {
			t.Errorf("%s: %v allocations, want at most %v", tc.name, got, tc.most)
		}
	}
}

// BenchmarkChain is the spans of one request to three deployments, with their ends.
func BenchmarkChain(b *testing.B) {
	provider, err := tracing.NewProvider(tracing.DefaultConfig(), sink{})
	if err != nil {
		b.Fatal(err)
	}
	p := spans.New(provider)
	proxy := p.NewProxy()
	var replicas [3]*identity.Component
	names := [3]string{"Entry", "Embed", "Rank"}
	for i, n := range names {
		replicas[i] = p.NewReplica("default", n)
	}
	b.ReportAllocs()
	for b.Loop() {
		first := &identity.Request{ID: "1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8", App: "default", Deployment: "Entry", Route: "/", Component: proxy}
		ctx, ps := p.StartProxy(context.Background(), spans.ProxyStart{Request: first, Method: "GET", RoutePath: "/", HTTPRequest: asked})
		var ends [3]spans.Span
		outer := first
		for i, c := range replicas {
			protocol := spans.HTTP
			if i > 0 {
				protocol = spans.Handle
			}
			var rt spans.Span
			ctx, rt = p.StartRouter(ctx, spans.RouterStart{App: "default", Deployment: names[i], Protocol: protocol})
			r := &identity.Request{App: "default", Deployment: names[i], Component: c}
			r.Continue(outer)
			ctx, ends[i] = p.StartReplica(ctx, spans.ReplicaStart{Request: r, Method: "GET", Protocol: protocol})
			rt.EndRouter(spans.RouterResult{})
			outer = r
		}
		for i := range ends {
			ends[len(ends)-1-i].EndReplica(spans.ReplicaResult{StatusCode: 200})
		}
		ps.EndProxy(spans.ProxyResult{StatusCode: 200})
	}
}
