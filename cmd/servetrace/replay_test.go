package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestQuarantinedBatchIsReplayed runs the command in the log line of a quarantined batch.
// The plugin crashes again, and a mended plugin delivers the batch.
func TestQuarantinedBatchIsReplayed(t *testing.T) {
	plugin := testplugin.Install(t, "poison:panic")
	log := &testplugin.Log{}
	h, err := host.New(host.Config{Plugins: "poison=" + plugin, CrashDir: filepath.Join(t.TempDir(), "crashes")},
		host.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h)).Tracer("test")
	for i := range 9 {
		_, span := tracer.Start(t.Context(), fmt.Sprintf("beside-%d", i))
		span.End()
	}
	_, span := tracer.Start(t.Context(), testplugin.PoisonSpan)
	span.End()
	if err := h.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	if err := h.Shutdown(context.Background()); err != nil { // the file is written then
		t.Error(err)
	}
	found := regexp.MustCompile(` replay="(servetrace [^"]+)"`).FindStringSubmatch(log.String())
	if found == nil {
		t.Fatalf("no command in the log:\n%s", log)
	}
	words := strings.Fields(found[1])
	if out, code := runAsCommand(t, words[1:]...); code != 1 || !strings.Contains(out, "10 of 10 spans not delivered") || !strings.Contains(out, "exit status 2") {
		t.Errorf("%s: exit code %d, want the plugin's crash; output:\n%s", found[1], code, out)
	}
	for i, word := range words {
		if word == plugin {
			words[i] = testplugin.Install(t, "record")
		}
	}
	if out, code := runAsCommand(t, words[1:]...); code != 0 || !strings.Contains(out, "  10 delivered") {
		t.Errorf("with a plugin that bears it: exit code %d; output:\n%s", code, out)
	}
}

// runAsCommand runs this test binary as the command, and returns its output.
func runAsCommand(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "servetrace")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	cmd := exec.Command(link, args...)
	cmd.Stdout, cmd.Stderr = &all, &all
	_ = cmd.Run() // the code says it
	return all.String(), cmd.ProcessState.ExitCode()
}
