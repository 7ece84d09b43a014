package tracing

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// allFamilies makes a span of each family and protocol, failed ones too.
func allFamilies(p *Provider) {
	failure := ReplicaResult{StatusCode: 500, Err: fmt.Errorf("boom")}
	for _, protocol := range []Protocol{HTTP, WebSocket, GRPC, Handle} {
		at := func(c *Component) *Request {
			return &Request{ID: "r1", App: "a", Deployment: "D", Route: "/", ModelID: "m", Component: c}
		}
		ctx := context.Background()
		var proxy ProxySpan
		if protocol != Handle {
			ctx, proxy = p.StartProxy(ctx, ProxyStart{
				Request: at(p.NewProxy()), Protocol: protocol, Method: "get", RoutePath: "/", HTTPRequest: asked,
				Metadata: map[string][]string{":authority": {"shop.example:9000"}},
			})
		}
		ctx, router := p.StartRouter(ctx, RouterStart{App: "a", Deployment: "D", Protocol: protocol})
		ctx, replica := p.StartReplica(ctx, ReplicaStart{Request: at(p.NewReplica("a", "D")), Protocol: protocol, Method: "get"})
		router.End(RouterResult{Outcome: RouterFailed, Err: failure.Err})
		inner, load := p.StartModelLoad(ctx, "m")
		load.End(failure.Err)
		_, batch := p.StartBatch([]context.Context{inner}, BatchStart{Name: "f"})
		batch.End(failure.Err)
		replica.End(failure)
		proxy.End(ProxyResult{StatusCode: 500, GRPCCode: "INTERNAL", Err: failure.Err})
	}
}

// The SDK looks for no doubles among our attributes, so that there must be none.
func TestNoAttributeIsSetTwice(t *testing.T) {
	for _, mode := range []string{SemconvRay, SemconvStable, SemconvDup} {
		r := newRecorder(t, func(c *Config) { c.Semconv = mode })
		allFamilies(r.Provider)
		spans := r.exporter.GetSpans()
		if len(spans) != 19 {
			t.Fatalf("%s: %d spans, want 19", mode, len(spans))
		}
		for _, s := range spans {
			if distinct := len(asMap(s.Attributes)); distinct != len(s.Attributes) {
				t.Errorf("%s: %q has %d keys for %d attributes", mode, s.Name, distinct, len(s.Attributes))
			}
			if mode == SemconvRay && len(s.Attributes) > mostAttributes {
				t.Errorf("%q has %d attributes, for which it has no room", s.Name, len(s.Attributes))
			}
		}
	}
}

// inReplica starts a replica span and gives it as user code finds it.
func (r *recorder) inReplica(t *testing.T) (context.Context, sdktrace.ReadWriteSpan, ReplicaSpan) {
	t.Helper()
	ctx, ours := r.StartReplica(t.Context(), ReplicaStart{
		Request: &Request{ID: "r1", App: "a", Deployment: "D", Route: "/"}, Protocol: HTTP, Method: "GET",
	})
	found, is := trace.SpanFromContext(ctx).(sdktrace.ReadWriteSpan)
	if !is {
		t.Fatal("what user code finds is no ReadWriteSpan")
	}
	return ctx, found, ours
}

// What user code sets on the replica span goes over ours, as on any span.
func TestAttributesOfUserCode(t *testing.T) {
	r := newRecorder(t)
	_, found, ours := r.inReplica(t)
	found.SetAttributes(attribute.String("route", "/mine"), attribute.Int("answer", 41))
	found.SetAttributes(attribute.Int("answer", 42))
	found.AddEvent("seen")
	before := asMap(found.Attributes())
	if before["route"] != "/mine" || before["answer"] != int64(42) || before["deployment"] != "D" {
		t.Errorf("the span shows %v", before)
	}
	ours.End(ReplicaResult{StatusCode: 200})
	found.SetAttributes(attribute.Int("answer", 43))
	found.End()
	spans := r.spans()
	if len(spans) != 1 {
		t.Fatalf("%d spans, want 1", len(spans))
	}
	want := before
	want["http.method"], want["http.route"], want["http.status_code"] = "GET", "/", int64(200)
	if diff := cmp.Diff(want, spans[0].Attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if len(spans[0].Events) != 1 || spans[0].DroppedFields != 0 {
		t.Errorf("%d events, %d dropped, want 1 and none", len(spans[0].Events), spans[0].DroppedFields)
	}
}

func TestAttributesOfUserCodeAreLimited(t *testing.T) {
	r := newRecorder(t)
	_, found, ours := r.inReplica(t)
	for i := range 120 {
		found.SetAttributes(attribute.Int(fmt.Sprintf("key%d", i), i))
	}
	ours.End(ReplicaResult{StatusCode: 200})
	s := r.spans()[0]
	if len(s.Attributes) != sdktrace.DefaultAttributeCountLimit || s.DroppedFields != 120+12-128 {
		t.Errorf("%d attributes and %d dropped, want 128 and %d", len(s.Attributes), s.DroppedFields, 120+12-128)
	}
	if s.Attributes["deployment"] != "D" || s.Attributes["http.status_code"] != int64(200) {
		t.Errorf("ours are not all there: %v", s.Attributes)
	}
}

// Instrumentation takes its tracer from the current span.
func TestTracerOfTheReplicaSpan(t *testing.T) {
	r := newRecorder(t)
	ctx, found, ours := r.inReplica(t)
	_, child := found.TracerProvider().Tracer("db").Start(ctx, "query")
	child.End()
	ours.End(ReplicaResult{})
	spans := r.spans()
	if len(spans) != 2 || spans[0].Parent != "replica_handle_request D __call__" || spans[0].Attributes["serve.request_id"] != "r1" {
		t.Errorf("spans: %+v", spans)
	}
}

// early is a processor that sets attributes at the start.
type early struct{ sink }

func (early) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	s.SetAttributes(attribute.String("app", "early"), attribute.Bool("early", true))
}

func TestAttributesOfAProcessor(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	p, err := NewProvider(DefaultConfig(), early{}, sdktrace.NewSimpleSpanProcessor(exporter))
	if err != nil {
		t.Fatal(err)
	}
	allFamilies(p)
	for _, s := range exporter.GetSpans() {
		if got := asMap(s.Attributes); got["app"] != "a" || got["early"] != true {
			t.Errorf("%q: app %v and early %v, want a and true", s.Name, got["app"], got["early"])
		}
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestSpanConcurrentSafe(t *testing.T) {
	r := newRecorder(t)
	_, found, ours := r.inReplica(t)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for range 100 {
				found.SetAttributes(attribute.Int("n", i))
				_ = found.Attributes()
				_ = found.DroppedAttributes()
			}
		})
		group.Go(func() { found.End() })
	}
	group.Go(func() { ours.End(ReplicaResult{StatusCode: 200}) })
	group.Wait()
	if n := len(r.spans()); n != 1 {
		t.Errorf("%d spans, want 1", n)
	}
}
