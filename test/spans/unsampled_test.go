package spans

import (
	"context"
	"io"
	"iter"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
	"github.com/servetrace/servetrace/tracing"
)

// everything is an app of three deployments whose requests pass by all there is:
// a call by handle, a stream, a batch, and a span of the user's in each.
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
	a := serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
		own(req.Context())
		for _, err := range tokens.Stream(req.Context(), 2) {
			if err != nil {
				return err
			}
			if _, err := io.WriteString(w, "."); err != nil {
				return err
			}
		}
		return nil
	})
	return serving.NewApp("a", serving.NewDeployment("A", a), serving.WithDeployments(b, c))
}

// ownSpan is user code. What it has OpenTelemetry's SDK do is its own affair.
func ownSpan(ctx context.Context, r *rig) {
	_, span := r.tracing.TracerProvider().Tracer(userScope).Start(ctx, "own")
	span.End()
}

// TestUnsampledChain: an unsampled request makes no span anywhere, and nothing is
// allocated for one; its context is carried on, unsampled.
func TestUnsampledChain(t *testing.T) {
	var r *rig
	r = serve(t, serving.Config{}, everything(&r))
	c := client(t, "HTTP/1.1")
	send := func(parent string) {
		for range 20 {
			checkAnswer(t, r.get(c, "r", "/", "traceparent", parent), answer{Status: 200, Body: ".."})
		}
	}
	send(unsampledParent) // what is made once
	if found := allocatedForSpans(t, func() { send(unsampledParent) }); len(found) != 0 {
		t.Errorf("for unsampled requests there were allocations in\n%s", strings.Join(found, "\n\n"))
	}
	if n := r.spans.count(); n != 0 {
		t.Errorf("unsampled requests have %d spans: %s", n, r.spans.names())
	}
	if found := allocatedForSpans(t, func() { send(sampledParent) }); len(found) == 0 {
		t.Error("for sampled requests no allocation was found either: the test sees nothing")
	}
}

// TestUnsampledRoot: where nobody has decided before, the proxy asks the sampler,
// once, and its decision holds for the whole chain.
func TestUnsampledRoot(t *testing.T) {
	var r *rig
	none := func(t testing.TB, spans *recorder) *tracing.Provider {
		t.Helper()
		return providerOf(t, spans, func(cfg *tracing.Config) { cfg.Ratio = 0 })
	}
	r = serveWith(t, none, serving.Config{}, everything(&r))
	c := client(t, "HTTP/1.1")
	send := func() {
		for range 20 {
			checkAnswer(t, r.get(c, "r", "/"), answer{Status: 200, Body: ".."})
		}
	}
	send()
	for _, stack := range allocatedForSpans(t, send) {
		if !strings.Contains(stack, "tracing.(*Provider).StartProxy") {
			t.Errorf("for unsampled requests there was an allocation in\n%s", stack)
		}
	}
	r.checkNoSpans()
}

// TestSampledChain: the same request, sampled, is one connected tree.
func TestSampledChain(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		var r *rig
		r = serve(t, serving.Config{}, everything(&r))
		checkAnswer(t, r.get(c, "r", "/", "traceparent", sampledParent), answer{Status: 200, Body: ".."})
		a := request("r")
		a.deployment = "A"
		b, last := a.nested("B", "tokens"), a.nested("C", "double")
		b.streaming = true
		run := func() *span {
			s := batch("r", 1)
			s.Name = "batch_execute C double"
			s.Attributes["deployment"], s.Attributes["resource.name"] = "C", s.Name
			s.Children = []*span{user("own")}
			return last.called(noStatus, s)
		}
		r.check("r", a.proxy(200, a.called(200, user("own"), b.called(noStatus, user("own"), run(), run()))))
	})
}

// allocatedForSpans gives the stacks in which what makes spans has allocated
// memory while work ran. It looks at every allocation, not at a sample.
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

// makesSpans tells the code that builds spans and what is on them: the SDK, the
// attributes of ours, and the ids of a task.
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
	runtime.GC() // the profile is that of the collection before last
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
