package spans

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
	"github.com/servetrace/servetrace/test/servingtest"
)

// batched is an app whose deployment A calls B, which runs requests together: at
// most three, in at most two batches at a time, as upstream's test has it.
type batched struct {
	rig *rig
	app *serving.App
}

func newBatched(wait time.Duration) *batched {
	b := &batched{}
	batcher := batching.New("upper", func(ctx context.Context, ins []string) ([]string, error) {
		_, span := b.rig.tracing.TracerProvider().Tracer(userScope).Start(ctx, "application_span")
		defer span.End()
		outs := make([]string, len(ins))
		for i, in := range ins {
			outs[i] = strings.ToUpper(in)
		}
		return outs, nil
	}, batching.WithMaxBatchSize(3), batching.WithMaxConcurrentBatches(2), batching.WithWaitTimeout(wait))
	back := serving.NewDeployment("B", noHandler, serving.WithMaxOngoingRequests(10))
	upper := serving.AddFunction(back, "", batcher.Do)
	front := serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		out, err := upper.Call(r.Context(), r.URL.Path)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, out)
		return err
	})
	b.app = serving.NewApp("a", serving.NewDeployment("A", front, serving.WithMaxOngoingRequests(10)), serving.WithDeployments(back))
	return b
}

// batch is the span of a batch of B.
func batch(id string, size int, links ...string) *span {
	return &span{Name: "batch_execute B upper", Kind: "internal", Status: "Unset", Links: links, Attributes: attributes{
		"request_id":           id,
		"deployment":           "B",
		"app":                  "a",
		"replica_id":           someReplica,
		"multiplexed_model_id": "",
		"resource.name":        "batch_execute B upper",
		"serve.batch_size":     int64(size),
	}, Children: []*span{user("application_span")}}
}

// TestBatchOfOne: the batch's span is below the replica span of the request.
func TestBatchOfOne(t *testing.T) {
	b := newBatched(0)
	b.rig = serve(t, serving.Config{}, b.app)
	checkAnswer(t, b.rig.get(client(t, "HTTP/1.1"), "one", "/a"), answer{Status: 200, Body: "/A"})
	a := request("one")
	a.deployment, a.path = "A", "/a"
	b.rig.check("one", a.proxy(200, a.called(200, a.nested("B", "__call__").called(noStatus, batch("one", 1)))))
}

// TestBatchSixRequestsTwoBatches is upstream's
// test_batched_span_attached_to_first_request_trace: exactly two user spans, in
// two traces. Ours are linked to the others of their batch, which upstream's are
// not.
func TestBatchSixRequestsTwoBatches(t *testing.T) {
	b := newBatched(patience)
	b.rig = serve(t, serving.Config{}, b.app)
	ids := []string{"r0", "r1", "r2", "r3", "r4", "r5"}
	b.together(ids)

	var firsts []trace.TraceID
	members := map[trace.SpanID]bool{}
	for _, id := range ids {
		spans := b.rig.spans.request(t, id)
		i := slices.IndexFunc(spans, isBatch)
		if i < 0 {
			continue
		}
		run := spans[i]
		firsts = append(firsts, run.SpanContext().TraceID())
		members[run.Parent().SpanID()] = true
		for _, link := range run.Links() {
			members[link.SpanContext.SpanID()] = true
		}
		if size, _ := attributeOf(run, "serve.batch_size"); size.AsInt64() != 3 || len(run.Links()) != 2 {
			t.Errorf("a batch has the size %v and %d links", size.AsInterface(), len(run.Links()))
		}
		if inner := only(t, spans, "application_span"); inner.Parent().SpanID() != run.SpanContext().SpanID() {
			t.Errorf("the user's span has the parent %v, want the batch's", inner.Parent())
		}
	}
	if len(firsts) != 2 || firsts[0] == firsts[1] {
		t.Errorf("batches ran under the traces %v, want two", firsts)
	}
	var replicas []trace.SpanID
	for _, id := range ids {
		replicas = append(replicas, only(t, b.rig.spans.request(t, id), "replica_handle_request B __call__").SpanContext().SpanID())
	}
	for _, id := range replicas {
		if !members[id] {
			t.Errorf("replica span %v is neither parent nor link of a batch", id)
		}
	}
	if len(members) != len(replicas) {
		t.Errorf("parents and links are %d spans, want the %d replica spans of B", len(members), len(replicas))
	}
}

func isBatch(s sdktrace.ReadOnlySpan) bool { return strings.HasPrefix(s.Name(), "batch_execute ") }

// together sends the requests at a time, and waits for all answers.
func (b *batched) together(ids []string, header ...string) {
	b.rig.t.Helper()
	var got []<-chan answer
	for _, id := range ids {
		got = append(got, b.rig.inBackground(client(b.rig.t, "HTTP/1.1"), id, header...))
	}
	for _, answers := range got {
		checkAnswer(b.rig.t, servingtest.Receive(b.rig.t, "an answer", answers), answer{Status: 200, Body: "/"})
	}
}

// TestBatchFirstMemberUnsampled: the batch belongs to the first request that is sampled.
// In Ray Serve, it runs in the context in which its task began.
func TestBatchFirstMemberUnsampled(t *testing.T) {
	b := newBatched(patience)
	b.rig = serve(t, serving.Config{}, b.app)
	first := b.rig.inBackground(client(t, "HTTP/1.1"), "unsampled", "traceparent", unsampledParent)
	b.waiting(1)
	second := b.rig.inBackground(client(t, "HTTP/1.1"), "second")
	b.waiting(2)
	b.together([]string{"third"})
	checkAnswer(t, servingtest.Receive(t, "the first answer", first), answer{Status: 200, Body: "/"})
	checkAnswer(t, servingtest.Receive(t, "the second answer", second), answer{Status: 200, Body: "/"})

	a := request("second")
	a.deployment = "A"
	plain := a.nested("B", "__call__")
	linked := batch("second", 3, "")
	b.rig.check("second", a.proxy(200, a.called(200, plain.called(noStatus, linked))))
	run := b.rig.spans.request(t, "second")[slices.IndexFunc(b.rig.spans.request(t, "second"), isBatch)]
	third := b.rig.spans.request(t, "third")
	want := only(t, third, "replica_handle_request B __call__").SpanContext()
	if got := run.Links()[0].SpanContext; got.SpanID() != want.SpanID() || got.TraceID() != want.TraceID() {
		t.Errorf("the batch is linked to %v, want the third request's replica span %v", got, want)
	}
	a.id, plain.id = "third", "third"
	b.rig.check("third", a.proxy(200, a.called(200, plain.called(noStatus))))
	if lines := b.rig.accessLines(t, "unsampled"); len(lines) != 1 || lines[0]["span_id"] != nil {
		t.Errorf("the access log of the unsampled request: %v", lines)
	}
	const sampled = 5 + 5 + 2 // of two requests, and of the batch
	if n := b.rig.spans.count(); n != sampled {
		t.Errorf("%d spans, want %d: none of the unsampled request", n, sampled)
	}
}

// waiting waits until n requests wait for a batch.
func (b *batched) waiting(n float64) {
	b.rig.t.Helper()
	b.rig.gauge("serve_batch_queue_length", n)
}

// gauge waits until the series of a metric add up to a value.
func (r *rig) gauge(name string, want float64) {
	r.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.server.Collector())
	servingtest.Await(r.t, fmt.Sprintf("%s to be %v", name, want), func() bool {
		families, err := registry.Gather()
		if err != nil {
			r.t.Fatal(err)
		}
		sum := 0.0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == name {
					sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
		return sum == want
	})
}
