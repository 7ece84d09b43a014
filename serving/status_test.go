package serving_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// longTimeout never ends within a test. A timeout that should end does so soon, unless
// something has to happen before: that has room, on a machine that is busy too.
const (
	longTimeout  = time.Hour
	roomyTimeout = time.Second
	shortTimeout = 50 * time.Millisecond
)

// spansOf are the digests of the three spans where nothing is special.
const (
	routerPlain  = "route_to_replica"
	proxyOK      = "proxy_http_request OK sc=200"
	replica200   = "replica_handle_request sc=200"
	typeTimeout  = "context.DeadlineExceeded"
	typeCanceled = "context.Canceled"
)

var errBoom = errors.New("boom")

func writeBegin(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "begin")
	_ = http.NewResponseController(w).Flush()
}

// TestStatusOfHandlers holds the rows of the status table in which the handler
// decides: the client's view, the spans and the log agree.
func TestStatusOfHandlers(t *testing.T) {
	tests := []struct {
		name    string
		handler http.Handler
		want    answer
		spans   []string
	}{
		{
			name:    "H1 implicit 200",
			handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			want:    answer{Status: 200},
			spans:   []string{proxyOK, routerPlain, replica200},
		}, {
			name:    "H1 redirect",
			handler: http.RedirectHandler("/elsewhere", http.StatusFound),
			want:    answer{Status: 302, Body: "<a href=\"/elsewhere\">Found</a>.\n\n"},
			spans:   []string{"proxy_http_request OK sc=302", routerPlain, "replica_handle_request sc=302"},
		}, {
			name:    "H2 handler answers 404",
			handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }),
			want:    answer{Status: 404},
			spans:   []string{"proxy_http_request ERROR() sc=404", routerPlain, "replica_handle_request sc=404"},
		}, {
			name:    "H3 handler answers 503",
			handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }),
			want:    answer{Status: 503},
			spans:   []string{"proxy_http_request ERROR() sc=503", routerPlain, "replica_handle_request sc=503"},
		}, {
			name:    "H4 handler fails",
			handler: serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errBoom }),
			want:    answer{Status: 500, Body: "Internal Server Error"},
			spans: []string{
				"proxy_http_request ERROR(boom) sc=500 event(*errors.errorString True)", routerPlain,
				"replica_handle_request sc=500 event(*errors.errorString False)",
			},
		}, {
			name:    "H4 handler panics",
			handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }),
			want:    answer{Status: 500, Body: "Internal Server Error"},
			spans: []string{
				"proxy_http_request ERROR(panic: boom) sc=500 event(panic True)", routerPlain,
				"replica_handle_request sc=500 event(panic False)",
			},
		}, {
			name: "H6 queue full elsewhere",
			handler: serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
				return &serving.QueueFullError{Deployment: "other", Queued: 3, Limit: 3}
			}),
			want: answer{Status: 503, Body: "Request dropped due to backpressure (num_queued_requests=3, max_queued_requests=3)."},
			spans: []string{
				"proxy_http_request ERROR(Request dropped due to backpressure (num_queued_requests=3, max_queued_requests=3).)" +
					" sc=503 event(*serving.QueueFullError True)", routerPlain,
				"replica_handle_request sc=503 event(*serving.QueueFullError False)",
			},
		}, {
			name: "H7 handler fails after the response began",
			handler: serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				writeBegin(w)
				return errBoom
			}),
			want: answer{Status: 200, Body: "begin", Cut: true},
			spans: []string{
				"proxy_http_request ERROR(boom) sc=200 event(*errors.errorString True)", routerPlain,
				"replica_handle_request sc=200 event(*errors.errorString False)",
			},
		}, {
			name: "H7 before anything was flushed",
			handler: serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(http.StatusAccepted)
				_, _ = io.WriteString(w, "held by net/http")
				return errBoom
			}),
			want: answer{Status: 202, Body: "held by net/http", Cut: true},
			spans: []string{
				"proxy_http_request ERROR(boom) sc=202 event(*errors.errorString True)", routerPlain,
				"replica_handle_request sc=202 event(*errors.errorString False)",
			},
		}, {
			name: "H7 handler panics after the response began",
			handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				writeBegin(w)
				panic(errBoom)
			}),
			want: answer{Status: 200, Body: "begin", Cut: true},
			spans: []string{
				"proxy_http_request ERROR(panic: boom) sc=200 event(*errors.errorString True)", routerPlain,
				"replica_handle_request sc=200 event(*errors.errorString False)",
			},
		}, {
			name:    "handler aborts before a response",
			handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
			want:    answer{Cut: true},
			spans: []string{
				"proxy_http_request ERROR(net/http: abort Handler) sc=500 event(*errors.errorString True)", routerPlain,
				"replica_handle_request event(*errors.errorString False)",
			},
		}, {
			name: "handler aborts its response",
			handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				writeBegin(w)
				panic(http.ErrAbortHandler)
			}),
			want: answer{Status: 200, Body: "begin", Cut: true},
			spans: []string{
				"proxy_http_request ERROR(net/http: abort Handler) sc=200 event(*errors.errorString True)", routerPlain,
				"replica_handle_request sc=200 event(*errors.errorString False)",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, serving.Config{}, tt.handler)
			got := r.get("/")
			checkAgreement(t, r, got, tt.want, tt.spans)
		})
	}
}

// checkAgreement compares what client, spans and access log say.
func checkAgreement(t *testing.T, r *rig, got, want answer, spans []string) {
	t.Helper()
	if want.Status != 0 && got.header.Get("X-Request-Id") == "" {
		t.Errorf("response without X-Request-Id")
	}
	got.header = nil
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
		t.Errorf("client's view (-want +got):\n%s", diff)
	}
	ended := r.spans.take(t, len(spans))
	if diff := cmp.Diff(spans, digests(ended)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	line := r.access.take(t, "request", 1)[0]
	for _, s := range ended {
		if s.Parent().IsValid() {
			continue
		}
		if sc, _ := attr(s, "http.status_code"); float64(sc.AsInt64()) != line["status"] {
			t.Errorf("log says status %v, the proxy span %v", line["status"], sc.AsInt64())
		}
		if line["trace_id"] != s.SpanContext().TraceID().String() || line["span_id"] != s.SpanContext().SpanID().String() {
			t.Errorf("log line %v does not name the proxy span %v", line, s.SpanContext())
		}
	}
}

// TestRequestTimeout: H8 and H9. A handler that outlasts its time keeps its
// slot until it really returns.
func TestRequestTimeout(t *testing.T) {
	t.Run("H8 running", func(t *testing.T) {
		causes, leave := make(chan error, 1), make(chan struct{})
		late := make(chan error, 1)
		r := start(t, serving.Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			<-req.Context().Done()
			causes <- context.Cause(req.Context())
			<-leave
			_, err := io.WriteString(w, "too late")
			late <- err
		}), serving.WithMaxOngoingRequests(1), serving.WithMaxQueuedRequests(0))

		got := r.get("/", "X-Request-ID", "id-1")
		if got.Status != 408 || got.Body != "Request id-1 timed out after 1s." {
			t.Errorf("client saw %+v", got)
		}
		if err := servingtest.Receive(t, "the handler's cause", causes); err != serving.ErrRequestTimeout {
			t.Errorf("cause %v, want ErrRequestTimeout", err)
		}
		want := []string{"proxy_http_request ERROR() sc=408 event(" + typeTimeout + " True)", routerPlain}
		if diff := cmp.Diff(want, digests(r.spans.take(t, 2))); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
		if got := r.get("/"); got.Status != 503 {
			t.Errorf("second request while the handler still runs: status %d, want 503: its slot was freed", got.Status)
		}
		r.spans.take(t, 2)

		close(leave)
		if err := servingtest.Receive(t, "the late write", late); err != serving.ErrRequestTimeout {
			t.Errorf("late write: %v, want ErrRequestTimeout", err)
		}
		want = []string{"replica_handle_request event(" + typeTimeout + " False)"}
		if diff := cmp.Diff(want, digests(r.spans.take(t, 1))); diff != "" {
			t.Errorf("replica span (-want +got):\n%s", diff)
		}
		servingtest.Await(t, "the slot to be free", func() bool {
			return r.ongoing() == 0
		})
	})

	t.Run("H8 queued", func(t *testing.T) {
		entered, leave := make(chan struct{}), make(chan struct{})
		r := start(t, serving.Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			entered <- struct{}{}
			<-leave
		}), serving.WithMaxOngoingRequests(1))
		defer close(leave)
		first := make(chan answer, 1)
		go func() { first <- r.get("/") }()
		servingtest.Receive(t, "the first handler", entered)
		checkStatus(t, r.get("/"), 408)
		servingtest.Receive(t, "the first answer", first)
		want := map[string]int{
			"proxy_http_request ERROR() sc=408 event(" + typeTimeout + " True)": 2,
			"route_to_replica": 1,
			"route_to_replica event(" + typeTimeout + " True)": 1,
		}
		got := map[string]int{}
		for _, s := range r.spans.take(t, 4) {
			got[digest(s)]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
	})

	t.Run("H9 after the response began", func(t *testing.T) {
		r := start(t, serving.Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			writeBegin(w)
			<-req.Context().Done()
		}))
		got := r.get("/")
		checkAgreement(t, r, got, answer{Status: 200, Body: "begin", Cut: true}, []string{
			"proxy_http_request ERROR() sc=200 event(" + typeTimeout + " True)", routerPlain,
			"replica_handle_request sc=200 event(" + typeTimeout + " False)",
		})
	})

	t.Run("in time", func(t *testing.T) {
		r := start(t, serving.Config{RequestTimeout: longTimeout}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		checkAgreement(t, r, r.get("/"), answer{Status: 200}, []string{proxyOK, routerPlain, replica200})
	})
}

func checkStatus(t *testing.T, got answer, want int) {
	t.Helper()
	if got.Status != want {
		t.Errorf("status %d (%q), want %d", got.Status, got.Body, want)
	}
}

// TestClientGone: H10 to H12.
func TestClientGone(t *testing.T) {
	t.Run("H10 running", func(t *testing.T) {
		entered, causes := make(chan struct{}), make(chan error, 1)
		r := start(t, serving.Config{}, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			close(entered)
			<-req.Context().Done()
			causes <- req.Context().Err()
		}))
		c := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		servingtest.Receive(t, "the handler", entered)
		_ = c.Close()
		if err := servingtest.Receive(t, "the handler's error", causes); err != context.Canceled {
			t.Errorf("context ended with %v, want Canceled", err)
		}
		checkAgreement(t, r, answer{}, answer{}, []string{
			"proxy_http_request ERROR() sc=499 event(" + typeCanceled + " True)", routerPlain,
			"replica_handle_request event(" + typeCanceled + " False)",
		})
	})

	t.Run("H10 queued", func(t *testing.T) {
		entered, leave := make(chan struct{}, 1), make(chan struct{})
		r := start(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			entered <- struct{}{}
			<-leave
		}), serving.WithMaxOngoingRequests(1))
		first := make(chan answer, 1)
		go func() { first <- r.get("/") }()
		servingtest.Receive(t, "the first handler", entered)
		r.spans.take(t, 1) // its router span
		c := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		r.queued(1)
		_ = c.Close()
		r.queued(0)
		want := []string{
			"proxy_http_request ERROR() sc=499 event(" + typeCanceled + " True)",
			"route_to_replica event(" + typeCanceled + " True)",
		}
		if diff := cmp.Diff(want, digests(r.spans.take(t, 2))); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
		close(leave)
		checkStatus(t, servingtest.Receive(t, "the first answer", first), 200)
	})

	t.Run("H11 mid-stream", func(t *testing.T) {
		r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			writeBegin(w)
			<-req.Context().Done()
		}))
		c := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		checkAgreement(t, r, answer{}, answer{}, []string{
			"proxy_http_request ERROR() sc=200 event(" + typeCanceled + " True)", routerPlain,
			"replica_handle_request sc=200 event(" + typeCanceled + " False)",
		})
	})

	t.Run("H12 after the last byte", func(t *testing.T) {
		r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Length", "5")
			writeBegin(w)
			<-req.Context().Done()
		}))
		c := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		checkAgreement(t, r, answer{}, answer{}, []string{proxyOK, routerPlain, replica200})
	})
}

// TestQueueFull: H13.
func TestQueueFull(t *testing.T) {
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	r := start(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	}), serving.WithMaxOngoingRequests(1), serving.WithMaxQueuedRequests(1))
	answers := make(chan answer, 2)
	for range 2 {
		go func() { answers <- r.get("/") }()
	}
	servingtest.Receive(t, "the first handler", entered)
	r.spans.take(t, 1) // its router span
	r.queued(1)
	got := r.get("/")
	const text = "Request dropped due to backpressure (num_queued_requests=1, max_queued_requests=1)."
	if got.Status != 503 || got.Body != text {
		t.Errorf("client saw %+v, want 503 %q", got, text)
	}
	want := []string{
		"proxy_http_request ERROR(" + text + ") sc=503 event(*serving.QueueFullError True)",
		"route_to_replica no-http",
	}
	if diff := cmp.Diff(want, digests(r.spans.take(t, 2))); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	close(leave)
	for range 2 {
		checkStatus(t, servingtest.Receive(t, "an answer", answers), 200)
	}
}

// TestNoReplica: H15. Requests wait for a replica to be listed.
func TestNoReplica(t *testing.T) {
	list := make(chan struct{})
	d := serving.NewDeployment("D", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	serving.PerReplica(d, func(context.Context) (int, error) { <-list; return 0, nil })
	r := startApps(t, serving.Config{}, serving.NewApp("a", d))
	got := make(chan answer, 1)
	go func() { got <- r.get("/") }()
	r.queued(1)
	close(list)
	checkStatus(t, servingtest.Receive(t, "the answer", got), 200)
}

// TestNoSpans: H20 and H21.
func TestNoSpans(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r := startApps(t, serving.Config{},
		serving.NewApp("api", serving.NewDeployment("D", ok), serving.WithRoutePrefix("/api")),
		serving.NewApp("other", serving.NewDeployment("E", ok), serving.WithRoutePrefix("/other")))
	for _, tt := range []struct {
		path string
		want answer
	}{
		{"/apix", answer{Status: 404, Body: "Path '/apix' not found. Ping http://.../-/routes for available routes."}},
		{"/-/healthz", answer{Status: 200, Body: "success"}},
		{"/-/routes", answer{Status: 200, Body: `{"/api":"api","/other":"other"}`}},
	} {
		got := r.get(tt.path)
		got.header = nil
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(answer{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.path, diff)
		}
	}
	checkStatus(t, r.get("/api"), 200) // so that all spans before it have ended
	for _, s := range r.spans.take(t, 3) {
		if route, ok := attr(s, "http.route"); ok && route.AsString() != "/api" {
			t.Errorf("span %q of route %q: only /api has spans", s.Name(), route.AsString())
		}
	}
	if n := len(r.access.take(t, "request", 2)); n != 2 {
		t.Errorf("%d access log lines, want those of /apix and /api", n)
	}
}
