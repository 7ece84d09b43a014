package spans

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

var errBoom = errors.New("boom")

// boomed are the proxy and the replica span of a request whose handler failed
// with errBoom, of a client that saw the status.
func (c call) boomed(status int) *span {
	return c.proxy(status, c.router(c.replica(status).raised("*errors.errorString", "boom"))).
		failed("boom").raised("*errors.errorString", "boom")
}

// begin has the client see a beginning of the response.
func begin(w http.ResponseWriter) error {
	_, err := io.WriteString(w, "begin")
	return errors.Join(err, http.NewResponseController(w).Flush())
}

func TestH01Success(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		for _, status := range []int{200, 201, 204, 301, 302, 304} {
			r := one(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
			checkAnswer(t, r.get(c, "h1", "/"), answer{Status: status})
			r.check("h1", request("h1").proxy(status, request("h1").called(status)))
		}
	})
}

func TestH02ClientError(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		for _, status := range []int{400, 404, 418, 499} {
			r := one(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
			checkAnswer(t, r.get(c, "h2", "/"), answer{Status: status})
			r.check("h2", request("h2").proxy(status, request("h2").called(status)).failed(""))
		}
	})
}

func TestH03ServerErrorWithoutException(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		for _, status := range []int{500, 503, 599} {
			r := one(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
			checkAnswer(t, r.get(c, "h3", "/"), answer{Status: status})
			r.check("h3", request("h3").proxy(status, request("h3").called(status)).failed(""))
		}
	})
}

func TestH04HandlerFails(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		failed := answer{Status: 500, Body: "Internal Server Error"}
		t.Run("error", func(t *testing.T) {
			r := one(t, serving.Config{}, serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errBoom }))
			checkAnswer(t, r.get(c, "h4", "/"), failed)
			r.check("h4", request("h4").boomed(500))
		})
		t.Run("panic", func(t *testing.T) {
			r := one(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				panic("boom")
			}))
			checkAnswer(t, r.get(c, "h4", "/"), failed)
			h4 := request("h4")
			r.check("h4", h4.proxy(500, h4.router(h4.replica(500).panicked("panic", "panic: boom"))).
				failed("panic: boom").panicked("panic", "panic: boom"))
		})
	})
}

func TestH07FailureMidStream(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		r := one(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			return errors.Join(begin(w), errBoom)
		}))
		checkAnswer(t, r.get(c, "h7", "/"), answer{Status: 200, Body: "begin", Cut: true})
		h7 := request("h7")
		// Ray: OK. Here ERROR, with the status that the client saw.
		r.check("h7", h7.proxy(200, h7.router(h7.replica(200).raised("*errors.joinError", "boom"))).
			failed("boom").raised("*errors.joinError", "boom"))
	})
}

func TestH08TimeoutBeforeTheResponse(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		timedOut := answer{Status: 408, Body: "Request h8 timed out after 0.05s."}
		t.Run("running", func(t *testing.T) {
			r := one(t, serving.Config{RequestTimeout: soon}, http.HandlerFunc(untilCanceled))
			checkAnswer(t, r.get(c, "h8", "/"), timedOut)
			h8 := request("h8")
			r.check("h8", h8.proxy(408, h8.router(h8.replica(noStatus).timedOut())).failed("").timedOut())
		})
		t.Run("queued", func(t *testing.T) {
			b := newBarrier()
			r := one(t, serving.Config{RequestTimeout: soon}, b, serving.WithMaxOngoingRequests(1))
			defer b.open()
			first := r.inBackground(c, "first")
			b.entered(t, 1)
			checkAnswer(t, r.get(c, "h8", "/"), timedOut)
			h8 := request("h8")
			r.check("h8", h8.proxy(408, h8.router().timedOut()).failed("").timedOut())
			servingtest.Receive(t, "the first answer", first)
		})
	})
}

func TestH09TimeoutMidStream(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		r := one(t, serving.Config{RequestTimeout: soon}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_ = begin(w)
			untilCanceled(w, req)
		}))
		checkAnswer(t, r.get(c, "h9", "/"), answer{Status: 200, Body: "begin", Cut: true})
		h9 := request("h9")
		// Ray: OK. Here ERROR, with the status that the client saw.
		r.check("h9", h9.proxy(200, h9.router(h9.replica(200).timedOut())).failed("").timedOut())
	})
}

func TestH10DisconnectBeforeTheResponse(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		h10 := request("h10")
		t.Run("running", func(t *testing.T) {
			entered := make(chan struct{})
			r := one(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				close(entered)
				untilCanceled(w, req)
			}))
			leave := r.startAndLeave(c, "h10")
			servingtest.Receive(t, "the handler", entered)
			leave()
			r.check("h10", h10.proxy(499, h10.router(h10.replica(noStatus).canceled())).failed("").canceled())
		})
		t.Run("queued", func(t *testing.T) {
			b := newBarrier()
			r := one(t, serving.Config{}, b, serving.WithMaxOngoingRequests(1))
			first := r.inBackground(c, "first")
			b.entered(t, 1)
			leave := r.startAndLeave(c, "h10")
			r.spans.waitFor(t, 5) // the first's three, and the second's proxy and router
			leave()
			r.check("h10", h10.proxy(499, h10.router().canceled()).failed("").canceled())
			b.open()
			checkAnswer(t, servingtest.Receive(t, "the first answer", first), answer{Status: 200})
		})
	})
}

func TestH11DisconnectMidStream(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		r := one(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_ = begin(w)
			untilCanceled(w, req)
		}))
		r.readAndLeave(c, "h11", len("begin"))
		h11 := request("h11")
		// Ray: OK. Here ERROR, with the status that the client saw.
		r.check("h11", h11.proxy(200, h11.router(h11.replica(200).canceled())).failed("").canceled())
	})
}

func TestH12DisconnectAfterTheLastByte(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		r := one(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Length", "5")
			_ = begin(w)
			untilCanceled(w, req)
		}))
		r.readAndLeave(c, "h12", len("begin"))
		h12 := request("h12")
		r.check("h12", h12.proxy(200, h12.called(200)))
	})
}

func TestH13QueueFull(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		b := newBarrier()
		r := one(t, serving.Config{}, b, serving.WithMaxOngoingRequests(1), serving.WithMaxQueuedRequests(0))
		first := r.inBackground(c, "first")
		b.entered(t, 1)
		const text = "Request dropped due to backpressure (num_queued_requests=0, max_queued_requests=0)."
		checkAnswer(t, r.get(c, "h13", "/"), answer{Status: 503, Body: text})
		h13 := request("h13")
		r.check("h13", h13.proxy(503, h13.refused()).failed(text).raised("*serving.QueueFullError", text))
		b.open()
		checkAnswer(t, servingtest.Receive(t, "the first answer", first), answer{Status: 200})
	})
}

func TestH20NoRoute(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		r := serve(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("D", http.NotFoundHandler()), serving.WithRoutePrefix("/api")))
		for _, path := range []string{"/", "/apix", "/other/api"} {
			checkAnswer(t, r.get(c, "h20", path, "traceparent", sampledParent), answer{
				Status: 404, Body: "Path '" + path + "' not found. Ping http://.../-/routes for available routes.",
			})
		}
		r.checkNoSpans()
	})
}

func TestH21HealthAndRoutes(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		b := newBarrier()
		r := one(t, serving.Config{}, b)
		for path, body := range map[string]string{"/-/healthz": "success", "/-/routes": `{"/":"a"}`} {
			checkAnswer(t, r.health(c, path), answer{Status: 200, Body: body})
		}
		r.checkNoSpans()
	})
	t.Run("draining", func(t *testing.T) {
		b := newBarrier()
		r := one(t, serving.Config{}, b)
		first := r.inBackground(client(t, "HTTP/1.1"), "first")
		b.entered(t, 1)
		c := client(t, "HTTP/1.1")
		checkAnswer(t, r.health(c, "/-/healthz"), answer{Status: 200, Body: "success"})
		stopped := make(chan struct{})
		go func() { // ends with the test's own stop
			defer close(stopped)
			r.stop()
		}()
		before := r.spans.count()
		for { // until it drains
			if got := r.health(client(t, "HTTP/1.1"), "/-/healthz"); got.Status != 200 {
				checkAnswer(t, got, answer{Status: 503, Body: "This node is being drained."})
				break
			}
		}
		if n := r.spans.count(); n != before {
			t.Errorf("health made %d spans", n-before)
		}
		b.open()
		checkAnswer(t, servingtest.Receive(t, "the first answer", first), answer{Status: 200})
		servingtest.Receive(t, "the server's end", stopped)
	})
}

// health asks for one of the proxy's own pages.
func (r *rig) health(c *http.Client, path string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+r.server.Addr().String()+path, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Traceparent", sampledParent)
	r.uses(c)
	resp, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{Status: resp.StatusCode, Body: string(body), Cut: err != nil}
}
