package batching_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// service is an app of two deployments over a real socket: requests go to a
// handler that has them batched, and the batch calls the other deployment by
// handle.
type service struct {
	server *serving.Server
	spans  *tracetest.SpanRecorder
	// began has a token for each batch that runs. It calls the handle once resume
	// is closed.
	began  chan struct{}
	resume chan struct{}
}

func start(t *testing.T) *service {
	t.Helper()
	s := &service{spans: tracetest.NewSpanRecorder(), began: make(chan struct{}, 10), resume: make(chan struct{})}
	cfg, err := tracing.ConfigFromEnv(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	tp, err := tracing.NewProvider(cfg, s.spans)
	if err != nil {
		t.Fatal(err)
	}
	lookUp := serving.NewDeployment("Store", nil)
	names := serving.AddFunction(lookUp, "names", func(_ context.Context, ids []string) ([]string, error) {
		names := make([]string, len(ids))
		for i, id := range ids {
			names[i] = "name of " + id
		}
		return names, nil
	})
	model := serving.NewDeployment("Model", nil, serving.WithMaxOngoingRequests(100))
	batcher := batching.New("resolve", func(ctx context.Context, ids []string) ([]string, error) {
		s.began <- struct{}{}
		<-s.resume
		return names.Call(ctx, ids)
	}, batching.WithMaxBatchSize(2), batching.WithWaitTimeout(time.Minute))
	resolve := serving.AddFunction(model, "resolve", batcher.Do)
	ingress := serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		name, err := resolve.Call(r.Context(), r.URL.Query().Get("id"))
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, name)
		return err
	})
	app := serving.NewApp("a", serving.NewDeployment("Ingress", ingress, serving.WithMaxOngoingRequests(100)),
		serving.WithDeployments(model, lookUp))
	s.server, err = serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"}, []*serving.App{app},
		serving.WithTracing(tp), serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stop(t)
		_ = tp.Shutdown(context.Background())
	})
	return s
}

// stop ends the server, with all that is under way.
func (s *service) stop(t *testing.T) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), servingtest.Patience)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// get sends a request in the trace of a letter, and returns a channel for the answer.
func (s *service) get(ctx context.Context, t *testing.T, id, letter string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.server.Addr().String()+"/?id="+id, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", "00-"+strings.Repeat(letter, 32)+"-00f067aa0ba902b7-01")
	ch := make(chan string, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			ch <- "gone"
			return
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		ch <- fmt.Sprint(resp.StatusCode, " ", string(body))
	}()
	return ch
}

// queued waits until this many requests wait for a batch.
func (s *service) queued(t *testing.T, want float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(s.server.Collector()); err != nil {
		t.Fatal(err)
	}
	length := func() (n float64) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "serve_batch_queue_length" {
				n += f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return n
	}
	servingtest.Await(t, fmt.Sprintf("%v requests in the queue", want), func() bool { return length() == want })
}

// way returns the names of a span and of its parents, and the letter of their trace.
func (s *service) way(name string) string {
	all := s.spans.Ended()
	var names []string
	letter := ""
	for _, span := range all {
		if span.Name() != name {
			continue
		}
		letter = span.SpanContext().TraceID().String()[:1]
		for at := span; at != nil; {
			names = append(names, at.Name())
			parent := at.Parent().SpanID()
			at = nil
			for _, other := range all {
				if other.SpanContext().SpanID() == parent {
					at = other
				}
			}
		}
	}
	return strings.Join(names, " < ") + " (" + letter + ")"
}

const wayOfTheCall = "replica_handle_request Store names < route_to_replica Store names < batch_execute Model resolve < " +
	"replica_handle_request Model resolve < route_to_replica Model resolve < replica_handle_request Ingress __call__ < " +
	"route_to_replica Ingress __call__ < proxy_http_request Ingress GET / (a)"

// TestCallsOfABatch are under its span, in the trace of its first request, also
// when that has left before, and while the server drains.
func TestCallsOfABatch(t *testing.T) {
	for _, tc := range []struct {
		name  string
		leave bool
		want  []string
	}{
		{"all wait", false, []string{"200 name of 1", "200 name of 2"}},
		{"the first has left", true, []string{"gone", "200 name of 2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			first := s.get(ctx, t, "1", "a")
			s.queued(t, 1) // before the other
			second := s.get(t.Context(), t, "2", "b")
			servingtest.Receive(t, "the batch", s.began)
			if tc.leave {
				leave()
				first = answered(servingtest.Receive(t, "the first", first))
			}
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				s.stop(t)
			}()
			awaitDraining(t, s)
			close(s.resume)
			got := []string{servingtest.Receive(t, "the first", first), servingtest.Receive(t, "the second", second)}
			servingtest.Receive(t, "the end of the server", stopped)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wayOfTheCall, s.way("replica_handle_request Store names")); diff != "" {
				t.Errorf("the call and its parents (-want +got):\n%s", diff)
			}
		})
	}
}

// answered is a channel with the answer.
func answered(a string) <-chan string {
	ch := make(chan string, 1)
	ch <- a
	return ch
}

// awaitDraining waits until the server takes no new requests.
func awaitDraining(t *testing.T, s *service) {
	t.Helper()
	servingtest.Await(t, "the end of readiness", func() bool {
		resp, err := http.Get("http://" + s.server.Addr().String() + "/-/healthz")
		if err != nil {
			return true // not even connections
		}
		_ = resp.Body.Close()
		return resp.StatusCode != http.StatusOK
	})
}
