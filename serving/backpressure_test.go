package serving

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestBackpressure: what a client is told for which there is no place, by the
// deployment's word or the server's.
func TestBackpressure(t *testing.T) {
	const text = "Request dropped due to backpressure (num_queued_requests=0, max_queued_requests=0)."
	for _, tt := range []struct {
		name  string
		cfg   Config
		opts  []DeploymentOption
		want  int
		after string
	}{
		{"by default", Config{}, nil, 503, ""},
		{"by the server", Config{BackpressureStatus: 429, BackpressureRetryAfter: time.Millisecond}, nil, 429, "1"},
		{"by the deployment", Config{BackpressureStatus: 429}, []DeploymentOption{WithBackpressure(503, 2*time.Second)}, 503, "2"},
		{"rounded up", Config{}, []DeploymentOption{WithBackpressure(429, 2*time.Second+1)}, 429, "3"},
		{"without a pause", Config{BackpressureRetryAfter: time.Second}, []DeploymentOption{WithBackpressure(429, 0)}, 429, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			entered, leave := make(chan bool, 1), make(chan bool)
			r := start(t, tt.cfg, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				entered <- true
				<-leave
			}), append(tt.opts, WithMaxOngoingRequests(1), WithMaxQueuedRequests(0))...)
			first := make(chan answer, 1)
			go func() { first <- r.get("/") }()
			receive(t, "the first request", entered)
			got := r.get("/")
			if got.Status != tt.want || got.Body != text || got.header.Get("Retry-After") != tt.after {
				t.Errorf("status %d, body %q, Retry-After %q, want %d and %q", got.Status, got.Body, got.header.Get("Retry-After"), tt.want, tt.after)
			}
			close(leave)
			checkStatus(t, receive(t, "the first answer", first), 200)
		})
	}
}

// TestBackpressureOfAnother: a handler passes on what another deployment says.
func TestBackpressureOfAnother(t *testing.T) {
	r := start(t, Config{}, HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		return &QueueFullError{Deployment: "E", StatusCode: 429, RetryAfter: 1500 * time.Millisecond}
	}))
	if got := r.get("/"); got.Status != 429 || got.header.Get("Retry-After") != "2" {
		t.Errorf("status %d, Retry-After %q", got.Status, got.header.Get("Retry-After"))
	}
}

func TestBackpressureFaults(t *testing.T) {
	d := NewDeployment("D", http.NotFoundHandler(), WithBackpressure(500, -1))
	_, err := New(Config{BackpressureStatus: 400, BackpressureRetryAfter: -1}, []*App{NewApp("a", d)})
	want := `BackpressureRetryAfter -1ns: want zero or more
BackpressureStatus 400: want 503 or 429
app "a": deployment "D": backpressure status 500: want 503 or 429
backpressure retry after -1ns: want zero or more`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// TestTimeoutOfApp: an app's own goes over the server's, also without a limit.
func TestTimeoutOfApp(t *testing.T) {
	waits := func(name string, opts ...AppOption) *App {
		return NewApp(name, NewDeployment("D", HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			if _, limited := r.Context().Deadline(); !limited {
				_, err := io.WriteString(w, "no limit")
				return err
			}
			<-r.Context().Done()
			return r.Context().Err()
		})), append(opts, WithRoutePrefix("/"+name))...)
	}
	r := startApps(t, Config{RequestTimeout: shortTimeout},
		waits("server"), waits("longer", WithRequestTimeout(2*shortTimeout)), waits("none", WithRequestTimeout(0)))
	for path, want := range map[string]string{
		"/server": "timed out after 0.05s.", "/longer": "timed out after 0.1s.", "/none": "no limit",
	} {
		if got := r.get(path); !strings.HasSuffix(got.Body, want) {
			t.Errorf("%s: %d %q, want %q", path, got.Status, got.Body, want)
		}
	}
}
