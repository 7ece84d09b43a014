package pythonplugin

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

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
		plugintest.WithPatience(hellotest.Patience),
		plugintest.WithEnv("SPAN_LINES_TEAM=ml"),
		plugintest.WithConfig([]byte(`{"attributes": {"region": "eu"}, "drop": ["noise"]}`)),
		plugintest.WithBadConfig([]byte(`{"drop": "noise"}`)),
		plugintest.WithInput(plugintest.Filtered, hellotest.Batch("noise", "signal")))
}

// The module keeps them with every answer that it can give.
func TestConformanceOfAnswers(t *testing.T) {
	path, file := answers(t), filepath.Join(t.TempDir(), "delivered")
	plugintest.Conformance(t, plugintest.Binary(path),
		plugintest.WithPatience(hellotest.Patience),
		plugintest.WithEnv("ANSWERS_FILE="+file),
		plugintest.WithInput(plugintest.Permanent, hellotest.Batch("permanent")),
		plugintest.WithInput(plugintest.Retryable, hellotest.Batch("retry")),
		plugintest.WithInput(plugintest.Partial, hellotest.Batch("partial", "fine")),
		plugintest.WithInput(plugintest.Filtered, hellotest.Batch("keep", "drop")),
		plugintest.WithInput(plugintest.Slow, hellotest.Batch("slow")),
		plugintest.WithReceived(hellotest.Delivered(file)))
}
