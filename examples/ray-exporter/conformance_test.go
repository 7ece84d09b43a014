package rayexporter

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// The runner keeps every rule of the contract, with a function whose exporter writes the
// delivered span ids to a file.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "delivered")
	write(t, dir, "recorder.py", `
import os
import time

from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult


class Recorder(SpanExporter):
    def export(self, spans):
        names = {span.name for span in spans}
        if "retry" in names:
            return SpanExportResult.FAILURE
        if "slow" in names:
            time.sleep(1)
        with open(os.environ["DD_RECORDER_FILE"], "a") as file:
            file.writelines(span.context.span_id.to_bytes(8, "big").hex() + "\n" for span in spans)
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis=30000):
        return True


class Check(SpanProcessor):
    def on_start(self, span, parent_context=None):
        if span.name == "broken":
            raise LookupError(span.name)


def processors():
    return [Check(), BatchSpanProcessor(Recorder())]
`)
	script := fmt.Sprintf("#!/bin/sh\nPYTHONPATH='%s' exec '%s' -m servetrace.runner --path '%s' recorder:processors \"$@\"\n", pythonPath(t), python(t), dir)
	plugin := write(t, dir, "recorder", script)
	if err := os.Chmod(plugin, 0o700); err != nil {
		t.Fatal(err)
	}
	plugintest.Conformance(t, plugintest.Binary(plugin),
		plugintest.WithPatience(hellotest.Patience),
		plugintest.WithEnv("DD_RECORDER_FILE="+file),
		plugintest.WithBadConfig([]byte("key: value")),
		plugintest.WithInput(plugintest.Retryable, hellotest.Batch("retry")),
		plugintest.WithInput(plugintest.Permanent, hellotest.Batch("broken")),
		plugintest.WithInput(plugintest.Slow, hellotest.Batch("slow")),
		plugintest.WithReceived(hellotest.Delivered(file)))
}
