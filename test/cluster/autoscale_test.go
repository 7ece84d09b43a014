//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// stream is the service file of examples/streaming with a model in pods of its own. A
// request takes two seconds, and a pod runs four at a time, of which the autoscaler aims at
// two.
const stream = `call_options: {remote: [Generator=dns:///model.default.svc:9100]}
applications:
  - deployments: [{name: Generator, num_replicas: 1, max_ongoing_requests: 4}]
`

// fast removes pods ten seconds after the need for them has ended.
const fast = `  - target: {kind: HorizontalPodAutoscaler}
    patch: |
      - {op: replace, path: /spec/behavior/scaleDown/stabilizationWindowSeconds, value: 10}
`

// TestAutoscalersFollowTheLoad has autoscalers of "servetrace render" that read the metrics
// of pods from Prometheus Adapter.
func TestAutoscalersFollowTheLoad(t *testing.T) {
	const spansEach = 5
	dir := t.TempDir()
	file, rendered := filepath.Join(dir, "serve.yaml"), filepath.Join(dir, "rendered.yaml")
	if err := os.WriteFile(file, []byte(stream), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rendered, render(t, file, "--autoscale", "hpa", "--image", "bed.test/streaming:1"), 0o600); err != nil {
		t.Fatal(err)
	}
	apply(t, "-f", "adapter/adapter.yaml", "-f", manifests+"prometheus-adapter.yaml")
	deploy(t, fast+cache("10"), rendered)
	// New pods get new connections only.
	request := []string{"-url", service + "/text?about=the+sea", "-timeout", "30s", "-rate", "1000", "-fresh"}
	rollout(t, "app")
	rollout(t, "model")
	awaitService(t, request, spansEach)

	before := countSpans(t)
	// Three requests at a time are for two pods, and 19 for ten.
	few := startLoad(t, append(request, "-callers", "3")...)
	awaitPods(t, "model", 2, 2)
	many := startLoad(t, append(request, "-callers", "16")...)
	awaitPods(t, "model", 6, 10)
	pass(t, 5*time.Second)
	during := many.stop(t)
	awaitPods(t, "model", 2, 2)
	pass(t, 8*time.Second) // requests to pods that stop end
	after := few.stop(t)

	ok := 0
	for name, r := range map[string]result{"many": during, "few": after} {
		t.Logf("%s: %d requests, errors %v, p50 %v, max %v", name, r.Requests, r.Errors, r.P50, r.Max)
		if ok += r.OK; r.OK != r.Requests || r.OK == 0 {
			t.Errorf("%s: %d of %d requests failed, none may: %v", name, r.Requests-r.OK, r.Requests, r.Errors)
		}
	}
	if got, want := awaitSpans(t, before+spansEach*ok)-before, spansEach*ok; got != want {
		t.Errorf("%d spans, want %d", got, want)
	}
}

// awaitPods waits until an autoscaler wants from least to most pods, and they run.
func awaitPods(t *testing.T, name string, least, most int) {
	t.Helper()
	begin, seen := time.Now(), ""
	for {
		// Both fields are absent at first.
		wanted := kubectl(t, "get", "hpa", name, "-o", "jsonpath={.status.desiredReplicas}")
		ready := kubectl(t, "get", "deployment", name, "-o", "jsonpath={.status.readyReplicas}")
		if now := wanted + " wanted, " + ready + " ready"; now != seen {
			seen = now
			t.Logf("%s after %s: %s", name, time.Since(begin).Round(time.Second), now)
		}
		if n, err := strconv.Atoi(wanted); err == nil && n >= least && n <= most && ready == wanted {
			return
		}
		if time.Since(begin) > readyTimeout {
			t.Fatalf("%s: want %d to %d pods\n%s", name, least, most, kubectl(t, "describe", "hpa", name))
		}
		pass(t, time.Second)
	}
}
