package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// filtering has a processor that drops some spans.
const filtering = `
processors:
  - filter: {drop: [{name: "dropped *"}]}
`

// TestConformance: the plugin obeys every rule of the contract: with drawings, as a process
// and in this one, and with files of JSON, which show the spans that have arrived.
func TestConformance(t *testing.T) {
	filtered := request("dropped span")
	filtered.ResourceSpans = append(filtered.ResourceSpans, request("kept span").GetResourceSpans()...)
	options := func(env ...string) []plugintest.Option {
		return []plugintest.Option{
			plugintest.WithEnv(append(env, "SERVE_RAY_CONTEXT=on")...),
			plugintest.WithConfig([]byte(filtering)),
			plugintest.WithInput(plugintest.Filtered, filtered),
			plugintest.WithBadConfig([]byte("exporter: {format: xml}")),
		}
	}
	t.Run("process", func(t *testing.T) {
		plugintest.Conformance(t, binary(t), options("SERVE_CONSOLE_FORMAT=pretty")...)
	})
	t.Run("in-process", func(t *testing.T) {
		plugintest.Conformance(t, plugintest.InProcess(consoleexporter.Spec), options("SERVE_CONSOLE_FORMAT=pretty")...)
	})
	t.Run("files", func(t *testing.T) {
		dir := t.TempDir()
		plugintest.Conformance(t, binary(t), append(options("SERVE_CONSOLE_OUTPUT="+dir),
			plugintest.WithReceived(func() ([]string, error) { return spansIn(dir) }))...)
	})
}

func binary(t *testing.T) plugintest.Target {
	t.Helper()
	return plugintest.Binary(os.Args[0], envPlugin+"=1", "GOCOVERDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
}

// spansIn gives the ids of the spans that are in the files of a folder.
func spansIn(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_tracing.json"))
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		// Other rules fill the files with megabytes, too much to decode. Deeper ids are ids
		// of links.
		for _, part := range bytes.Split(content, []byte("\n        \"span_id\": \"0x"))[1:] {
			id, _, _ := strings.Cut(string(part[:min(len(part), 17)]), `"`)
			ids = append(ids, id)
		}
	}
	return ids, nil
}
