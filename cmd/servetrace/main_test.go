package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/plugins/datadog/datadogexporter"
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestMain lets this test binary also be the command servetrace, in scripts,
// and plugins, under their names.
func TestMain(m *testing.M) {
	testplugin.Main()
	if len(os.Args) == 1 && os.Getenv(wire.CookieKey) == wire.CookieValue && strings.HasSuffix(os.Args[0], ".test") {
		nothing() // as main does, for this binary is the command's executable
	}
	switch filepath.Base(os.Args[0]) {
	case "console", "stuck", "echo", "echo.copy", "otlp", "datadog", "processor", "terminal", "servetrace":
		testplugin.Hurry()
	}
	switch filepath.Base(os.Args[0]) {
	case "console":
		pluginsdk.Main(pluginsdk.Spec{
			Name: "console", Version: "1.2.3", Description: "writes each span",
			Env: consoleexporter.EnvPatterns(), Exporter: consoleexporter.New,
		})
	case "stuck":
		pluginsdk.Main(pluginsdk.Spec{Name: "stuck", Exporter: newStuck})
	case "otlp":
		pluginsdk.Main(pluginsdk.Spec{Name: "otlp", Env: otlpexporter.EnvPatterns(), Exporter: otlpexporter.New})
	case "processor":
		pluginsdk.Main(pluginsdk.Spec{Name: "processor", Processors: []pluginsdk.NewProcessor{
			pluginsdk.ProcessorFunc("none", func(context.Context, *pluginsdk.Batch) error { return nil }),
		}})
	case "datadog":
		pluginsdk.Main(pluginsdk.Spec{Name: "datadog", Env: datadogexporter.EnvPatterns(), EnvAtStart: true, Exporter: datadogexporter.New})
	case "echo", "echo.copy":
		pluginsdk.Main(pluginsdk.Spec{Name: "echo", Env: []string{"ECHO_*"}, Exporter: newEcho})
	case "terminal":
		pluginsdk.Main(pluginsdk.Spec{Name: "terminal", Description: "\x1b[2Jred", Exporter: newStuck})
	}
	testscript.Main(leakChecked{m}, map[string]func(){"servetrace": main})
}

// leakChecked fails the tests where one leaves a goroutine behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		return 1
	}
	return code
}

// newStuck returns an exporter that never answers. It writes the id of its process to a
// file beside the executable.
func newStuck(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
	return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error {
		if err := os.WriteFile(os.Args[0]+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return err
		}
		select {}
	}), nil
}

// newEcho returns an exporter that prints its configuration.
func newEcho(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	if name := s.Getenv("ECHO_WANT"); name != "" && s.Getenv(name) == "" {
		return nil, &pluginsdk.ConfigError{Path: name, Err: errors.New("is not set")}
	}
	if s.Getenv("ECHO_REFUSE") != "" {
		return nil, &pluginsdk.ConfigError{Path: "ECHO_REFUSE", Err: errors.New("is set")}
	}
	if err := s.DecodeConfig(new(any)); err != nil {
		return nil, err
	}
	s.Warn("ECHO_VALUE", "has "+s.Getenv("ECHO_VALUE"))
	_, err := s.Stdout.Write([]byte("value " + s.Getenv("ECHO_VALUE") + " undeclared " + s.Getenv("UNDECLARED") +
		" service " + s.Context.ServiceName + " plugin " + s.Context.PluginName + "\n" + string(s.Config)))
	return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
		_, number, _ := strings.Cut(b.ID(), "-")
		_, err := s.Stdout.Write([]byte("batch " + number + " attempt " + strconv.Itoa(b.Attempt()) + "\n"))
		return err
	}), err
}

// plugins are the links that scripts find in $WORK/plugins.
var plugins = []string{
	"console", "stuck", "echo", "terminal",
	"testplugin-record", "testplugin-stock", "testplugin-permanent", "testplugin-flaky:1", "testplugin-crash:1",
	"testplugin-partial:1", "testplugin-filter:health", "testplugin-small:2", "testplugin-refuse", "testplugin-exit",
	"testplugin-version:7", "testplugin-netrpc", "testplugin-hang", "testplugin-silent:1m",
}

// waitFor waits until a file exists.
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(10 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not exist", args[0])
		}
	}
}

func TestScripts(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "mask": mask, "waitfor": waitFor},
		Setup: func(env *testscript.Env) error {
			dir := filepath.Join(env.WorkDir, "plugins")
			errs := []error{os.Mkdir(dir, 0o700)}
			for _, name := range plugins {
				errs = append(errs, os.Symlink(exe, filepath.Join(dir, name)))
			}
			errs = append(errs,
				os.WriteFile(filepath.Join(env.WorkDir, "spans.binpb"), encodedSpans(t, "one", "two"), 0o600),
				os.WriteFile(filepath.Join(env.WorkDir, "framed.binpb"), framed(encodedSpans(t, "one", "two"), encodedSpans(t, "three")), 0o600))
			env.Setenv("SERVE_TRACING_PLUGIN_DIR", dir)
			return errors.Join(errs...)
		},
	})
}

// exits runs a command that must end with this code: "exits 2 servetrace foo".
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// varying are the lengths that differ from machine to machine.
var varying = regexp.MustCompile(`\b(PATH|TMPDIR|node)=<\d+ bytes>`)

// digests matches the digest of the test binary.
var digests = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// mask writes the last standard output to a file, without the parts that differ between
// machines.
func mask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mask FILE")
	}
	text := varying.ReplaceAllString(ts.ReadFile("stdout"), "$1=<N bytes>")
	text = digests.ReplaceAllString(text, "sha256:DIGEST")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// encodedSpans is one request with spans of these names.
func encodedSpans(tb testing.TB, names ...string) []byte {
	tb.Helper()
	scope := &tracepb.ScopeSpans{}
	for i, name := range names {
		id, err := hex.DecodeString("00000000000000a" + strconv.Itoa(i))
		if err != nil {
			tb.Fatal(err)
		}
		scope.Spans = append(scope.Spans, &tracepb.Span{TraceId: append(id, id...), SpanId: id, Name: name})
	}
	encoded, err := proto.Marshal(&coltracepb.ExportTraceServiceRequest{
		ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{scope}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return encoded
}

// framed are requests as the Collector's file exporter writes them.
func framed(requests ...[]byte) []byte {
	var all []byte
	for _, r := range requests {
		all = append(binary.BigEndian.AppendUint32(all, uint32(len(r))), r...)
	}
	return all
}
