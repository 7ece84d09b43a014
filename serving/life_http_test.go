package serving_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

const unavailableText = "Deployment(name='D', app='a') is unavailable because it failed to deploy."

// startLife serves a deployment with a probe over real sockets.
func startLife(t *testing.T, cfg serving.Config, h http.Handler, p *probe, opts ...serving.DeploymentOption) (*rig, *serving.Local[*instance]) {
	t.Helper()
	d := serving.NewDeployment("D", h, opts...)
	local := serving.PerReplica(d, p.make)
	return startApps(t, cfg, serving.NewApp("a", d)), local
}

// TestUnavailableDeployment is H14: requests that come before there is a replica wait for
// one; where all starts fail they get 503, those that wait and those that come later.
func TestUnavailableDeployment(t *testing.T) {
	fail := make(chan struct{})
	p := &probe{Probe: servingtest.Probe{Construct: func(ctx context.Context, n int) error {
		select {
		case <-fail:
			return errBoom
		case <-ctx.Done():
			return ctx.Err()
		}
	}}}
	r, _ := startLife(t, serving.Config{}, http.NotFoundHandler(), p, serving.WithReplicas(20)) // if all fail, there is no other try
	if got, want := r.get("/-/healthz"), "Deployment(name='D', app='a') has no replica that takes requests yet."; got.Status != 503 || got.Body != want {
		t.Errorf("health before the start: %+v, want %q", got, want)
	}
	waits := make(chan answer, 1)
	go func() { waits <- r.get("/") }()
	r.queued(1)
	close(fail)
	for _, got := range []answer{servingtest.Receive(t, "the request that waited", waits), r.get("/")} {
		if got.Status != 503 || got.Body != unavailableText || got.Cut {
			t.Errorf("client saw %+v", got)
		}
	}
	proxy := "proxy_http_request ERROR(" + unavailableText + ") sc=503 event(*serving.DeploymentUnavailableError True)"
	want := []string{proxy, proxy, "route_to_replica no-http", "route_to_replica no-http"}
	if diff := cmp.Diff(want, digests(r.spans.take(t, 4))); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if got := r.get("/-/healthz"); got.Status != 503 || got.Body != unavailableText {
		t.Errorf("health after the failure: %+v", got)
	}
	if s := r.server.Status()[0]; s.State != serving.DeploymentUnavailable || s.Error != "boom" {
		t.Errorf("status %+v", s)
	}
}

// TestWaitForFirstReplica: H15, up to the timeout.
func TestWaitForFirstReplica(t *testing.T) {
	p := &probe{Probe: servingtest.Probe{Construct: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }}}
	r, _ := startLife(t, serving.Config{RequestTimeout: shortTimeout}, http.NotFoundHandler(), p)
	if got := r.get("/"); got.Status != 408 {
		t.Errorf("client saw %+v, want 408", got)
	}
	want := []string{"proxy_http_request ERROR() sc=408 event(" + typeTimeout + " True)", "route_to_replica event(" + typeTimeout + " True)"}
	if diff := cmp.Diff(want, digests(r.spans.take(t, 2))); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// TestLocalGet: a call finds the value of its own replica; Get elsewhere is a
// fault of the program, which costs one request.
func TestLocalGet(t *testing.T) {
	var local *serving.Local[*instance]
	other := serving.PerReplica(serving.NewDeployment("other", nil), (&probe{}).make)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			other.Get(r.Context())
		}
		info, _ := serving.ReplicaContext(r.Context())
		_, _ = fmt.Fprint(w, local.Get(r.Context()).N, " ", info.ReplicaID.UniqueID)
	})
	r, l := startLife(t, serving.Config{}, h, &probe{}, serving.WithReplicas(3))
	local = l
	servingtest.Await(t, "three replicas", func() bool { return r.server.Status()[0].State == serving.DeploymentHealthy })
	ids := map[string]string{}
	for len(ids) < 3 {
		n, id, _ := strings.Cut(r.get("/").Body, " ")
		if ids[n] != "" && ids[n] != id {
			t.Fatalf("value %s is that of %s and of %s", n, id, ids[n])
		}
		ids[n] = id
	}
	if got := r.get("/other"); got.Status != 500 {
		t.Errorf("Get of another deployment: %+v", got)
	}
	defer func() {
		if v := recover(); v == nil {
			t.Error("Get outside of calls gave a value")
		}
	}()
	local.Get(t.Context())
}

// TestHooksCallHandles: user code of a replica outside of calls calls other
// deployments, and waits for their first replicas.
func TestHooksCallHandles(t *testing.T) {
	leave := make(chan struct{})
	words := serving.NewDeployment("words", nil)
	serving.PerReplica(words, func(context.Context) (int, error) { <-leave; return 1, nil })
	length := serving.AddFunction(words, "", func(_ context.Context, s string) (int, error) { return len(s), nil })
	d := serving.NewDeployment("D", http.NotFoundHandler())
	local := serving.PerReplica(d, func(ctx context.Context) (int, error) {
		close(leave)
		return length.Call(ctx, "three")
	})
	d.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, local.Get(r.Context())) }))
	r := startApps(t, serving.Config{}, serving.NewApp("a", d, serving.WithDeployments(words)))
	if got := r.get("/"); got.Body != "5" {
		t.Errorf("client saw %+v, want 5", got)
	}
}

// TestReplacedUnderLoad: no request fails while replicas come, go, and are
// reconfigured.
func TestReplacedUnderLoadConcurrentSafe(t *testing.T) {
	var sick atomic.Int64 // the number of the value that fails its check
	p := &probe{Probe: servingtest.Probe{Check: func(_ context.Context, n int) error {
		if int64(n) <= sick.Load() {
			return errBoom
		}
		return nil
	}}}
	r, _ := startLife(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), p,
		serving.WithReplicas(3), serving.WithMaxOngoingRequests(2), serving.WithHealthCheck(time.Millisecond, time.Minute))
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := r.get("/"); got.Status != 200 || got.Body != "ok" || got.Cut {
					t.Errorf("client saw %+v", got)
					return
				}
			}
		})
	}
	for round := range 5 {
		n := 1 + round%3
		if err := r.server.Apply(t.Context(), []serving.AppConfig{{Deployments: []serving.DeploymentConfig{{Name: "D", NumReplicas: &n, UserConfig: round}}}}); err != nil {
			t.Error(err)
		}
		made := int64(p.Made())
		sick.Store(made) // all that there are
		servingtest.Await(t, "fresh replicas", func() bool {
			s := r.server.Status()[0]
			return s.State == serving.DeploymentHealthy && len(s.Replicas) == n && int64(p.Made()) > made
		})
	}
	close(stop)
	load.Wait()
}

// TestCutOff: requests that outlast a replica's graceful shutdown timeout are cut
// off; the value is stopped when the handler has really returned.
func TestCutOff(t *testing.T) {
	entered, leave := make(chan struct{}, 2), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			writeBegin(w)
		}
		entered <- struct{}{}
		<-leave
	})
	var sick atomic.Bool
	p := &probe{Probe: servingtest.Probe{Check: func(_ context.Context, n int) error {
		if n == 1 && sick.Load() {
			return errBoom
		}
		return nil
	}}}
	r, _ := startLife(t, serving.Config{}, h, p, serving.WithHealthCheck(time.Millisecond, time.Minute), serving.WithGracefulShutdown(time.Second, time.Millisecond))
	answers := make(chan answer, 2)
	go func() { answers <- r.get("/") }()
	servingtest.Receive(t, "the first handler", entered)
	go func() { answers <- r.get("/begun") }()
	servingtest.Receive(t, "the second handler", entered)
	sick.Store(true)
	for range 2 {
		switch got := servingtest.Receive(t, "an answer", answers); got.Status {
		case 500:
			if got.Cut || got.Body != http.StatusText(500) {
				t.Errorf("client saw %+v", got)
			}
		case 200:
			if !got.Cut || got.Body != "begin" {
				t.Errorf("client saw %+v", got)
			}
		default:
			t.Errorf("client saw %+v", got)
		}
	}
	servingtest.Await(t, "the successor", func() bool { return p.Made() == 2 })
	if notes := strings.Join(p.Take(), " "); strings.Contains(notes, "stop") {
		t.Errorf("%s: stopped beside its calls", notes)
	}
	close(leave)
	servingtest.Await(t, "the stop", func() bool { return strings.Contains(strings.Join(p.Take(), " "), "stop 1") })
}

// TestShutdownWithoutTime: values whose calls still run are not stopped, and
// Shutdown says what does.
func TestShutdownWithoutTime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	p := &probe{}
	r, _ := startLife(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	}), p)
	go r.get("/")
	servingtest.Receive(t, "the handler", entered)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := r.server.Shutdown(ctx)
	if r.wantShutdown = "drain: 1 requests cut off, 1 handlers still running: context canceled"; fmt.Sprint(err) != r.wantShutdown {
		t.Errorf("Shutdown: %v, want %s", err, r.wantShutdown)
	}
	if diff := cmp.Diff([]string{"make 1"}, p.Take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	close(leave)
}
