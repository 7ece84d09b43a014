package spans

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// noHandler is for deployments that are called by handle alone.
var noHandler http.Handler

// chain is an app of three deployments: A answers requests, and calls B's
// method predict, which calls C.
type chain struct {
	rig  *rig
	app  *serving.App
	b, c *serving.Deployment
	// predict and call are the work of B and C. The defaults are below.
	predict, call func(context.Context, string) (string, error)
	toB, toC      *serving.Handle[string, string]
}

// newChain makes the app, whose A answers with the answer of B.
func newChain(options ...serving.DeploymentOption) *chain {
	ch := &chain{
		b: serving.NewDeployment("B", noHandler),
		c: serving.NewDeployment("C", noHandler, options...),
	}
	ch.predict = func(ctx context.Context, in string) (string, error) { return ch.toC.Call(ctx, in+" B") }
	ch.call = func(_ context.Context, in string) (string, error) { return in + " C", nil }
	ch.toB = serving.AddFunction(ch.b, "predict", func(ctx context.Context, in string) (string, error) { return ch.predict(ctx, in) })
	ch.toC = serving.AddFunction(ch.c, "", func(ctx context.Context, in string) (string, error) { return ch.call(ctx, in) })
	a := serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		out, err := ch.toB.Call(r.Context(), "A")
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, out)
		return err
	})
	ch.app = serving.NewApp("a", serving.NewDeployment("A", a), serving.WithDeployments(ch.b, ch.c))
	return ch
}

// of is the calls of a chain: of A, of B and of C.
func (*chain) of(id string) (a, b, c call) {
	a = request(id)
	a.deployment = "A"
	return a, a.nested("B", "predict"), a.nested("C", "__call__")
}

// Test15Composition: a chain of three deployments, with a span of the user's in
// its midst.
func Test15Composition(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		ch := newChain()
		ch.predict = func(ctx context.Context, in string) (string, error) {
			ctx, span := ch.rig.tracing.TracerProvider().Tracer(userScope).Start(ctx, "between")
			defer span.End()
			return ch.toC.Call(ctx, in+" B")
		}
		ch.rig = serve(t, serving.Config{}, ch.app)
		checkAnswer(t, ch.rig.get(c, "chain", "/", "traceparent", sampledParent), answer{Status: 200, Body: "A B C"})
		a, b, last := ch.of("chain")
		ch.rig.check("chain", a.proxy(200, a.called(200, b.called(noStatus, user("between", last.called(noStatus))))))
	})
}

// Test15Failures: the error of a callee is an event of each replica span that it passes,
// and of the proxy span if it gets there. Router spans have none.
func Test15Failures(t *testing.T) {
	failed := answer{Status: 500, Body: "Internal Server Error"}
	t.Run("an error", func(t *testing.T) {
		ch := newChain()
		ch.call = func(context.Context, string) (string, error) { return "", errBoom }
		ch.rig = serve(t, serving.Config{}, ch.app)
		checkAnswer(t, ch.rig.get(client(t, "HTTP/1.1"), "error", "/"), failed)
		boom := func(s *span) *span { return s.raised("*errors.errorString", "boom") }
		a, b, c := ch.of("error")
		ch.rig.check("error", boom(a.proxy(500, a.router(boom(a.replica(500,
			b.router(boom(b.replica(noStatus, c.router(boom(c.replica(noStatus))))))))))).failed("boom"))
	})
	t.Run("a panic", func(t *testing.T) {
		ch := newChain()
		ch.call = func(context.Context, string) (string, error) { panic("boom") }
		ch.rig = serve(t, serving.Config{}, ch.app)
		checkAnswer(t, ch.rig.get(client(t, "HTTP/1.1"), "panic", "/"), failed)
		boom := func(s *span) *span { return s.panicked("panic", "panic: boom") }
		a, b, c := ch.of("panic")
		ch.rig.check("panic", boom(a.proxy(500, a.router(boom(a.replica(500,
			b.router(boom(b.replica(noStatus, c.router(boom(c.replica(noStatus))))))))))).failed("panic: boom"))
	})
	t.Run("one that the caller bears", func(t *testing.T) {
		ch := newChain()
		ch.call = func(context.Context, string) (string, error) { return "", errBoom }
		ch.predict = func(ctx context.Context, in string) (string, error) {
			if _, err := ch.toC.Call(ctx, in); !errors.Is(err, errBoom) {
				return "", err
			}
			return "without C", nil
		}
		ch.rig = serve(t, serving.Config{}, ch.app)
		checkAnswer(t, ch.rig.get(client(t, "HTTP/1.1"), "borne", "/"), answer{Status: 200, Body: "without C"})
		a, b, c := ch.of("borne")
		ch.rig.check("borne", a.proxy(200, a.called(200, b.called(noStatus,
			c.router(c.replica(noStatus).raised("*errors.errorString", "boom"))))))
	})
}

// Test15ParallelCalls: goroutines that share a context make siblings, and the error of
// one of them is on its spans only.
func Test15ParallelCalls(t *testing.T) {
	ch := newChain()
	var together sync.WaitGroup
	ch.predict = func(ctx context.Context, _ string) (string, error) {
		var all sync.WaitGroup
		together.Add(3)
		for _, in := range []string{"good", "bad", "good"} {
			all.Go(func() { _, _ = ch.toC.Call(ctx, in) }) // ends with its call
		}
		all.Wait()
		return "all", nil
	}
	ch.call = func(_ context.Context, in string) (string, error) {
		together.Done()
		together.Wait() // they overlap, all three
		if in == "bad" {
			return "", errBoom
		}
		return in, nil
	}
	ch.rig = serve(t, serving.Config{}, ch.app)
	checkAnswer(t, ch.rig.get(client(t, "HTTP/1.1"), "parallel", "/"), answer{Status: 200, Body: "all"})
	a, b, c := ch.of("parallel")

	_, got := treeOf(t, ch.rig.spans.request(t, "parallel"))
	routers := got.Children[0].Children[0].Children[0].Children[0].Children
	// Which of them comes first is not known: the bad one goes last.
	slices.SortStableFunc(routers, func(a, b *span) int { return cmp.Compare(failures(a), failures(b)) })
	compare(t, "parallel", got, a.proxy(200, a.called(200, b.called(noStatus,
		c.called(noStatus), c.called(noStatus), c.router(c.replica(noStatus).raised("*errors.errorString", "boom"))))))
}

// failures counts the events of a span and of all below it.
func failures(s *span) int {
	n := len(s.Events)
	for _, child := range s.Children {
		n += failures(child)
	}
	return n
}

// Test15Stream: a call of a stream has the tree of a call, and lasts until its
// end, or until the caller leaves.
func Test15Stream(t *testing.T) {
	back := serving.NewDeployment("B", noHandler)
	tokens := serving.AddStream(back, "tokens", func(_ context.Context, n int) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for range n {
				if !yield("token", nil) {
					return
				}
			}
			yield("", errBoom)
		}
	})
	a := serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		for token, err := range tokens.Stream(r.Context(), 2) {
			if err != nil {
				return err
			}
			_, _ = io.WriteString(w, token)
			if r.URL.Path == "/leave" {
				return nil
			}
		}
		return nil
	})
	r := serve(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("A", a), serving.WithDeployments(back)))
	for _, version := range versions {
		c := client(t, version)
		id := "leave-" + version
		front := request(id)
		front.deployment, front.path = "A", "/leave"
		stream := front.nested("B", "tokens")
		stream.streaming = true
		checkAnswer(t, r.get(c, id, "/leave"), answer{Status: 200, Body: "token"})
		r.check(id, front.proxy(200, front.called(200, stream.called(noStatus))))

		id = "end-" + version
		front.id, stream.id, front.path = id, id, "/"
		checkAnswer(t, r.get(c, id, "/"), answer{Status: 200, Body: "tokentoken", Cut: true})
		boom := func(s *span) *span { return s.raised("*errors.errorString", "boom") }
		r.check(id, boom(front.proxy(200, front.router(boom(front.replica(200, stream.router(boom(stream.replica(noStatus)))))))).failed("boom"))
	}
}

// TestH06NestedRefusal: a handler lets the error of a full queue escape that a
// call by handle gave it.
func TestH06NestedRefusal(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		const text = "Request dropped due to backpressure (num_queued_requests=0, max_queued_requests=0)."
		b := newBarrier()
		back := serving.NewDeployment("B", noHandler, serving.WithMaxOngoingRequests(1), serving.WithMaxQueuedRequests(0))
		predict := serving.AddFunction(back, "predict", func(context.Context, int) (int, error) {
			b.wait()
			return 0, nil
		})
		a := serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			_, err := predict.Call(r.Context(), 0)
			if err != nil && r.URL.Path == "/handled" {
				http.Error(w, "busy", http.StatusServiceUnavailable)
				return nil
			}
			return err
		})
		r := serve(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("A", a), serving.WithDeployments(back)))
		first := r.inBackground(c, "first")
		b.entered(t, 1)
		front := request("escapes")
		front.deployment = "A"
		nested := front.nested("B", "predict")
		full := func(s *span) *span { return s.raised("*serving.QueueFullError", text) }

		checkAnswer(t, r.get(c, "escapes", "/"), answer{Status: 503, Body: text})
		r.check("escapes", full(front.proxy(503, front.router(full(front.replica(503, nested.refused()))))).failed(text))

		// Handled by the app, as FastAPI does: then it is as H3.
		checkAnswer(t, r.get(c, "handled", "/handled"), answer{Status: 503, Body: "busy\n"})
		front.id, nested.id, front.path = "handled", "handled", "/handled"
		r.check("handled", front.proxy(503, front.called(503, nested.refused())).failed(""))
		b.open()
		checkAnswer(t, servingtest.Receive(t, "the first answer", first), answer{Status: 200})
	})
}

// Test15OutsideOfARequest: a call by handle that no request makes is a request of
// its own. A driver script has no router span in Ray, because it never set
// tracing up; here the process has, and the router span is the root, or the
// child of the program's own span.
func Test15OutsideOfARequest(t *testing.T) {
	ch := newChain()
	ch.call = func(ctx context.Context, _ string) (string, error) { return identity.RequestFromContext(ctx).ID, nil }
	ch.rig = serve(t, serving.Config{}, ch.app)
	call := func(ctx context.Context) (id string) {
		id, err := ch.toC.Call(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		if !uuid4.MatchString(id) {
			t.Errorf("the request id %q is no UUIDv4", id)
		}
		return id
	}
	outside := func(id string) *span {
		_, _, c := ch.of(id)
		c.route = ""
		return c.called(noStatus)
	}
	id := call(t.Context())
	_, got := treeOf(t, ch.rig.spans.request(t, id))
	compare(t, id, got, outside(id))

	ctx, span := ch.rig.tracing.TracerProvider().Tracer(userScope).Start(t.Context(), "driver")
	id = call(ctx)
	span.End()
	_, got = treeOf(t, ch.rig.spans.trace(t, span.SpanContext().TraceID()))
	compare(t, id, got, user("driver", outside(id)))
}
