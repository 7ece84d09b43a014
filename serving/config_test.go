package serving_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestConfigFromEnv(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  func(string) string
		want serving.Config
	}{
		{"nothing", env(), serving.Config{}},
		{"host", env(serving.EnvHTTPHost, "::1"), serving.Config{HTTPAddr: "[::1]:8000"}},
		{"port", env(serving.EnvHTTPPort, "0"), serving.Config{HTTPAddr: "127.0.0.1:0"}},
		{"all", env(serving.EnvHTTPHost, "0.0.0.0", serving.EnvHTTPPort, "80", serving.EnvRequestTimeout, "1m30s", serving.EnvShutdownTimeout, "5s",
			serving.EnvReadHeaderTimeout, "2s", serving.EnvKeepAliveTimeout, "3s", serving.EnvMaxHeaderBytes, "8192",
			serving.EnvStallTimeout, "4s", serving.EnvMinDrainingPeriod, "6s", serving.EnvAccessLog, "false",
			serving.EnvBackpressureStatus, "429", serving.EnvBackpressureRetryAfter, "2500ms"),
			serving.Config{HTTPAddr: "0.0.0.0:80", RequestTimeout: 90 * time.Second, ShutdownTimeout: 5 * time.Second,
				ReadHeaderTimeout: 2 * time.Second, IdleTimeout: 3 * time.Second, StallTimeout: 4 * time.Second, MaxHeaderBytes: 8192,
				MinDrainingPeriod: 6 * time.Second, QuietAccessLog: true, BackpressureStatus: 429, BackpressureRetryAfter: 2500 * time.Millisecond}},
		{"in a pod", env("KUBERNETES_SERVICE_HOST", "10.96.0.1"), serving.Config{MinDrainingPeriod: 3 * time.Second}},
		{"in a pod, with the port of the API", env("KUBERNETES_SERVICE_HOST", "fd00::1", "KUBERNETES_SERVICE_PORT", "443", serving.EnvMinDrainingPeriod, "0s"),
			serving.Config{Calls: serving.CallConfig{KubernetesAPI: "[fd00::1]:443"}}},
		{"in a pod, switched off", env("KUBERNETES_SERVICE_HOST", "10.96.0.1", serving.EnvMinDrainingPeriod, "0s"), serving.Config{}},
		{"no stall timeout", env(serving.EnvStallTimeout, "0"), serving.Config{StallTimeout: -1}},
	} {
		got, err := serving.ConfigFromEnv(tt.env)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: Validate: %v", tt.name, err)
		}
	}
}

func TestConfigFaultsAllAtOnce(t *testing.T) {
	_, err := serving.ConfigFromEnv(env(serving.EnvHTTPPort, "eighty", serving.EnvRequestTimeout, "30", serving.EnvMaxHeaderBytes, "1", serving.EnvAccessLog, "no", serving.EnvBackpressureStatus, "500"))
	want := `SERVE_REQUEST_TIMEOUT="30": want a duration of zero or more, such as 30s or 1m30s
SERVE_BACKPRESSURE_STATUS="500": want 503 or 429
SERVE_HTTP_MAX_HEADER_BYTES="1": want a whole number from 4096 to 16777216
SERVE_ACCESS_LOG="no": want true or false
SERVE_HTTP_PORT="eighty": want a whole number from 0 to 65535`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}

	err = serving.Config{HTTPAddr: "localhost", RequestTimeout: -1, IdleTimeout: -time.Second, MaxHeaderBytes: 10}.Validate()
	want = `HTTPAddr "localhost": want host:port: address localhost: missing port in address
RequestTimeout -1ns: want zero or more
IdleTimeout -1s: want zero or more
MaxHeaderBytes 10: want 4096 to 16777216`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// TestZeroIsRefused: the settings that docs/reference/settings.md wants above 0.
func TestZeroIsRefused(t *testing.T) {
	for _, name := range []string{
		serving.EnvShutdownTimeout, serving.EnvKeepAliveTimeout, serving.EnvReadHeaderTimeout,
		serving.EnvGRPCConnectionTimeout, serving.EnvGRPCKeepaliveTime, serving.EnvGRPCKeepaliveMinTime,
	} {
		_, err := serving.ConfigFromEnv(env(name, "0s"))
		if want := name + `="0s": want a duration above zero, such as 30s or 1m30s`; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestNewFaultsAllAtOnce(t *testing.T) {
	ok := serving.NewDeployment("D", http.NotFoundHandler())
	bad := serving.NewDeployment("D#1", nil, serving.WithReplicas(0), serving.WithMaxOngoingRequests(0), serving.WithMaxQueuedRequests(-2))
	_, err := serving.New(serving.Config{HTTPAddr: "x:99999"}, []*serving.App{
		serving.NewApp("a", ok), serving.NewApp("a", ok, serving.WithRoutePrefix("/")), serving.NewApp("b/c", bad, serving.WithRoutePrefix("/x/")), nil, serving.NewApp("d", nil),
	})
	want := `HTTPAddr "x:99999": want a port from 0 to 65535
app "a": name used twice
app "a": route prefix "/" already belongs to app "a"
app "b/c": name "b/c": want 1 to 63 letters, digits, '-', '_' or '.'
route prefix "/x/": want "/" or a clean path such as /api, without wildcards, outside /-/
deployment "D#1": name "D#1": want 1 to 63 letters, digits, '-', '_' or '.'
no handler, and no gRPC service
replicas 0: want 1 or more
max_ongoing_requests 0: want 1 or more
max_queued_requests -2: want -1 (no limit), 0 or more
app 3 is nil
app "d": no ingress deployment
app "d": route prefix "/" already belongs to app "a"`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
	if _, err := serving.New(serving.Config{}, nil); err == nil || err.Error() != "no apps" {
		t.Errorf("without apps: %v", err)
	}
}

func TestRoutePrefixes(t *testing.T) {
	for p, want := range map[string]bool{
		"/": true, "/api": true, "/api/v2": true, "/-x": true, "/a b": true,
		"": false, "api": false, "/api/": false, "/a//b": false, "/a/../b": false,
		"/{x}": false, "/a?b": false, "/-": false, "/-/routes": false, "/%61": false,
	} {
		if serving.ValidPrefix(p) != want {
			t.Errorf("prefix %q: valid %v, want %v", p, !want, want)
		}
	}
}
