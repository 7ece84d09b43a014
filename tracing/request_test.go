package tracing

import (
	"strings"
	"sync"
	"testing"

	"github.com/servetrace/servetrace/semconv"
)

// Actor and job id are suffixes of the task id, in Ray's lengths.
func TestIdentityFormats(t *testing.T) {
	r := newRecorder(t, func(c *Config) { c.JobID = "0a1b2c3d" })
	proxy, replica, other := r.NewProxy(), r.NewReplica("app1", "D"), r.NewReplica("app1", "D")
	for name, c := range map[string]*Component{"proxy": proxy, "replica": replica} {
		actor, task := c.ActorID(), c.NewTask()
		if !isHex(actor, 16) || !strings.HasSuffix(actor, "0a1b2c3d") {
			t.Errorf("%s: actor id %q is not 16 bytes that end in the job id", name, actor)
		}
		if !isHex(task, 24) || !strings.HasSuffix(task, actor) {
			t.Errorf("%s: task id %q is not 24 bytes that end in the actor id", name, task)
		}
		if again := c.NewTask(); again == task {
			t.Errorf("%s: two tasks are both %s", name, task)
		}
	}
	if proxy.UniqueID() != "" || proxy.App() != "" || proxy.Deployment() != "" {
		t.Errorf("a proxy has a replica's identity: %+v", proxy)
	}
	if len(replica.UniqueID()) != 8 || replica.UniqueID() == other.UniqueID() {
		t.Errorf("replica ids %q and %q are not two of eight characters", replica.UniqueID(), other.UniqueID())
	}
	if replica.App() != "app1" || replica.Deployment() != "D" {
		t.Errorf("replica of %q, %q; want app1, D", replica.App(), replica.Deployment())
	}
	if a, b := DefaultConfig().JobID, DefaultConfig().JobID; a == b || !isHex(a, 4) {
		t.Errorf("job ids %q and %q are not two draws of 4 bytes", a, b)
	}
}

// All spans of one call carry the same task id, and those of the next another.
func TestTaskIsOneCall(t *testing.T) {
	r := newRecorder(t)
	c := r.NewReplica("default", "D")
	var tasks []any
	for range 2 {
		req := &Request{ID: "r1", Component: c}
		ctx, span := r.StartReplica(t.Context(), ReplicaStart{Request: req})
		_, user := r.TracerProvider().Tracer("user").Start(ctx, "user")
		user.End()
		span.End(ReplicaResult{})
		stubs := r.exporter.GetSpans()
		r.exporter.Reset()
		for _, s := range stubs {
			for _, kv := range s.Attributes {
				if kv.Key == semconv.ServeTaskID {
					tasks = append(tasks, kv.Value.AsString())
				}
			}
		}
		if len(tasks)%2 != 0 || tasks[len(tasks)-1] != req.TaskID() {
			t.Fatalf("task ids %v, want %s on both spans", tasks, req.TaskID())
		}
	}
	if len(tasks) != 4 || tasks[0] != tasks[1] || tasks[2] != tasks[3] || tasks[0] == tasks[2] {
		t.Errorf("task ids %v, want two pairs", tasks)
	}
}

func TestRequestConcurrentSafe(t *testing.T) {
	r := newRecorder(t)
	ctx, span := r.StartReplica(t.Context(), ReplicaStart{Request: &Request{ID: "r1", Component: r.NewReplica("default", "D")}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, s := r.TracerProvider().Tracer("user").Start(ctx, "user")
			s.End()
		})
	}
	wg.Wait()
	span.End(ReplicaResult{})
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
	r, stable := newRecorder(t), newRecorder(t, func(c *Config) { c.Semconv = SemconvStable })
	c := r.NewReplica("default", "D")
	outer := &Request{ID: "r1", Component: r.NewProxy()}
	ctx, proxy := r.StartProxy(t.Context(), ProxyStart{Request: outer})
	inner := &Request{Component: c}
	inner.Continue(outer)
	_, replica := r.StartReplica(ctx, ReplicaStart{Request: inner})
	if inner.ID != "r1" || inner.TaskID() == outer.TaskID() || !strings.HasSuffix(inner.TaskID(), c.ActorID()) {
		t.Errorf("id %s, tasks %s and %s, want r1 and two", inner.ID, inner.TaskID(), outer.TaskID())
	}
	replica.End(ReplicaResult{})
	proxy.End(ProxyResult{StatusCode: 200})
	_, replica = stable.StartReplica(t.Context(), ReplicaStart{Request: &Request{ID: "r2", Component: c}})
	replica.End(ReplicaResult{})
	for key, want := range map[string]*recorder{"request_id": r, "serve.deployment": stable} {
		for _, s := range want.spans() {
			if _, has := s.Attributes[key]; !has || s.Attributes["serve.task_id"] != "TASK" {
				t.Errorf("%q has no %s, or no task: %v", s.Name, key, s.Attributes)
			}
		}
	}
}
