package spans

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// instance is the value that each replica of these tests constructs.
type instance struct{ sick *atomic.Bool }

// CheckHealth implements [serving.HealthChecker].
func (i *instance) CheckHealth(context.Context) error {
	if i.sick.Load() {
		return errBoom
	}
	return nil
}

// TestH14Unavailable: all attempts to start a replica have failed. Requests during the
// attempts get the same answer as later requests, and neither have a replica span. H6 is
// the same for a nested call.
func TestH14Unavailable(t *testing.T) {
	t.Parallel() // three tries take three seconds
	const text = "Deployment(name='D', app='a') is unavailable because it failed to deploy."
	d := serving.NewDeployment("D", http.HandlerFunc(ok))
	serving.PerReplica(d, func(context.Context) (*instance, error) { return nil, errBoom })
	r := serve(t, serving.Config{}, serving.NewApp("a", d))
	early := r.inBackground(client(t, "HTTP/1.1"), "early")
	refused := answer{Status: 503, Body: text}
	checkAnswer(t, servingtest.Receive(t, "the answer of a request that came early", early), refused)
	ids := []string{"early"}
	for _, version := range versions {
		id := "late-" + version
		checkAnswer(t, r.get(client(t, version), id, "/"), refused)
		ids = append(ids, id)
	}
	for _, id := range ids {
		h14 := request(id)
		r.check(id, h14.proxy(503, h14.refused()).failed(text).raised("*serving.DeploymentUnavailableError", text))
	}
}

func TestH06NestedUnavailable(t *testing.T) {
	t.Parallel() // three tries take three seconds
	const text = "Deployment(name='B', app='a') is unavailable because it failed to deploy."
	back := serving.NewDeployment("B", noHandler)
	serving.PerReplica(back, func(context.Context) (*instance, error) { return nil, errBoom })
	predict := serving.AddFunction(back, "predict", func(context.Context, int) (int, error) { return 0, nil })
	a := serving.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
		_, err := predict.Call(r.Context(), 0)
		return err
	})
	r := serve(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("A", a), serving.WithDeployments(back)))
	checkAnswer(t, r.get(client(t, "HTTP/1.1"), "h6", "/"), answer{Status: 503, Body: text})
	front := request("h6")
	front.deployment = "A"
	down := func(s *span) *span { return s.raised("*serving.DeploymentUnavailableError", text) }
	r.check("h6", down(front.proxy(503, front.router(down(front.replica(503, front.nested("B", "predict").refused()))))).failed(text))
}

// TestH15NoReplica: while no replica is there yet, requests wait, in one long
// router span.
func TestH15NoReplica(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		starting := func() (d *serving.Deployment, start func()) {
			gate := make(chan struct{})
			d = serving.NewDeployment("D", http.HandlerFunc(ok))
			serving.PerReplica(d, func(ctx context.Context) (*instance, error) {
				select {
				case <-gate:
				case <-ctx.Done():
				}
				return &instance{new(atomic.Bool)}, nil
			})
			return d, func() { close(gate) }
		}
		t.Run("one comes", func(t *testing.T) {
			d, start := starting()
			r := serve(t, serving.Config{}, serving.NewApp("a", d))
			waits := r.inBackground(c, "h15")
			r.gauge("serve_deployment_queued_queries", 1)
			start()
			checkAnswer(t, servingtest.Receive(t, "the answer", waits), answer{Status: 200})
			r.check("h15", request("h15").proxy(200, request("h15").called(200)))
		})
		t.Run("its time is over", func(t *testing.T) {
			d, start := starting()
			defer start()
			r := serve(t, serving.Config{RequestTimeout: soon}, serving.NewApp("a", d))
			checkAnswer(t, r.get(c, "h15", "/"), answer{Status: 408, Body: "Request h15 timed out after 0.05s."})
			h15 := request("h15")
			r.check("h15", h15.proxy(408, h15.router().timedOut()).failed("").timedOut())
		})
	})
}

// TestH16ReplicasChange: replicas come and go under load. Whether a request waits,
// or is rejected by a replica that drains and goes to another, it has one router
// span and one replica span, and its client sees nothing. That a rejection is
// within one span is held by TestRefusalsAreOneSpan in package serving, which can
// bring it about.
func TestH16ReplicasChange(t *testing.T) {
	const callers, each = 8, 40
	d := serving.NewDeployment("D", http.HandlerFunc(ok), serving.WithReplicas(2), serving.WithMaxOngoingRequests(1),
		serving.WithGracefulShutdown(time.Millisecond, patience))
	r := serve(t, serving.Config{}, serving.NewApp("a", d))
	var all, changes sync.WaitGroup
	over, done := context.WithCancel(t.Context())
	changes.Go(func() { // ends with the requests
		for n := 1; over.Err() == nil; n = 4 - n { // 1, 3, 1, 3 …
			err := r.server.Apply(over, []serving.AppConfig{{Name: "a", Deployments: []serving.DeploymentConfig{{Name: "D", NumReplicas: &n}}}})
			if err != nil && over.Err() == nil {
				t.Errorf("change the number of replicas: %v", err)
			}
		}
	})
	c := client(t, "HTTP/1.1")
	for caller := range callers {
		all.Go(func() { // ends with its requests
			for i := range each {
				checkAnswer(t, r.get(c, fmt.Sprintf("h16-%d-%d", caller, i), "/"), answer{Status: 200})
			}
		})
	}
	all.Wait()
	done()
	changes.Wait()
	for caller := range callers {
		for i := range each {
			id := fmt.Sprintf("h16-%d-%d", caller, i)
			r.check(id, request(id).proxy(200, request(id).called(200)))
		}
	}
}

// TestH17ReplicaDiesBeforeItAccepts: in one process a replica dies when its start
// fails or panics. The request that waited for it goes to its successor: one
// router span, and no span of the one that died.
func TestH17ReplicaDiesBeforeItAccepts(t *testing.T) {
	for _, how := range []string{"fails", "panics"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel() // the second try comes after a second
			var starts atomic.Int32
			d := serving.NewDeployment("D", http.HandlerFunc(ok))
			serving.PerReplica(d, func(context.Context) (*instance, error) {
				if starts.Add(1) > 1 {
					return &instance{new(atomic.Bool)}, nil
				}
				if how == "panics" {
					panic("boom")
				}
				return nil, errBoom
			})
			r := serve(t, serving.Config{}, serving.NewApp("a", d))
			checkAnswer(t, r.get(client(t, "HTTP/1.1"), "h17", "/"), answer{Status: 200})
			r.check("h17", request("h17").proxy(200, request("h17").called(200)))
		})
	}
}

// TestH18ReplicaDiesWhileRunning: an unhealthy replica is ended, and its requests are cut
// off after its graceful shutdown. Unlike the end of a process in Ray Serve, this loses
// no span.
func TestH18ReplicaDiesWhileRunning(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		entered := make(chan struct{}, 1)
		var sick atomic.Bool
		d := serving.NewDeployment("D", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			entered <- struct{}{}
			untilCanceled(w, req)
		}), serving.WithHealthCheck(5*time.Millisecond, patience), serving.WithGracefulShutdown(time.Millisecond, 10*time.Millisecond))
		serving.PerReplica(d, func(context.Context) (*instance, error) { return &instance{&sick}, nil })
		r := serve(t, serving.Config{}, serving.NewApp("a", d))
		answers := r.inBackground(c, "h18")
		servingtest.Receive(t, "the handler", entered)
		sick.Store(true)
		checkAnswer(t, servingtest.Receive(t, "the answer", answers), answer{Status: 500, Body: "Internal Server Error"})
		sick.Store(false) // for its successor
		const text = "replica was stopped"
		h18 := request("h18")
		r.check("h18", h18.proxy(500, h18.router(h18.replica(noStatus).raised("*serving.causeError", text))).
			failed(text).raised("*serving.causeError", text))
	})
}

// TestH19ArgumentLost: handles return values, not references to later values. A caller
// that needs the result of B for its call of C waits for it first. If B is lost, C is
// never called and has no span.
func TestH19ArgumentLost(t *testing.T) {
	b, c := serving.NewDeployment("B", noHandler), serving.NewDeployment("C", noHandler)
	first := serving.AddFunction(b, "", func(context.Context, int) (int, error) { return 0, errBoom })
	second := serving.AddFunction(c, "", func(_ context.Context, n int) (int, error) { return n, nil })
	a := serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		n, err := first.Call(r.Context(), 1)
		if err != nil {
			return err
		}
		n, err = second.Call(r.Context(), n)
		_, werr := io.WriteString(w, fmt.Sprint(n))
		return errors.Join(err, werr)
	})
	r := serve(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("A", a), serving.WithDeployments(b, c)))
	checkAnswer(t, r.get(client(t, "HTTP/1.1"), "h19", "/"), answer{Status: 500, Body: "Internal Server Error"})
	front := request("h19")
	front.deployment = "A"
	nested := front.nested("B", "__call__")
	boom := func(s *span) *span { return s.raised("*errors.errorString", "boom") }
	r.check("h19", boom(front.proxy(500, front.router(boom(front.replica(500, nested.router(boom(nested.replica(noStatus)))))))).failed("boom"))
}
