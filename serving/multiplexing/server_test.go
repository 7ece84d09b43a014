package multiplexing_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/multiplexing"
)

// serve has a server with the deployment, and gives its URL.
func serve(t testing.TB, d *serving.Deployment, opts ...serving.AppOption) string {
	t.Helper()
	server, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"},
		[]*serving.App{serving.NewApp("a", d, opts...)}, serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return "http://" + server.Addr().String() + "/"
}

// get asks for a model.
func get(t testing.TB, url, id string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		req.Header.Set("serve_multiplexed_model_id", id)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

// counted is models that count their loads.
type counted struct {
	mu    sync.Mutex
	loads map[string]int
}

func (c *counted) load(_ context.Context, id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loads[id]++
	return id, nil
}

// answer is a handler that tells model and replica.
func answer(m *multiplexing.Models[string]) serving.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		model, err := m.Get(r.Context())
		if err != nil {
			return err
		}
		where, _ := serving.ReplicaContext(r.Context())
		_, err = fmt.Fprint(w, model, " in ", where.ReplicaID.UniqueID)
		return err
	}
}

// TestRouterPrefersReplicasWithTheModel: three replicas with room for two models each
// serve six models, and each model is loaded once, by one replica.
func TestRouterPrefersReplicasWithTheModel(t *testing.T) {
	c := &counted{loads: map[string]int{}}
	m := multiplexing.New(c.load, multiplexing.WithMaxModels(2))
	url := serve(t, serving.NewDeployment("D", answer(m), serving.WithReplicas(3)))
	want := map[string]int{}
	where := map[string]string{}
	for round := range 20 {
		for i := range 6 {
			id := fmt.Sprint("m", i)
			want[id] = 1
			got := get(t, url, id)
			if round > 0 && got != where[id] {
				t.Errorf("round %d: %q, and before %q", round, got, where[id])
			}
			where[id] = got
		}
	}
	if diff := cmp.Diff(want, c.loads); diff != "" {
		t.Errorf("loads (-want +got):\n%s", diff)
	}
}

// TestConcurrentRequestsForAModel load it once, wherever they come.
func TestConcurrentRequestsForAModel(t *testing.T) {
	release := make(chan struct{})
	c := &counted{loads: map[string]int{}}
	m := multiplexing.New(func(ctx context.Context, id string) (string, error) {
		<-release
		return c.load(ctx, id)
	})
	url := serve(t, serving.NewDeployment("D", answer(m), serving.WithReplicas(2), serving.WithMaxOngoingRequests(100)))
	var wg sync.WaitGroup
	ask := func() { wg.Go(func() { get(t, url, "a") }) }
	ask()
	for range 20 {
		ask()
	}
	close(release)
	wg.Wait()
	// The first two may have come at once, before a replica had told.
	if n := c.loads["a"]; n < 1 || n > 2 {
		t.Errorf("%d loads", n)
	}
}

// TestModelByHandle goes the same way as one by header.
func TestModelByHandle(t *testing.T) {
	c := &counted{loads: map[string]int{}}
	m := multiplexing.New(c.load, multiplexing.WithMaxModels(1))
	d := serving.NewDeployment("Models", nil, serving.WithReplicas(2))
	model := serving.AddFunction(d, "", func(ctx context.Context, _ string) (string, error) {
		return m.Get(ctx)
	})
	ingress := serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		for _, id := range []string{"a", "b", "a", "b", "a"} {
			got, err := model.WithModelID(id).Call(r.Context(), "")
			if err != nil {
				return err
			}
			_, _ = io.WriteString(w, got)
		}
		return nil
	})
	url := serve(t, serving.NewDeployment("Ingress", ingress), serving.WithDeployments(d))
	for range 10 {
		if got := get(t, url, "not for the callee"); got != "200 ababa" {
			t.Errorf("%s", got)
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1}, c.loads); diff != "" {
		t.Errorf("loads (-want +got):\n%s", diff)
	}
}

func TestNoModel(t *testing.T) {
	m := multiplexing.New(func(_ context.Context, id string) (string, error) { return id, nil })
	url := serve(t, serving.NewDeployment("D", answer(m)))
	if got := get(t, url, ""); got != "500 Internal Server Error" {
		t.Errorf("%s", got)
	}
}
