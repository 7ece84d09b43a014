package spans

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
	"github.com/servetrace/servetrace/tracing"
)

// everything is an app of three deployments, reached by HTTP, web sockets and
// gRPC, whose requests pass by all there is: a call by handle, a stream, a batch,
// and a span of the user's in each.
func everything(r **rig) *serving.App {
	own := func(ctx context.Context) { ownSpan(ctx, *r) }
	batcher := batching.New("double", func(ctx context.Context, ins []int) ([]int, error) {
		own(ctx)
		for i := range ins {
			ins[i] *= 2
		}
		return ins, nil
	}, batching.WithMaxBatchSize(1))
	c := serving.NewDeployment("C", noHandler)
	double := serving.AddFunction(c, "double", batcher.Do)
	b := serving.NewDeployment("B", noHandler)
	tokens := serving.AddStream(b, "tokens", func(ctx context.Context, n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			own(ctx)
			for range n {
				out, err := double.Call(ctx, n)
				if !yield(out, err) {
					return
				}
			}
		}
	})
	work := func(ctx context.Context) error {
		own(ctx)
		for _, err := range tokens.Stream(ctx, 2) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	speak := accepted(func(ctx context.Context, c *websocket.Conn) error {
		if _, _, err := c.Read(ctx); err != nil {
			return err
		}
		if err := work(ctx); err != nil {
			return err
		}
		return c.Close(websocket.StatusNormalClosure, "")
	})
	a := serving.NewDeployment("A", serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
		if req.URL.Path == "/ws" {
			return speak(w, req)
		}
		return work(req.Context())
	}))
	pb.RegisterTestServiceServer(a, testService{work: work})
	return serving.NewApp("a", a, serving.WithDeployments(b, c))
}

// ways are how a request can come in; each is sent with the traceparent, or none.
func (r *rig) ways() map[string]func(id, parent string) {
	c, stub := client(r.t, "HTTP/1.1"), r.stub()
	ways := map[string]func(id, parent string){
		"http": func(id, parent string) { checkAnswer(r.t, r.get(c, id, "/", parented(parent)...), answer{Status: 200}) },
		"websocket": func(id, parent string) {
			conn := r.dial(id, parented(parent)...)
			if err := conn.Write(r.t.Context(), websocket.MessageText, []byte("go")); err != nil {
				r.t.Error(err)
			}
			if _, _, err := conn.Read(r.t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
				r.t.Errorf("the socket ended with %v", err)
			}
		},
	}
	for _, kind := range kinds {
		ways["grpc "+kind.name] = func(id, parent string) {
			if err := kind.call(outgoing(r.t, append(parented(parent), "request_id", id)...), stub); err != nil {
				r.t.Errorf("%s: %v", kind.method, err)
			}
		}
	}
	return ways
}

func parented(parent string) []string {
	if parent == "" {
		return nil
	}
	return []string{"traceparent", parent}
}

// ownSpan is user code. Its allocations in OpenTelemetry's SDK do not count.
func ownSpan(ctx context.Context, r *rig) {
	_, span := r.tracing.TracerProvider().Tracer(userScope).Start(ctx, "own")
	span.End()
}

// TestUnsampledChain: an unsampled request makes no span anywhere, whichever way
// it comes, and nothing is allocated except for the proxy's, which does not record.
func TestUnsampledChain(t *testing.T) {
	var r *rig
	r = serve(t, serving.Config{}, everything(&r))
	for name, send := range r.ways() {
		t.Run(name, func(t *testing.T) {
			before := r.spans.count()
			several := func(parent string) {
				for range 10 {
					send("several", parent)
				}
			}
			several(unsampledParent) // values that are made once
			for _, stack := range allocatedForSpans(t, func() { several(unsampledParent) }) {
				if !strings.Contains(stack, "spans.(*Tracer).StartProxy") {
					t.Errorf("for unsampled requests there was an allocation in\n%s", stack)
				}
			}
			if n := r.spans.count() - before; n != 0 {
				t.Errorf("unsampled requests have %d spans: %s", n, r.spans.names())
			}
			if found := allocatedForSpans(t, func() { several(sampledParent) }); len(found) == 0 {
				t.Error("for sampled requests no allocation was found either: the test sees nothing")
			}
		})
	}
}

// TestUnsampledRoot: if there is no decision yet, the proxy asks the sampler once, and
// the decision holds for the whole chain.
func TestUnsampledRoot(t *testing.T) {
	var r *rig
	none := func(t testing.TB, spans *recorder) *tracing.Provider {
		t.Helper()
		return providerOf(t, spans, func(cfg *tracing.Config) { cfg.Ratio = 0 })
	}
	r = serveWith(t, none, serving.Config{}, everything(&r))
	for name, send := range r.ways() {
		send(name, "")
		for _, stack := range allocatedForSpans(t, func() { send(name, "") }) {
			if !strings.Contains(stack, "spans.(*Tracer).StartProxy") {
				t.Errorf("%s: for unsampled requests there was an allocation in\n%s", name, stack)
			}
		}
	}
	r.checkNoSpans()
}

// TestSampledChain: the same requests, sampled, are one connected tree each.
func TestSampledChain(t *testing.T) {
	var r *rig
	r = serve(t, serving.Config{}, everything(&r))
	ways := r.ways()
	// below are the spans that the service makes for each message.
	below := func(a call) []*span {
		b, c := a.nested("B", "tokens"), a.nested("C", "double")
		b.streaming = true
		run := func() *span {
			s := batch(a.id, 1)
			s.Name = "batch_execute C double"
			s.Attributes["deployment"], s.Attributes["resource.name"] = "C", s.Name
			s.Children = []*span{user("own")}
			return c.called(noStatus, s)
		}
		return []*span{user("own"), b.called(noStatus, user("own"), run(), run())}
	}

	ways["http"]("http", sampledParent)
	a := request("http")
	a.deployment = "A"
	r.check("http", a.proxy(200, a.called(200, below(a)...)))

	ways["websocket"]("websocket", sampledParent)
	a = socketRequest("websocket")
	a.deployment = "A"
	r.check("websocket", a.proxy(1000, a.called(noStatus, below(a)...)))

	for _, kind := range kinds {
		id := "grpc-" + kind.name
		ways["grpc "+kind.name](id, sampledParent)
		a = rpc(id, kind.method, kind.streaming)
		a.deployment = "A"
		var all []*span
		for range kind.messages {
			all = append(all, below(a)...)
		}
		slices.SortStableFunc(all, func(a, b *span) int { return cmp.Compare(a.Name, b.Name) })
		r.check(id, a.proxyGRPC("OK", a.called(noStatus, all...)))
	}
}

// allocatedForSpans returns the stacks in which code for spans has allocated memory while
// work ran. It sees every allocation, not a sample.
func allocatedForSpans(t *testing.T, work func()) []string {
	t.Helper()
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	before := allocations(t)
	work()
	var found []string
	for stack, n := range allocations(t) {
		if n > before[stack] && makesSpans(stack) {
			found = append(found, stack)
		}
	}
	return found
}

// makesSpans reports whether a stack is in code that makes spans or their data: the SDK,
// our attributes, and the ids of a task.
func makesSpans(stack string) bool {
	if strings.Contains(stack, "test/spans.ownSpan") {
		return false
	}
	for _, name := range []string{
		"go.opentelemetry.io/otel/sdk/trace.", "go.opentelemetry.io/otel/attribute.",
		"servetrace/tracing.newAttributes", "servetrace/tracing.(*attributes)", "servetrace/tracing.(*Request).fill",
		"servetrace/tracing.recordException",
	} {
		if strings.Contains(stack, name) {
			return true
		}
	}
	return false
}

// allocations counts all allocations up to now by their stacks.
func allocations(t *testing.T) map[string]int64 {
	t.Helper()
	runtime.GC() // the profile is older by one collection
	runtime.GC()
	var records []runtime.MemProfileRecord
	for n, ok := 1000, false; !ok; n *= 2 {
		records = make([]runtime.MemProfileRecord, n)
		n, ok = runtime.MemProfile(records, true)
		if ok {
			records = records[:n]
		}
	}
	counts := map[string]int64{}
	for _, r := range records {
		var names []string
		frames := runtime.CallersFrames(r.Stack())
		for {
			frame, more := frames.Next()
			names = append(names, frame.Function)
			if !more {
				break
			}
		}
		counts[strings.Join(names, "\n")] += r.AllocObjects
	}
	return counts
}
