package spans_test

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/tracing"
)

// allFamilies makes a span of each family and protocol, failed ones too.
func allFamilies(p *spans.Tracer) { allFamiliesOf(p, "r1", "a", "D") }

func allFamiliesOf(p *spans.Tracer, id, app, deployment string) {
	failure := spans.ReplicaResult{StatusCode: 500, Err: fmt.Errorf("boom")}
	for _, protocol := range []spans.Protocol{spans.HTTP, spans.WebSocket, spans.GRPC, spans.Handle} {
		at := func(c *identity.Component) *identity.Request {
			return &identity.Request{ID: id, App: app, Deployment: deployment, Route: "/", ModelID: "m", Component: c}
		}
		ctx := context.Background()
		var proxy spans.Span
		if protocol == spans.Handle {
			ctx = identity.ContextWithRequest(ctx, at(p.NewReplica(app, "Caller")))
		} else {
			ctx, proxy = p.StartProxy(ctx, spans.ProxyStart{
				Request: at(p.NewProxy()), Protocol: protocol, Method: "get", RoutePath: "/", HTTPRequest: asked,
				Metadata: map[string][]string{":authority": {"shop.example:9000"}},
			})
		}
		ctx, router := p.StartRouter(ctx, spans.RouterStart{App: app, Deployment: deployment, Protocol: protocol})
		ctx, replica := p.StartReplica(ctx, spans.ReplicaStart{Request: at(p.NewReplica(app, deployment)), Protocol: protocol, Method: "get"})
		router.EndRouter(spans.RouterResult{Outcome: spans.RouterCanceled, Err: failure.Err})
		inner, load := p.StartModelLoad(ctx, "m")
		load.EndWork(failure.Err)
		_, batch := p.StartBatch([]context.Context{inner}, "f")
		batch.EndWork(failure.Err)
		replica.EndReplica(failure)
		proxy.EndProxy(spans.ProxyResult{StatusCode: 500, GRPCCode: "INTERNAL", Err: failure.Err})
	}
}

// Each attribute of ours has a key of its own.
func TestNoAttributeIsSetTwice(t *testing.T) {
	for _, mode := range []string{tracing.SemconvRay, tracing.SemconvStable, tracing.SemconvDup} {
		r := newRecorder(t, func(c *tracing.Config) { c.Semconv = mode })
		allFamilies(r.Tracer)
		spans := r.exporter.GetSpans()
		if len(spans) != 19 {
			t.Fatalf("%s: %d spans, want 19", mode, len(spans))
		}
		for _, s := range spans {
			if distinct := len(asMap(s.Attributes)); distinct != len(s.Attributes) {
				t.Errorf("%s: %q has %d keys for %d attributes", mode, s.Name, distinct, len(s.Attributes))
			}
		}
	}
}

// starter is a processor that calls on for each span that starts.
type starter struct {
	sink

	on func(context.Context, sdktrace.ReadWriteSpan)
}

func (r starter) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) { r.on(ctx, s) }

// inReplica starts a replica span and gives it as user code finds it.
func (r *recorder) inReplica(t *testing.T) (context.Context, sdktrace.ReadWriteSpan, spans.Span) {
	t.Helper()
	ctx, ours := r.StartReplica(t.Context(), spans.ReplicaStart{
		Request: &identity.Request{ID: "r1", App: "a", Deployment: "D", Route: "/"}, Protocol: spans.HTTP, Method: "GET",
	})
	found, is := trace.SpanFromContext(ctx).(sdktrace.ReadWriteSpan)
	if !is {
		t.Fatal("what user code finds is no ReadWriteSpan")
	}
	return ctx, found, ours
}

// An attribute that user code sets on the replica span replaces ours, as on any span.
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
	ours.EndReplica(spans.ReplicaResult{StatusCode: 200})
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

// Whichever of ours user code sets, it counts, unless that comes at the end.
func TestEachAttributeOfUserCode(t *testing.T) {
	r := newRecorder(t)
	ctx, ours := r.StartReplica(t.Context(), spans.ReplicaStart{
		Request: &identity.Request{ID: "r1", App: "a", Deployment: "D", Route: "/", Component: r.NewReplica("a", "D")}, Protocol: spans.HTTP, Method: "GET",
	})
	found := trace.SpanFromContext(ctx).(sdktrace.ReadWriteSpan)
	want := asMap(found.Attributes())
	for key := range want {
		want[key] = "mine"
		found.SetAttributes(attribute.String(key, "mine"))
	}
	for key, value := range map[string]any{"http.method": "GET", "http.route": "/", "http.status_code": int64(200)} {
		want[key] = value
		found.SetAttributes(attribute.String(key, "mine"))
	}
	ours.EndReplica(spans.ReplicaResult{StatusCode: 200})
	if diff := cmp.Diff(want, r.spans()[0].Attributes); diff != "" || len(want) < 15 {
		t.Errorf("%d attributes (-want +got):\n%s", len(want), diff)
	}
}

func TestAttributesOfUserCodeAreLimited(t *testing.T) {
	r := newRecorder(t)
	_, found, ours := r.inReplica(t)
	for i := range 120 {
		found.SetAttributes(attribute.Int(fmt.Sprintf("key%d", i), i))
	}
	ours.EndReplica(spans.ReplicaResult{StatusCode: 200})
	s := r.spans()[0]
	// Ours are eight at the start, the identity, and three at the end.
	if len(s.Attributes) != sdktrace.DefaultAttributeCountLimit || s.DroppedFields != 120+12-128 {
		t.Errorf("%d attributes and %d dropped, want 128 and %d", len(s.Attributes), s.DroppedFields, 120+12-128)
	}
	if s.Attributes["deployment"] != "D" || s.Attributes["serve.request_id"] != "r1" {
		t.Errorf("ours of the start are not all there: %v", s.Attributes)
	}
}

// Instrumentation takes its tracer from the current span.
func TestTracerOfTheReplicaSpan(t *testing.T) {
	r := newRecorder(t)
	ctx, found, ours := r.inReplica(t)
	_, child := found.TracerProvider().Tracer("db").Start(ctx, "query")
	child.End()
	ours.EndReplica(spans.ReplicaResult{})
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
	provider, err := tracing.NewProvider(tracing.DefaultConfig(), early{}, sdktrace.NewSimpleSpanProcessor(exporter))
	if err != nil {
		t.Fatal(err)
	}
	p := spans.New(provider)
	allFamilies(p)
	for _, s := range exporter.GetSpans() {
		if got := asMap(s.Attributes); got["app"] != "early" || got["early"] != true {
			t.Errorf("%q: app %v and early %v, want early and true", s.Name, got["app"], got["early"])
		}
	}
	if err := p.Provider.Shutdown(t.Context()); err != nil {
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
				found.SetName(fmt.Sprint("name ", i))
				_, _ = found.SpanKind(), found.Resource()
				_ = found.Attributes()
				_ = found.DroppedAttributes()
			}
		})
		group.Go(func() { found.End() })
	}
	group.Go(func() { ours.EndReplica(spans.ReplicaResult{StatusCode: 200}) })
	group.Wait()
	if n := len(r.spans()); n != 1 {
		t.Errorf("%d spans, want 1", n)
	}
}

// A name that user code sets is for one span, and not for similar ones.
func TestNameOfOneSpan(t *testing.T) {
	r := newRecorder(t)
	for i := range 3 {
		_, found, ours := r.inReplica(t)
		if i == 1 {
			found.SetName("odd \xff")
		}
		if i == 2 {
			defer found.SetName("too late")
		}
		ours.EndReplica(spans.ReplicaResult{StatusCode: 200})
	}
	for i, s := range r.spans() {
		want := "replica_handle_request D __call__"
		if i == 1 {
			want = "odd \xff"
		}
		if s.Name != want || s.Attributes["http.route"] != "/" || s.Attributes["deployment"] != "D" {
			t.Errorf("span %d is %q with %v, want %q", i, s.Name, s.Attributes, want)
		}
	}
}

// Instrumentation may begin a new trace in a request that is not sampled.
func TestTracerOfAnUnsampledRequest(t *testing.T) {
	r := newRecorder(t, func(c *tracing.Config) { c.Ratio = 0 })
	ctx, _ := r.StartProxy(t.Context(), spans.ProxyStart{Request: &identity.Request{ID: "r1"}})
	found := trace.SpanFromContext(ctx)
	if found.TracerProvider() != r.TracerProvider() {
		t.Error("spans that are made by the current span's provider do not reach the processors")
	}
	if sc := found.SpanContext(); !sc.IsValid() || sc.IsSampled() || found.IsRecording() {
		t.Errorf("the current span is %+v, want one that is not sampled", sc)
	}
}

// The last value counts: at the end, it is ours.
func TestAttributesOfTheEnd(t *testing.T) {
	r := newRecorder(t)
	_, found, ours := r.inReplica(t)
	found.SetAttributes(attribute.String("http.route", "/mine"), attribute.Int("http.status_code", 418))
	ours.EndReplica(spans.ReplicaResult{StatusCode: 200})
	got := r.spans()[0].Attributes
	if got["http.route"] != "/" || got["http.status_code"] != int64(200) || got["http.method"] != "GET" {
		t.Errorf("the span ends with %v", got)
	}
}

func TestChildSpanCount(t *testing.T) {
	r := newRecorder(t)
	ctx, found, ours := r.inReplica(t)
	for range 2 {
		_, child := r.TracerProvider().Tracer("user").Start(ctx, "child")
		child.End()
	}
	_, router := r.StartRouter(ctx, spans.RouterStart{})
	router.EndRouter(spans.RouterResult{})
	ours.EndReplica(spans.ReplicaResult{})
	_, late := r.TracerProvider().Tracer("user").Start(ctx, "late")
	late.End()
	if got := found.ChildSpanCount(); got != 3 {
		t.Errorf("%d children, want 3", got)
	}
}

// A span that a processor ends in OnStart has ended, and stays as its OnEnd saw it.
func TestSpanThatAProcessorEnds(t *testing.T) {
	var over sdktrace.ReadWriteSpan
	provider, err := tracing.NewProvider(tracing.DefaultConfig(), starter{on: func(_ context.Context, s sdktrace.ReadWriteSpan) { over = s; s.End() }})
	if err != nil {
		t.Fatal(err)
	}
	p := spans.New(provider)
	_, ours := p.StartReplica(t.Context(), spans.ReplicaStart{Request: &identity.Request{ID: "r1", Deployment: "D"}})
	ours.EndReplica(spans.ReplicaResult{StatusCode: 200})
	if got := asMap(over.Attributes()); over.Name() != "replica_handle_request D __call__" || got["http.status_code"] != nil {
		t.Errorf("a span that had ended became %q with %v", over.Name(), got)
	}
}

// counter is a processor that counts its calls.
type counter struct {
	sink
	started, ended *int
}

func (c counter) OnStart(context.Context, sdktrace.ReadWriteSpan) { *c.started++ }
func (c counter) OnEnd(sdktrace.ReadOnlySpan)                     { *c.ended++ }

// A processor that has been shut down gets no calls, as with the SDK: it may have closed
// its resources.
func TestSpansAfterShutdown(t *testing.T) {
	var started, ended int
	provider, err := tracing.NewProvider(tracing.DefaultConfig(), counter{started: &started, ended: &ended})
	if err != nil {
		t.Fatal(err)
	}
	p := spans.New(provider)
	ctx, before := p.StartModelLoad(t.Context(), "m")
	_, user := p.Provider.TracerProvider().Tracer("user").Start(ctx, "user")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Provider.Shutdown(over); err != nil {
		t.Fatal(err)
	}
	_, after := p.StartModelLoad(t.Context(), "m")
	after.EndWork(nil)
	user.End()
	before.EndWork(nil)
	if started != 2 || ended != 0 {
		t.Errorf("told of %d starts and %d ends, want 2 and none", started, ended)
	}
}

// keeper is a processor that keeps the spans.
type keeper struct {
	sink
	kept *[]sdktrace.ReadOnlySpan
}

func (k keeper) OnEnd(s sdktrace.ReadOnlySpan) { *k.kept = append(*k.kept, s) }

// The estimate of the host for our spans is right.
func TestHeapOfSpans(t *testing.T) {
	const n = 2000
	inUse := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools let go at the second
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for _, mode := range []string{tracing.SemconvRay, tracing.SemconvStable, tracing.SemconvDup} {
		for _, others := range []int{0, 1, 20} {
			cfg := tracing.DefaultConfig()
			cfg.Semconv = mode
			kept := make([]sdktrace.ReadOnlySpan, 0, n)
			provider, err := tracing.NewProvider(cfg, keeper{kept: &kept})
			if err != nil {
				t.Fatal(err)
			}
			p := spans.New(provider)
			replica, before := p.NewReplica("a", "D"), inUse()
			for i := range n {
				r := &identity.Request{ID: fmt.Sprintf("%036d", i), App: "a", Deployment: "D", Route: "/", Component: replica}
				ctx, ours := p.StartReplica(t.Context(), spans.ReplicaStart{Request: r, Protocol: spans.HTTP, Method: "GET"})
				for k := range others {
					trace.SpanFromContext(ctx).SetAttributes(attribute.Int(fmt.Sprintf("key%02d", k), i))
				}
				ours.EndReplica(spans.ReplicaResult{StatusCode: 200})
			}
			held, estimate := inUse()-before, 0
			for _, s := range kept {
				g, _ := sdkspan.GistOf(s)
				estimate += g.Heap
			}
			if ratio := float64(estimate) / float64(held); ratio < 0.5 || ratio > 3 {
				t.Errorf("%s, %d attributes of others: estimate %d bytes a span, measured %d: ratio %.2f, want 0.5 to 3",
					mode, others, estimate/n, held/n, ratio)
			}
		}
	}
}

// The context carries the SDK's span itself, and a processor gets the SDK's own snapshot.
func TestSpansAreTheSDKs(t *testing.T) {
	kept := []sdktrace.ReadOnlySpan{}
	started := 0
	provider, err := tracing.NewProvider(tracing.DefaultConfig(), keeper{kept: &kept}, starter{on: func(_ context.Context, s sdktrace.ReadWriteSpan) {
		started++
		if got := reflect.TypeOf(s).Elem().PkgPath(); got != reflect.TypeFor[sdktrace.Event]().PkgPath() {
			t.Errorf("%q is a %T", s.Name(), s)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := spans.New(provider)
	allFamilies(p)
	if started != 19 || len(kept) != started {
		t.Errorf("%d spans started and %d ended, want 19", started, len(kept))
	}
	for _, s := range kept {
		if got := reflect.TypeOf(s).Elem().PkgPath(); got != reflect.TypeFor[sdktrace.Event]().PkgPath() {
			t.Errorf("%q ended as a %T", s.Name(), s)
		}
	}
	ctx, _ := p.StartReplica(t.Context(), spans.ReplicaStart{Request: &identity.Request{ID: "r1"}})
	if got := reflect.TypeOf(trace.SpanFromContext(ctx)).Elem().PkgPath(); got != reflect.TypeFor[sdktrace.Event]().PkgPath() {
		t.Errorf("user code finds a %T", trace.SpanFromContext(ctx))
	}
}

// A processor knows at a span's start its name, its attributes, its links and the
// request's identity.
func TestKnownAtTheStart(t *testing.T) {
	var names []string
	links := 0
	provider, err := tracing.NewProvider(tracing.DefaultConfig(), starter{on: func(_ context.Context, s sdktrace.ReadWriteSpan) {
		names = append(names, s.Name())
		links += len(s.Links())
		got := asMap(s.Attributes())
		if got["deployment"] != "D" || got["serve.request_id"] != "r1" || got["serve.task_id"] != "TASK" {
			t.Errorf("%q starts with %v", s.Name(), got)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := spans.New(provider)
	at := func(c *identity.Component) *identity.Request {
		return &identity.Request{ID: "r1", App: "a", Deployment: "D", Route: "/", Component: c}
	}
	var members []context.Context
	for range 2 {
		ctx, _ := p.StartProxy(t.Context(), spans.ProxyStart{Request: at(p.NewProxy()), Method: "GET"})
		ctx, _ = p.StartRouter(ctx, spans.RouterStart{App: "a", Deployment: "D"})
		ctx, _ = p.StartReplica(ctx, spans.ReplicaStart{Request: at(p.NewReplica("a", "D")), Method: "GET"})
		members = append(members, ctx)
	}
	p.StartBatch(members, "f")
	request := []string{"proxy_http_request D GET /", "route_to_replica D __call__", "replica_handle_request D __call__"}
	want := append(append(append([]string{}, request...), request...), "batch_execute D f")
	if diff := cmp.Diff(want, names); diff != "" || links != 1 {
		t.Errorf("%d links, want 1; names (-want +got):\n%s", links, diff)
	}
}
