package seeds

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/examples/hellotest"
)

// runnerEnviron returns the variables with which a service runs the guide's exporter
// functions.
func runnerEnviron(t *testing.T) []string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"SERVE_TRACING_PYTHON=" + *python,
		"PYTHONPATH=" + filepath.Join(root, "python") + ":" + filepath.Join(root, "examples", "ray-exporter", "guide"),
	}
}

// consoleFunction runs the guide's exporter_dev.py.
func consoleFunction(t *testing.T, environ []string) {
	s := start(t, "hello", nil, append(environ, "SERVE_TRACING_EXPORTER_PLUGIN=python:exporter_dev:debug_span_processor")...)
	get(t, s.URL, nil)
	s.Stop()
	if n := strings.Count(s.Stdout.String(), `"trace_id": "0x`); n != hellotest.SpansOfRequest {
		t.Errorf("%d spans are printed", n)
	}
}

// datadogFunction runs the guide's exporter_dd.py.
func datadogFunction(t *testing.T, environ []string) {
	r := hellotest.StartReceiver(t)
	s := start(t, "hello", nil, append(environ, "SERVE_TRACING_EXPORTER_PLUGIN=python:exporter_dd:anyscale_span_processors", "OTEL_EXPORTER_OTLP_ENDPOINT="+r.URL)...)
	if status, _, _ := get(t, s.URL, header("X-Request-Id", "r-1")); status != 200 {
		t.Errorf("status %d", status)
	}
	s.Stop()
	wantIdentity(t, arrived(r))
}
