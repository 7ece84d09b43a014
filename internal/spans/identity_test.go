package spans_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/tracing"
)

// All spans of one call have the same task id, and the spans of the next call another.
func TestTaskIsOneCall(t *testing.T) {
	r := newRecorder(t)
	c := r.NewReplica("default", "D")
	var tasks []any
	for range 2 {
		req := &identity.Request{ID: "r1", Component: c}
		ctx, span := r.StartReplica(t.Context(), spans.ReplicaStart{Request: req})
		_, user := r.TracerProvider().Tracer("user").Start(ctx, "user")
		user.End()
		span.EndReplica(spans.ReplicaResult{})
		stubs := r.exporter.GetSpans()
		r.exporter.Reset()
		for _, s := range stubs {
			for _, kv := range s.Attributes {
				if kv.Key == semconv.ServeTaskID {
					tasks = append(tasks, kv.Value.AsString())
				}
			}
		}
		if len(tasks)%2 != 0 || tasks[len(tasks)-1] != taskOf(req) {
			t.Fatalf("task ids %v, want %s on both spans", tasks, taskOf(req))
		}
	}
	if len(tasks) != 4 || tasks[0] != tasks[1] || tasks[2] != tasks[3] || tasks[0] == tasks[2] {
		t.Errorf("task ids %v, want two pairs", tasks)
	}
}

func TestRequestConcurrentSafe(t *testing.T) {
	r := newRecorder(t)
	ctx, span := r.StartReplica(t.Context(), spans.ReplicaStart{Request: &identity.Request{ID: "r1", Component: r.NewReplica("default", "D")}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, s := r.TracerProvider().Tracer("user").Start(ctx, "user")
			s.End()
		})
	}
	wg.Wait()
	span.EndReplica(spans.ReplicaResult{})
	got := r.spans()
	if len(got) != 9 {
		t.Fatalf("%d spans, want 9", len(got))
	}
	for _, s := range got {
		if s.Attributes["serve.request_id"] != "r1" || s.Attributes["serve.task_id"] != "TASK" {
			t.Errorf("span %q is stamped %v", s.Name, s.Attributes)
		}
	}
}

// All components that handle a request say the same id, each with a task of its own;
// another provider's names are another's.
func TestIdentityOfEachComponent(t *testing.T) {
	r, stable := newRecorder(t), newRecorder(t, func(c *tracing.Config) { c.Semconv = tracing.SemconvStable })
	c := r.NewReplica("default", "D")
	outer := &identity.Request{ID: "r1", Component: r.NewProxy()}
	ctx, proxy := r.StartProxy(t.Context(), spans.ProxyStart{Request: outer})
	inner := &identity.Request{Component: c}
	inner.Continue(outer)
	_, replica := r.StartReplica(ctx, spans.ReplicaStart{Request: inner})
	if inner.ID != "r1" || taskOf(inner) == taskOf(outer) || !strings.HasSuffix(taskOf(inner), c.ActorID()) {
		t.Errorf("id %s, tasks %s and %s, want r1 and two", inner.ID, taskOf(inner), taskOf(outer))
	}
	replica.EndReplica(spans.ReplicaResult{})
	proxy.EndProxy(spans.ProxyResult{StatusCode: 200})
	_, replica = stable.StartReplica(t.Context(), spans.ReplicaStart{Request: &identity.Request{ID: "r2", Component: c}})
	replica.EndReplica(spans.ReplicaResult{})
	for key, want := range map[string]*recorder{"request_id": r, "serve.deployment": stable} {
		for _, s := range want.spans() {
			if _, has := s.Attributes[key]; !has || s.Attributes["serve.task_id"] != "TASK" {
				t.Errorf("%q has no %s, or no task: %v", s.Name, key, s.Attributes)
			}
		}
	}
}

// taskOf returns the task id of a request; empty for none.
func taskOf(r *identity.Request) string {
	for _, kv := range r.Stamp() {
		if kv.Key == semconv.ServeTaskID {
			return kv.Value.AsString()
		}
	}
	return ""
}
