package serving_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// TestBackpressure: what a client is told for which there is no place, by the
// deployment's word or the server's.
func TestBackpressure(t *testing.T) {
	const text = "Request dropped due to backpressure (num_queued_requests=0, max_queued_requests=0)."
	for _, tt := range []struct {
		name  string
		cfg   serving.Config
		opts  []serving.DeploymentOption
		want  int
		after string
	}{
		{"by default", serving.Config{}, nil, 503, ""},
		{"by the server", serving.Config{BackpressureStatus: 429, BackpressureRetryAfter: time.Millisecond}, nil, 429, "1"},
		{"by the deployment", serving.Config{BackpressureStatus: 429}, []serving.DeploymentOption{serving.WithBackpressure(503, 2*time.Second)}, 503, "2"},
		{"rounded up", serving.Config{}, []serving.DeploymentOption{serving.WithBackpressure(429, 2*time.Second+1)}, 429, "3"},
		{"without a pause", serving.Config{BackpressureRetryAfter: time.Second}, []serving.DeploymentOption{serving.WithBackpressure(429, 0)}, 429, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			entered, leave := make(chan bool, 1), make(chan bool)
			r := start(t, tt.cfg, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				entered <- true
				<-leave
			}), append(tt.opts, serving.WithMaxOngoingRequests(1), serving.WithMaxQueuedRequests(0))...)
			first := make(chan answer, 1)
			go func() { first <- r.get("/") }()
			servingtest.Receive(t, "the first request", entered)
			got := r.get("/")
			if got.Status != tt.want || got.Body != text || got.header.Get("Retry-After") != tt.after {
				t.Errorf("status %d, body %q, Retry-After %q, want %d and %q", got.Status, got.Body, got.header.Get("Retry-After"), tt.want, tt.after)
			}
			close(leave)
			checkStatus(t, servingtest.Receive(t, "the first answer", first), 200)
		})
	}
}

// TestBackpressureOfAnother: a handler passes on what another deployment says.
func TestBackpressureOfAnother(t *testing.T) {
	r := start(t, serving.Config{}, serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		return &serving.QueueFullError{Deployment: "E", StatusCode: 429, RetryAfter: 1500 * time.Millisecond}
	}))
	if got := r.get("/"); got.Status != 429 || got.header.Get("Retry-After") != "2" {
		t.Errorf("status %d, Retry-After %q", got.Status, got.header.Get("Retry-After"))
	}
}

func TestBackpressureFaults(t *testing.T) {
	d := serving.NewDeployment("D", http.NotFoundHandler(), serving.WithBackpressure(500, -1))
	_, err := serving.New(serving.Config{BackpressureStatus: 400, BackpressureRetryAfter: -1}, []*serving.App{serving.NewApp("a", d)})
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
	waits := func(name string, opts ...serving.AppOption) *serving.App {
		return serving.NewApp(name, serving.NewDeployment("D", serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			if _, limited := r.Context().Deadline(); !limited {
				_, err := io.WriteString(w, "no limit")
				return err
			}
			<-r.Context().Done()
			return r.Context().Err()
		})), append(opts, serving.WithRoutePrefix("/"+name))...)
	}
	r := startApps(t, serving.Config{RequestTimeout: shortTimeout},
		waits("server"), waits("longer", serving.WithRequestTimeout(2*shortTimeout)), waits("none", serving.WithRequestTimeout(0)))
	for path, want := range map[string]string{
		"/server": "timed out after 0.05s.", "/longer": "timed out after 0.1s.", "/none": "no limit",
	} {
		if got := r.get(path); !strings.HasSuffix(got.Body, want) {
			t.Errorf("%s: %d %q, want %q", path, got.Status, got.Body, want)
		}
	}
}
