package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// load makes calls until stop, by n callers, and keeps their results.
type load struct {
	t       testing.TB
	call    func(ctx context.Context, id string) error
	callers sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc

	mu     sync.Mutex
	done   map[string]error // by id
	served chan struct{}    // has a value for each call that ended, as far as there is room
}

func startLoad(t testing.TB, n int, call func(ctx context.Context, id string) error) *load {
	t.Helper()
	l := &load{t: t, call: call, done: map[string]error{}, served: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(t.Context())
	for i := range n {
		l.callers.Go(func() {
			for k := 0; l.ctx.Err() == nil; k++ {
				id := fmt.Sprintf("%d.%d", i, k)
				err := l.call(context.Background(), id) // no call is cut by the end of the load
				l.mu.Lock()
				l.done[id] = err
				l.mu.Unlock()
				select {
				case l.served <- struct{}{}:
				default:
				}
			}
		})
	}
	return l
}

// more waits until n more calls have succeeded.
func (l *load) more(n int) {
	l.t.Helper()
	before, _ := l.counts()
	late := time.After(servingtest.Patience)
	for {
		if now, _ := l.counts(); now-before >= n {
			return
		}
		select {
		case <-l.served:
		case <-late:
			now, failed := l.counts()
			l.t.Fatalf("%d of %d more calls succeed; failed: %v", now-before, n, failed)
		}
	}
}

func (l *load) counts() (ok int, failed map[string]error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failed = map[string]error{}
	for id, err := range l.done {
		if err == nil {
			ok++
		} else {
			failed[id] = err
		}
	}
	return ok, failed
}

// end stops the load and returns how many calls succeeded, and the errors of the others.
func (l *load) end() (ok int, failed map[string]error) {
	l.cancel()
	l.callers.Wait()
	return l.counts()
}

// ran returns how often each call ran, in all processes.
func ran(ps ...*process) map[string]int {
	times := map[string]int{}
	for _, p := range ps {
		list, _ := p.all("ran")
		for _, e := range list {
			times[e.ID]++
		}
	}
	return times
}

// checkRuns stops the processes, and checks that no call ran twice, and that each
// successful call ran.
func checkRuns(t *testing.T, l *load, ps ...*process) {
	t.Helper()
	for _, p := range ps {
		p.stop()
	}
	times := ran(ps...)
	for id, n := range times {
		if n > 1 {
			t.Errorf("call %s ran %d times", id, n)
		}
	}
	for id, err := range l.done {
		if err == nil && times[id] == 0 {
			t.Errorf("call %s succeeded and ran nowhere", id)
		}
	}
}

// TestOneTraceOverThreeProcesses: the spans of three processes are one trace, with the
// parents of a trace in one process.
func TestOneTraceOverThreeProcesses(t *testing.T) {
	ranker := start(t, "SERVE_DEPLOYMENTS=Ranker", "SERVE_CALL_ADDR=127.0.0.1:0")
	model := start(t, "SERVE_DEPLOYMENTS=Model", "SERVE_CALL_ADDR=127.0.0.1:0", "SERVE_REMOTE=Ranker=static:///"+ranker.ready.Calls)
	ingress := start(t, "SERVE_DEPLOYMENTS=Ingress", "SERVE_REMOTE=Model=static:///"+model.ready.Calls)
	if body := get(t, ingress, "rank7"); body != "ranked rank7" {
		t.Fatalf("answer %q", body)
	}
	parent := event{Span: strings.Repeat("0", 16)}
	for _, want := range []struct {
		p    *process
		name string
	}{
		{ingress, "proxy_http_request Ingress GET /"},
		{ingress, "route_to_replica Ingress __call__"},
		{ingress, "replica_handle_request Ingress __call__"},
		{ingress, "route_to_replica Model __call__"},
		{model, "replica_handle_request Model __call__"},
		{model, "route_to_replica Ranker rank"},
		{ranker, "replica_handle_request Ranker rank"},
	} {
		got := want.p.await("span", want.name)
		if got.Parent != parent.Span || parent.Trace != "" && got.Trace != parent.Trace {
			t.Errorf("%s is not the child of %s: %+v", want.name, parent.ID, got)
		}
		parent = got
	}
	spans := 0
	for _, p := range []*process{ingress, model, ranker} {
		p.stop()
		list, _ := p.all("span")
		spans += len(list)
	}
	if spans != 7 {
		t.Errorf("%d spans, want 7", spans)
	}
}

// get returns the answer of a process to a request.
func get(t *testing.T, p *process, id string) string {
	t.Helper()
	resp, err := http.Get("http://" + p.ready.HTTP + "/?id=" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestKill9 kills one of two processes under load: only calls that it had accepted fail,
// none runs twice, and its successor takes calls.
func TestKill9(t *testing.T) {
	a, b := callee(t, "127.0.0.1:0"), callee(t, "127.0.0.1:0")
	_, h := caller(t, addrs(a, b))
	l := startLoad(t, 16, func(ctx context.Context, id string) error {
		_, err := h.model.Call(ctx, job{ID: id})
		return err
	})
	l.more(200)
	a.kill()
	l.more(200)
	c := callee(t, a.ready.Calls)
	c.await("ran", "")
	l.more(200)
	_, failed := l.end()
	for id, err := range failed {
		if !errors.Is(err, serving.ErrReplicaLost) {
			t.Errorf("call %s: %v", id, err)
		}
	}
	if len(failed) > 5 { // what one replica runs at a time
		t.Errorf("%d calls failed: %v", len(failed), failed)
	}
	checkRuns(t, l, a, b, c)
}

// TestKill9OfIdempotentCalls: no call fails.
func TestKill9OfIdempotentCalls(t *testing.T) {
	a, b := callee(t, "127.0.0.1:0"), callee(t, "127.0.0.1:0")
	_, h := caller(t, addrs(a, b))
	idempotent := h.model.Idempotent()
	l := startLoad(t, 16, func(ctx context.Context, id string) error {
		_, err := idempotent.Call(ctx, job{ID: id})
		return err
	})
	l.more(200)
	a.kill()
	l.more(200)
	if _, failed := l.end(); len(failed) > 0 {
		t.Errorf("failed: %v", failed)
	}
}

// TestFrozenProcess freezes one of two processes under load: the calls go to the other, and
// when it runs again, none of them runs twice, and none has failed.
func TestFrozenProcess(t *testing.T) {
	a, b := callee(t, "127.0.0.1:0"), callee(t, "127.0.0.1:0")
	_, h := caller(t, addrs(a, b))
	l := startLoad(t, 16, func(ctx context.Context, id string) error {
		_, err := h.model.Call(ctx, job{ID: id})
		return err
	})
	l.more(200)
	a.signal(syscall.SIGSTOP)
	nap(t.Context(), 3*time.Second) // more than a caller waits for the answer to an offer
	l.more(400)
	before, _ := b.all("ran")
	a.signal(syscall.SIGCONT)
	l.more(400)
	if _, failed := l.end(); len(failed) > 0 {
		t.Errorf("failed: %v", failed)
	}
	checkRuns(t, l, a, b)
	if len(before) < 200 {
		t.Errorf("the other process ran %d calls", len(before))
	}
}

// TestRollingRestart replaces both processes one after the other under load: no call fails.
func TestRollingRestart(t *testing.T) {
	a, b := callee(t, "127.0.0.1:0"), callee(t, "127.0.0.1:0")
	_, h := caller(t, addrs(a, b))
	l := startLoad(t, 16, func(ctx context.Context, id string) error {
		_, err := h.model.Call(ctx, job{ID: id, Nap: time.Millisecond})
		return err
	})
	all := []*process{a, b}
	for _, old := range []*process{a, b} {
		l.more(100)
		old.stop()
		l.more(100)
		next := callee(t, old.ready.Calls)
		next.await("ran", "")
		all = append(all, next)
	}
	l.more(100)
	if _, failed := l.end(); len(failed) > 0 {
		t.Errorf("failed: %v", failed)
	}
	checkRuns(t, l, all...)
}

// TestManyCallersOfOneProcess: three callers with a process that has five slots. No call
// fails, although each caller believes that it has all the slots.
func TestManyCallersOfOneProcess(t *testing.T) {
	a := callee(t, "127.0.0.1:0")
	var loads []*load
	for c := range 3 {
		_, h := caller(t, addrs(a))
		loads = append(loads, startLoad(t, 8, func(ctx context.Context, id string) error {
			_, err := h.model.Call(ctx, job{ID: fmt.Sprint(c, "/", id), Nap: time.Millisecond})
			return err
		}))
	}
	for _, l := range loads {
		l.more(50)
	}
	for _, l := range loads {
		if _, failed := l.end(); len(failed) > 0 {
			t.Errorf("failed: %v", failed)
		}
	}
	a.stop()
	for id, n := range ran(a) {
		if n != 1 {
			t.Errorf("call %s ran %d times", id, n)
		}
	}
}

// TestFullQueue: the queue is in the caller, and its bound is the deployment's.
func TestFullQueue(t *testing.T) {
	a := callee(t, "127.0.0.1:0")
	server, h := caller(t, addrs(a), serving.WithMaxQueuedRequests(1))
	awaitStatus(t, server, func(s serving.DeploymentStatus) bool { return s.State == serving.DeploymentHealthy })
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for i := range 6 { // five slots, and one place in the queue
		calls.Go(func() { _, _ = h.model.Call(ctx, job{ID: fmt.Sprint(i), Wait: true}) }) // ends by cancel
	}
	awaitStatus(t, server, func(s serving.DeploymentStatus) bool { return s.Queued == 1 && s.Replicas[0].Ongoing == 5 })
	_, err := h.model.Call(ctx, job{ID: "one more"})
	if full, is := errors.AsType[*serving.QueueFullError](err); !is || full.Queued != 1 || full.Limit != 1 {
		t.Errorf("one more call: %v", err)
	}
	cancel()
	calls.Wait()
}

// awaitStatus waits until the status of Model satisfies ok.
func awaitStatus(t *testing.T, server *serving.Server, ok func(serving.DeploymentStatus) bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(servingtest.Patience)
	for {
		s := server.Status()[1]
		if ok(s) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("status %+v", s)
		}
	}
}

// TestCancelAndDeadlineReachTheFunction: both end the function in the other process, and
// the call returns.
func TestCancelAndDeadlineReachTheFunction(t *testing.T) {
	a := callee(t, "127.0.0.1:0")
	_, h := caller(t, addrs(a))
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := h.model.Call(ctx, job{ID: "cancel", Wait: true})
		result <- err
	}()
	a.await("ran", "cancel")
	why := errors.New("no longer needed")
	cancel(why)
	if err := servingtest.Receive(t, "end of the call", result); !errors.Is(err, why) {
		t.Errorf("cancelled call: %v", err)
	}
	a.await("canceled", "cancel")

	limited, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if _, err := h.model.Call(limited, job{ID: "deadline", Wait: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("late call: %v", err)
	}
}

// TestModelsOfProcesses: calls for a model go to the process that holds it.
func TestModelsOfProcesses(t *testing.T) {
	a, b := callee(t, "127.0.0.1:0"), callee(t, "127.0.0.1:0")
	server, h := caller(t, addrs(a, b))
	awaitStatus(t, server, func(s serving.DeploymentStatus) bool { return s.NumReplicas == 2 })
	for i := range 40 {
		id := fmt.Sprintf("m%d", i%4)
		out, err := h.loads.WithModelID(id).Call(t.Context(), "")
		if err != nil || out != "weights of "+id {
			t.Fatalf("%q, %v", out, err)
		}
		if i < 4 { // the report of a load is on its way
			awaitStatus(t, server, func(s serving.DeploymentStatus) bool {
				return len(s.Replicas[0].Models)+len(s.Replicas[1].Models) == i+1
			})
		}
	}
	a.stop()
	b.stop()
	if n := len(must(a.all("loaded"))) + len(must(b.all("loaded"))); n != 4 {
		t.Errorf("%d loads, want 4", n)
	}
	if n := len(must(a.all("loaded"))); n != 2 {
		t.Errorf("%d of 4 models are in one process, want 2", n)
	}
}

func must(list []event, _ <-chan struct{}) []event { return list }

// TestProcessThatIsAway: a call waits for a process that is not there yet, and ends with its
// context if none comes.
func TestProcessThatIsAway(t *testing.T) {
	a := callee(t, "127.0.0.1:0")
	addr := a.ready.Calls
	a.stop()
	server, h := caller(t, []string{addr})
	limited, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if _, err := h.model.Call(limited, job{ID: "early"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("call without a process: %v", err)
	}
	if s := server.Status()[1]; s.State != serving.DeploymentUnhealthy || !strings.Contains(s.Error, addr) {
		t.Errorf("status %+v", s)
	}
	result := make(chan error, 1)
	go func() {
		_, err := h.model.Call(t.Context(), job{ID: "patient"})
		result <- err
	}()
	callee(t, addr)
	if err := servingtest.Receive(t, "end of the call", result); err != nil {
		t.Errorf("patient call: %v", err)
	}
}
