package main

import (
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestPluginBench measures a plugin and the built-in baseline: each has accepted spans,
// and the numbers fit together.
func TestPluginBench(t *testing.T) {
	plugin := testplugin.Install(t, "small:100")
	stdout, stderr, err := command(t, nil, "plugin", "bench", plugin, "--for", "500ms", "--calls", "2", "--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var results []benchResult
	if err := json.Unmarshal([]byte(stdout), &results); err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 || results[0].Plugin != plugin || results[1].Plugin != "does nothing" {
		t.Fatalf("%+v", results)
	}
	for _, r := range results {
		if r.Spans == 0 || r.SpansPerSecond <= 0 || r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.Max || r.CPU < 0 {
			t.Errorf("%+v", r)
		}
	}
}

// TestPluginBenchOfErrors: a plugin that accepts nothing is an error with the reason.
func TestPluginBenchOfErrors(t *testing.T) {
	plugin := testplugin.Install(t, "permanent")
	stdout, _, err := command(t, nil, "plugin", "bench", plugin, "--for", "100ms", "--baseline", testplugin.Install(t, "record"))
	if err == nil || exitCode(t.Context(), err) != exitNo || !strings.Contains(err.Error(), "spans not accepted") ||
		!strings.Contains(err.Error(), "the back end does not know this token") || !strings.Contains(stdout, "ratio") {
		t.Errorf("%v\n%s", err, stdout)
	}
	for flag, want := range map[string]string{
		"--for=1ms": "--for 1ms: want a duration of at least 100ms", "--calls=0": "--calls 0: want a number from 1 to 64",
		"--format=xml": `--format "xml": want json or proto`, "--spans=/nosuch": "open /nosuch: no such file or directory",
	} {
		if _, _, err := command(t, nil, "plugin", "bench", plugin, flag); err == nil || !strings.Contains(err.Error(), want) || exitCode(t.Context(), err) != exitUsage {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
}

// TestWithoutProcessors: the baseline of a configuration is the configuration without its
// processors.
func TestWithoutProcessors(t *testing.T) {
	for document, want := range map[string]string{
		"processors: [raycontext]\nexporter: {compression: gzip}\n": "exporter:\n    compression: gzip\n",
		`{"processors": ["raycontext"]}`:                            "{}\n",
		"exporter: {compression: gzip}":                             "",
		"no document":                                               "",
	} {
		got, ok := withoutProcessors(map[string]host.PluginConfig{"p": {Document: []byte(document)}})
		if ok != (want != "") || ok && string(got["p"].Document) != want {
			t.Errorf("%s: %q, %v; want %q", document, got["p"].Document, ok, want)
		}
	}
}

// TestCPUOfAProcess: the CPU of this process grows, and that of no process is not known.
func TestCPUOfAProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("not known here")
	}
	for deadline := time.Now().Add(time.Minute); cpuOf(os.Getpid()) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no CPU after a minute of work")
		}
	}
	if got := cpuOf(0); got != 0 {
		t.Errorf("process 0: %v", got)
	}
}
