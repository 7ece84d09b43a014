package pythonplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// spanNumber numbers the spans of this test binary.
var spanNumber atomic.Uint64

// request is a batch of spans of these names, as a host sends it.
func request(names ...string) *coltracepb.ExportTraceServiceRequest {
	scope := &tracepb.ScopeSpans{}
	for _, name := range names {
		scope.Spans = append(scope.Spans, &tracepb.Span{
			Name:              name,
			TraceId:           []byte("0123456789abcdef"),
			SpanId:            fmt.Appendf(nil, "%08d", spanNumber.Add(1)),
			StartTimeUnixNano: 1,
			EndTimeUnixNano:   2,
		})
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{scope},
	}}}
}

// answers gives the path of the plugin of testdata/answers.py.
func answers(t *testing.T) string {
	t.Helper()
	program := filepath.Join("testdata", "answers.py")
	if _, err := os.ReadFile(program); err != nil { // so that go test knows of it
		t.Fatal(err)
	}
	return executable(t, program)
}

// executable returns the path of a plugin that runs program with the package. Its folder
// has a space and a percent sign, to test quoting.
func executable(t *testing.T, program string) string {
	t.Helper()
	here := filepath.Dir(plugin(t))
	program, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "100% a b")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "answers")
	script := fmt.Sprintf("#!/bin/sh\nPYTHONPATH='%[1]s/../../python' exec '%[1]s/.venv/bin/python' '%[2]s' \"$@\"\n", here, program)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// The example keeps every rule of the contract.
func TestConformance(t *testing.T) {
	plugintest.Conformance(t, plugintest.Binary(plugin(t)),
		plugintest.WithPatience(time.Minute),
		plugintest.WithEnv("SPAN_LINES_TEAM=ml"),
		plugintest.WithConfig([]byte(`{"attributes": {"region": "eu"}, "drop": ["noise"]}`)),
		plugintest.WithBadConfig([]byte(`{"drop": "noise"}`)),
		plugintest.WithInput(plugintest.Filtered, request("noise", "signal")))
}

// The module keeps them with every answer that it can give.
func TestConformanceOfAnswers(t *testing.T) {
	path, file := answers(t), filepath.Join(t.TempDir(), "delivered")
	plugintest.Conformance(t, plugintest.Binary(path),
		plugintest.WithPatience(time.Minute),
		plugintest.WithEnv("ANSWERS_FILE="+file),
		plugintest.WithInput(plugintest.Permanent, request("permanent")),
		plugintest.WithInput(plugintest.Retryable, request("retry")),
		plugintest.WithInput(plugintest.Partial, request("partial", "fine")),
		plugintest.WithInput(plugintest.Filtered, request("keep", "drop")),
		plugintest.WithInput(plugintest.Slow, request("slow")),
		plugintest.WithReceived(func() ([]string, error) {
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil
			}
			return strings.Fields(string(text)), err
		}))
}
