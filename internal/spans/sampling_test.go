package spans_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/tracing"
)

const (
	inboundTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	inboundSpan   = "00f067aa0ba902b7"
	inboundHeader = "00-" + inboundTrace + "-" + inboundSpan
)

// serveOne sends one request through the three families and a user span, and
// returns the context that the handler saw.
func serveOne(p *spans.Tracer, header http.Header) context.Context {
	req := &identity.Request{ID: "r1", App: "default", Deployment: "D", Route: "/"}
	ctx, proxy := p.StartProxy(p.Provider.Extract(context.Background(), header), spans.ProxyStart{Request: req, Method: "GET"})
	ctx, router := p.StartRouter(ctx, spans.RouterStart{Deployment: "D"})
	ctx, replica := p.StartReplica(ctx, spans.ReplicaStart{Request: &identity.Request{ID: "r1", Deployment: "D", Route: "/"}, Method: "GET"})
	router.EndRouter(spans.RouterResult{})
	ctx, user := p.Provider.TracerProvider().Tracer("user").Start(ctx, "user")
	user.End()
	replica.EndReplica(spans.ReplicaResult{StatusCode: 200})
	proxy.EndProxy(spans.ProxyResult{StatusCode: 200})
	return ctx
}

func inbound(flags string) http.Header {
	if flags == "" {
		return http.Header{}
	}
	return http.Header{"Traceparent": {inboundHeader + "-" + flags}}
}

// With any settings, a trace is recorded whole or not at all: no hop decides again.
func TestOneDecisionPerTrace(t *testing.T) {
	ratio := func(r float64) func(*tracing.Config) { return func(c *tracing.Config) { c.Ratio = r } }
	sampler := func(s tracing.Sampler) func(*tracing.Config) { return func(c *tracing.Config) { c.Sampler = s } }
	distrust := func(c *tracing.Config) { c.TrustInbound = false }
	for _, tc := range []struct {
		name                      string
		edits                     []func(*tracing.Config)
		flags                     string // of the inbound traceparent; empty for none
		requests, atLeast, atMost int
	}{
		{"ratio 0", []func(*tracing.Config){ratio(0)}, "", 50, 0, 0},
		{"ratio 0, inbound 00", []func(*tracing.Config){ratio(0)}, "00", 50, 0, 0},
		{"ratio 0, inbound 01", []func(*tracing.Config){ratio(0)}, "01", 50, 50, 50},
		// 1,000 throws of a fair coin leave 400 to 600 once in 10^9 runs.
		{"ratio 0.5", []func(*tracing.Config){ratio(0.5)}, "", 1000, 400, 600},
		{"ratio 0.5, inbound 00", []func(*tracing.Config){ratio(0.5)}, "00", 50, 0, 0},
		{"ratio 0.5, inbound 01", []func(*tracing.Config){ratio(0.5)}, "01", 50, 50, 50},
		{"ratio 1", []func(*tracing.Config){ratio(1)}, "", 50, 50, 50},
		{"ratio 1, inbound 00", []func(*tracing.Config){ratio(1)}, "00", 50, 0, 0},
		{"ratio 1, inbound 01", []func(*tracing.Config){ratio(1)}, "01", 50, 50, 50},
		{"distrust, ratio 1, inbound 00", []func(*tracing.Config){ratio(1), distrust}, "00", 50, 50, 50},
		{"distrust, ratio 0, inbound 01", []func(*tracing.Config){ratio(0), distrust}, "01", 50, 0, 0},
		{"always_on, inbound 00", []func(*tracing.Config){sampler(tracing.AlwaysOn)}, "00", 50, 50, 50},
		{"always_off, inbound 01", []func(*tracing.Config){sampler(tracing.AlwaysOff)}, "01", 50, 0, 0},
		{"traceidratio 0.5", []func(*tracing.Config){sampler(tracing.TraceIDRatio), ratio(0.5)}, "", 1000, 400, 600},
		{"parentbased_always_off", []func(*tracing.Config){sampler(tracing.ParentBasedAlwaysOff)}, "", 50, 0, 0},
		{"parentbased_always_off, inbound 01", []func(*tracing.Config){sampler(tracing.ParentBasedAlwaysOff)}, "01", 50, 50, 50},
		{"parentbased_always_on", []func(*tracing.Config){sampler(tracing.ParentBasedAlwaysOn), ratio(0)}, "", 50, 50, 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRecorder(t, tc.edits...)
			whole := 0
			for range tc.requests {
				r.exporter.Reset()
				ctx := serveOne(r.Tracer, inbound(tc.flags))
				sc := trace.SpanContextFromContext(ctx)
				spans := r.exporter.GetSpans()
				for _, s := range spans {
					if s.SpanContext.TraceID() != sc.TraceID() {
						t.Errorf("span %q is of trace %s, the handler's of %s", s.Name, s.SpanContext.TraceID(), sc.TraceID())
					}
				}
				switch len(spans) {
				case 0:
				case 4:
					whole++
				default:
					t.Errorf("%d spans of 4 are recorded", len(spans))
				}
				if sc.IsSampled() != (len(spans) == 4) {
					t.Errorf("the handler's context says sampled %t, and %d spans are recorded", sc.IsSampled(), len(spans))
				}
				if tc.flags != "" && sc.TraceID().String() != inboundTrace {
					t.Errorf("trace %s, want the inbound one", sc.TraceID())
				}
				if !sc.IsValid() {
					t.Errorf("the handler's context carries no decision: %v", sc)
				}
			}
			if whole < tc.atLeast || whole > tc.atMost {
				t.Errorf("%d of %d traces are recorded, want %d to %d", whole, tc.requests, tc.atLeast, tc.atMost)
			}
		})
	}
}

// An inbound context becomes the proxy span's parent.
func TestInboundParent(t *testing.T) {
	r := newRecorder(t)
	serveOne(r.Tracer, inbound("01"))
	got := map[string]string{}
	for _, s := range r.spans() {
		got[s.Name] = s.Parent
	}
	want := map[string]string{
		"proxy_http_request D GET /":        "remote " + inboundSpan,
		"route_to_replica D __call__":       "proxy_http_request D GET /",
		"replica_handle_request D __call__": "route_to_replica D __call__",
		"user":                              "replica_handle_request D __call__",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parents (-want +got):\n%s", diff)
	}
}

// Calls from an unsampled request carry the proxy's own id: one span of this process stands
// for the whole request.
func TestUnsampledParentIsTheProxys(t *testing.T) {
	r := newRecorder(t)
	for _, flags := range []string{"00", "02"} {
		ctx := serveOne(r.Tracer, inbound(flags))
		out := http.Header{}
		r.Inject(ctx, out)
		sc := trace.SpanContextFromContext(r.Extract(context.Background(), out))
		if sc.TraceID().String() != inboundTrace || sc.SpanID().String() == inboundSpan || !sc.SpanID().IsValid() || sc.IsSampled() {
			t.Errorf("flags %s: %v leaves, want the inbound trace, another span and no sampled flag", flags, out)
		}
		if got := out.Get("Traceparent"); got[len(got)-2:] != flags {
			t.Errorf("flags %s became %s", flags, got)
		}
	}
}

// Inside an unsampled request no further span is started: router, replica and batch
// stay at the proxy's.
func TestUnsampledRequestHasOneSpan(t *testing.T) {
	for name, edit := range map[string]func(*tracing.Config){
		"ratio 0":                func(c *tracing.Config) { c.Ratio = 0 },
		"always_off":             func(c *tracing.Config) { c.Sampler = tracing.AlwaysOff },
		"parentbased_always_off": func(c *tracing.Config) { c.Sampler = tracing.ParentBasedAlwaysOff },
	} {
		r := newRecorder(t, edit)
		ctx, _ := r.StartProxy(t.Context(), spans.ProxyStart{Request: &identity.Request{ID: "r1"}})
		proxy := trace.SpanContextFromContext(ctx)
		if !proxy.IsValid() || proxy.IsSampled() {
			t.Errorf("%s: the proxy's span is %v", name, proxy)
		}
		ctx, _ = r.StartRouter(ctx, spans.RouterStart{})
		ctx, _ = r.StartReplica(ctx, spans.ReplicaStart{Request: &identity.Request{ID: "r1"}})
		ctx, _ = r.StartBatch([]context.Context{ctx}, "")
		if got := trace.SpanContextFromContext(ctx); !got.Equal(proxy) {
			t.Errorf("%s: the batch runs in %v, want the proxy's %v", name, got, proxy)
		}
	}
}

// A provider that does not go by the parent decides anew, in the parent's trace.
func TestDecisionOfAnotherProvider(t *testing.T) {
	for _, sampled := range []bool{false, true} {
		outer, sampler := sunk(t, 0), tracing.AlwaysOn
		if sampled {
			outer, sampler = sunk(t, 1), tracing.AlwaysOff
		}
		r := newRecorder(t, func(c *tracing.Config) { c.Sampler = sampler })
		ctx, _ := outer.StartRouter(t.Context(), spans.RouterStart{})
		inner, span := r.StartRouter(ctx, spans.RouterStart{})
		span.EndRouter(spans.RouterResult{})
		of, sc, spans := trace.SpanContextFromContext(ctx), trace.SpanContextFromContext(inner), r.exporter.GetSpans()
		if of.IsSampled() != sampled || sc.IsSampled() == sampled || sc.TraceID() != of.TraceID() || !of.IsValid() || sampled != (len(spans) == 0) {
			t.Errorf("under %v there is %v, with spans %+v", of, sc, spans)
		}
		for _, s := range spans {
			if !s.Parent.Equal(of) {
				t.Errorf("the parent is %v, want %v", s.Parent, of)
			}
		}
	}
}

// Each span says whether it records.
func TestRecording(t *testing.T) {
	for _, p := range []*spans.Tracer{spans.New(tracing.Off()), sunk(t, 0), sunk(t, 1)} {
		ctx, proxy := p.StartProxy(context.Background(), spans.ProxyStart{Request: &identity.Request{}})
		ctx, router := p.StartRouter(ctx, spans.RouterStart{})
		_, replica := p.StartReplica(ctx, spans.ReplicaStart{Request: &identity.Request{}})
		want := p.Provider.Enabled() && proxy.Context().IsValid()
		if got := []bool{proxy.Recording(), router.Recording(), replica.Recording()}; !cmp.Equal(got, []bool{want, want, want}) {
			t.Errorf("recording: %v, want %v", got, want)
		}
		replica.EndReplica(spans.ReplicaResult{})
		router.EndRouter(spans.RouterResult{})
		proxy.EndProxy(spans.ProxyResult{})
	}
}

// An unsampled request draws no task id, builds no values and changes nothing
// but the context.
func TestUnsampledRequestBuildsNothing(t *testing.T) {
	r := newRecorder(t)
	req := &identity.Request{ID: "r1", Component: r.NewProxy()}
	ctx, span := r.StartProxy(r.Extract(t.Context(), inbound("00")), spans.ProxyStart{Request: req})
	_, user := r.TracerProvider().Tracer("user").Start(ctx, "user")
	user.End()
	span.EndProxy(spans.ProxyResult{StatusCode: 200})
	if span.Recording() {
		t.Error("the span of an unsampled request records")
	}
	allocated := func(c *identity.Component) float64 {
		ctx := r.Extract(t.Context(), inbound("00"))
		return testing.AllocsPerRun(100, func() {
			_, span := r.StartProxy(ctx, spans.ProxyStart{Request: &identity.Request{ID: "r1", Component: c}})
			span.EndProxy(spans.ProxyResult{StatusCode: 200})
		})
	}
	if with, without := allocated(r.NewProxy()), allocated(nil); with != without {
		t.Errorf("%v allocations with a component, which has ids, and %v without", with, without)
	}
	if identity.RequestFromContext(ctx) != req {
		t.Error("the context of an unsampled request does not carry the Request")
	}
}
