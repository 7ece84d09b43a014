package batching

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/tracing"
)

// traced gives the rig a provider that samples everything, and what it records.
func (r *rig) traced(t testing.TB) *tracetest.SpanRecorder {
	t.Helper()
	cfg, err := tracing.ConfigFromEnv(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	recorder := tracetest.NewSpanRecorder()
	provider, err := tracing.NewProvider(cfg, recorder)
	if err != nil {
		t.Fatal(err)
	}
	r.replica.Tracing = spans.New(provider)
	t.Cleanup(func() { _ = r.replica.Tracing.Provider.Shutdown(context.WithoutCancel(t.Context())) })
	return recorder
}

// replicaCall starts a call with the request id and gives its context, and what
// ends its span. An unsampled one has a caller that did not sample it.
func (r *rig) replicaCall(ctx context.Context, id string, sampled bool) (callCtx context.Context, end func()) {
	if !sampled {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true,
		}))
	}
	ctx, span := r.replica.Tracing.StartReplica(ctx, spans.ReplicaStart{
		Request: &identity.Request{
			ID: id, App: "a", Deployment: "D", Component: r.replica.Tracing.NewReplica("a", "D"),
		},
	})
	return scope.ContextWithCall(ctx, scope.NewCall(r.replica)), func() {
		span.EndReplica(spans.ReplicaResult{})
	}
}

// tell writes down a batch's span or one of the user in it: whose child it is,
// by request id, its links, and how it ended.
func tell(s sdktrace.ReadOnlySpan, all []sdktrace.ReadOnlySpan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s", s.Name(), requestOf(s.Parent(), all))
	for _, l := range s.Links() {
		fmt.Fprintf(&b, ", link %s", requestOf(l.SpanContext, all))
	}
	if s.Status().Code == codes.Error {
		fmt.Fprintf(&b, ", ERROR %s, %d events", s.Status().Description, len(s.Events()))
	}
	return b.String()
}

// requestOf names a replica span by its request, any other by its name.
func requestOf(sc trace.SpanContext, all []sdktrace.ReadOnlySpan) string {
	for _, s := range all {
		if s.SpanContext().SpanID() != sc.SpanID() {
			continue
		}
		if s.SpanContext().TraceID() != sc.TraceID() {
			return "another trace"
		}
		if !strings.HasPrefix(s.Name(), "replica_handle_request") {
			return s.Name()
		}
		return attributes(s)["request_id"]
	}
	return "nothing"
}

func attributes(s sdktrace.ReadOnlySpan) map[string]string {
	m := map[string]string{}
	for _, kv := range s.Attributes() {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

// TestTracesOfBatches sends requests in order, in batches of three of which two
// run at a time, and looks at the span of each batch and the user's in it. An
// upper-case request is sampled.
func TestTracesOfBatches(t *testing.T) {
	for _, tc := range []struct {
		name     string
		requests string
		fail     error
		want     []string
	}{
		{
			name:     "six sampled: two batches, in the trace of the first of each, with links to the others",
			requests: "ABCDEF",
			want: []string{
				"batch_execute D f of A, link B, link C", "user of batch_execute D f",
				"batch_execute D f of D, link E, link F", "user of batch_execute D f",
			},
		},
		{
			name:     "the first is not sampled",
			requests: "aBC",
			want:     []string{"batch_execute D f of B, link C", "user of batch_execute D f"},
		},
		{
			name:     "one is",
			requests: "abC",
			want:     []string{"batch_execute D f of C", "user of batch_execute D f"},
		},
		{
			name:     "none is",
			requests: "abc",
			want:     []string{},
		},
		{
			name:     "the function fails",
			requests: "ABC",
			fail:     errors.New("no luck"),
			want:     []string{"batch_execute D f of A, link B, link C, ERROR no luck, 1 events", "user of batch_execute D f"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				recorder := r.traced(t)
				b := New("f", func(ctx context.Context, ins []string) ([]string, error) {
					_, span := r.replica.Tracing.Provider.TracerProvider().Tracer("user").Start(ctx, "user")
					defer span.End()
					time.Sleep(time.Second)
					return ins, tc.fail
				}, WithMaxBatchSize(3), WithWaitTimeout(time.Second), WithMaxConcurrentBatches(2))
				var answers []<-chan answer
				for _, id := range strings.Split(tc.requests, "") {
					ctx, end := r.replicaCall(t.Context(), id, id == strings.ToUpper(id))
					answers = append(answers, ask(func(ctx context.Context, in string) (string, error) {
						defer end()
						return b.Do(ctx, in)
					}, ctx, id))
					synctest.Wait()
				}
				for _, ch := range answers {
					<-ch
				}
				all := recorder.Ended()
				got := []string{}
				for _, s := range recorder.Started() { // the order of the batches
					if !strings.HasPrefix(s.Name(), "replica_handle_request") {
						got = append(got, tell(s, all))
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("spans (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestAttributesOfABatch looks at what the batch's span says, and that it lies
// within the replica's spans.
func TestAttributesOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		recorder := r.traced(t)
		b := New("f", func(_ context.Context, ins []string) ([]string, error) {
			time.Sleep(time.Second)
			return ins, nil
		}, WithMaxBatchSize(2))
		var answers []<-chan answer
		for _, id := range []string{"A", "B"} {
			ctx, end := r.replicaCall(t.Context(), id, true)
			answers = append(answers, ask(func(ctx context.Context, in string) (string, error) {
				defer end()
				return b.Do(ctx, in)
			}, ctx, id))
			synctest.Wait()
		}
		<-answers[0]
		<-answers[1]
		for _, s := range recorder.Ended() {
			if !strings.HasPrefix(s.Name(), "batch_execute") {
				if end := s.EndTime().Sub(s.StartTime()); end != time.Second {
					t.Errorf("span %q took %v", s.Name(), end)
				}
				continue
			}
			got := attributes(s)
			for _, key := range slices.Collect(maps.Keys(got)) { // those that are drawn
				if key == "replica_id" || key == "serve.replica_id" || key == "serve.task_id" {
					delete(got, key)
				}
			}
			want := map[string]string{
				"request_id": "A", "deployment": "D", "app": "a", "multiplexed_model_id": "",
				"resource.name": "batch_execute D f", "serve.batch_size": "2", "serve.request_id": "A",
			}
			if diff := cmp.Diff(want, got); diff != "" || s.SpanKind() != trace.SpanKindInternal {
				t.Errorf("kind %v, attributes (-want +got):\n%s", s.SpanKind(), diff)
			}
		}
	})
}
