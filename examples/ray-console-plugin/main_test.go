package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/examples/servicetest"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// name is the name of this test binary as the plugin.
const name = "ray-console-plugin"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == name {
		main() // exits
	}
	hellotest.Main(m)
}

// Every span of a request has Ray's identity: the one request id, the job of the
// variable, and ids that are parts of each other.
func TestRayIdentityOnSpansOfHello(t *testing.T) {
	const job = "01020304"
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, name), "RAY_JOB_ID="+job)
	s.Get("/", "r1")
	s.Get("/fail", "r2")
	s.Await(s.Stdout, `(?m)^}$`, 2*hellotest.SpansOfRequest)
	s.Stop()

	requests := map[string]int{}
	actors := map[string]bool{}
	for _, span := range servicetest.Spans(t, s.Stdout.String()) {
		id := func(key string) string { text, _ := span.Attributes[key].(string); return text }
		task, actor, request := id("ray.task_id"), id("ray.actor_id"), id("ray.request_id")
		if id("ray.job_id") != job || len(task) != 48 || len(actor) != 32 || !strings.HasSuffix(task, actor) || !strings.HasSuffix(actor, job) {
			t.Errorf("span %q has job %q, actor %q and task %q; want job %s, and each the end of the next",
				span.Name, id("ray.job_id"), actor, task, job)
		}
		if request != id("serve.request_id") || task != id("serve.task_id") {
			t.Errorf("span %q has request %q and task %q, want what serve.* says: %v", span.Name, request, task, span.Attributes)
		}
		requests[request]++
		actors[actor] = true
	}
	if len(requests) != 2 || requests["r1"] != hellotest.SpansOfRequest || requests["r2"] != hellotest.SpansOfRequest {
		t.Errorf("spans by request: %v, want four of each of r1 and r2", requests)
	}
	if len(actors) < 2 { // the proxy, and one or both replicas
		t.Errorf("actors %v, want those of the proxy and of a replica", actors)
	}
}

func TestConformance(t *testing.T) {
	plugintest.Conformance(t, plugintest.Binary(hellotest.Self(t, name), "GORACE=atexit_sleep_ms=0"))
}
