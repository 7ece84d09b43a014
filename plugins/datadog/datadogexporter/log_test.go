package datadogexporter

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/servetrace/servetrace/test/testplugin"
)

// TestTracerLog: each text is logged once, and lines beyond the bound are counted.
func TestTracerLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := new(testplugin.Log)
		log := newTracerLog(slog.New(slog.NewTextHandler(out, nil)))
		write := func(text string) { log.Log("Datadog Tracer v2.12.0 WARN: " + text) }
		lines := func() int { return strings.Count(out.String(), "\n") }
		write("lost 1 of 2 traces")
		write("lost 3 of 4 traces")
		if got := out.String(); lines() != 1 || !strings.Contains(got, `level=WARN msg="Datadog tracer: lost 1 of 2 traces"`) {
			t.Errorf("log %q", got)
		}
		for i := range maxTexts + 2 { // three of them beyond the bound
			write(fmt.Sprintf("text %s", strings.Repeat("x", i)))
		}
		if lines() != maxTexts {
			t.Errorf("%d lines, want %d", lines(), maxTexts)
		}
		time.Sleep(time.Minute)
		write("another")
		if got := out.String(); lines() != maxTexts+2 || !strings.Contains(got, "left out of the log\" lines=3") {
			t.Errorf("%d lines, want %d: %s", lines(), maxTexts+2, got)
		}
	})
}
