package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/supervise"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/test/testplugin"
)

// file writes a file of the test's own.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestInspect(t *testing.T) {
	path := testplugin.Install(t, "record")
	document := file(t, "record.yaml", "exporter: {}\n")
	cfg := host.Config{
		Plugins:       pluginList([]string{path, testplugin.Install(t, "stock"), testplugin.Install(t, "hello"), "nosuch", testplugin.Install(t, "stock")}),
		PluginDirs:    []string{"/nowhere"},
		PluginConfigs: map[string]host.PluginConfig{"p0": {File: document}, "p4": {Document: []byte("{}")}},
		Environ:       []string{"TESTPLUGIN_CANARY=tweet", "LANG=C", "SECRET=s", "LANG=C.UTF-8"},
		Context:       host.Context{Node: "10.0.0.1", ServiceName: "shop"},
	}
	procs := host.Variable{Name: "GOMAXPROCS", Value: strconv.Itoa(pluginlist.DefaultMaxProcs()), Setting: host.EnvPluginMaxProcs, Default: true}
	lang := host.Variable{Name: "LANG", Value: "C.UTF-8", Base: true}
	got := host.Inspect(t.Context(), cfg, true, host.WithLogger(slog.New(slog.DiscardHandler)))
	for i := range got { // said below
		got[i].Path, got[i].Where, got[i].Digest = "", "", ""
	}
	want := []host.Inspection{
		{
			Name: "p0", Described: true, Context: cfg.Context,
			About: host.About{
				Name: "testplugin", Version: "1.2.3", SDK: got[0].About.SDK, Language: "go",
				Patterns: []string{"TESTPLUGIN_*"},
			},
			Variables: []host.Variable{procs, lang, {Name: "TESTPLUGIN_CANARY", Value: "tweet"}},
			Config:    []byte("exporter: {}\n"), ConfigFile: document,
			MaxBatchSpans: pipeline.MostBatchSpans, MaxBatchBytes: wire.DefaultMaxBatchBytes, MaxConcurrency: wire.DefaultMaxConcurrency,
		},
		{
			Name: "p1", Variables: []host.Variable{procs, lang},
			MaxBatchSpans: pipeline.MostBatchSpans, MaxBatchBytes: wire.DefaultMaxBatchBytes, MaxConcurrency: wire.DefaultMaxConcurrency,
		},
		{Name: "p2", Context: cfg.Context, Variables: []host.Variable{procs, lang}, Err: got[2].Err},
		{Name: "p3", Context: cfg.Context, Err: got[3].Err},
		{
			Name: "p4", Context: cfg.Context, Variables: []host.Variable{procs, lang}, Config: []byte("{}"),
			Err:           errors.New("describe: the plugin is a plain OTLP receiver, which takes no configuration; remove its configuration, or name another plugin"),
			MaxBatchSpans: pipeline.MostBatchSpans, MaxBatchBytes: wire.DefaultMaxBatchBytes, MaxConcurrency: wire.DefaultMaxConcurrency,
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(host.Inspection{}), cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if sdk := got[0].About.SDK; !strings.HasPrefix(sdk, "github.com/servetrace/servetrace/pluginsdk ") {
		t.Errorf("p0: SDK %q", sdk)
	}
	if err := fmt.Sprint(got[2].Err); !strings.Contains(err, "it ended before the handshake") {
		t.Errorf("p2: error %s", err)
	}
	if err := fmt.Sprint(got[3].Err); !strings.HasPrefix(err, `there is no plugin "nosuch" in /nowhere`) {
		t.Errorf("p3: error %s", err)
	}
	if got := testplugin.Received(t, path); len(got) != 0 {
		t.Errorf("a plugin that was inspected got %+v", got)
	}
}

func TestInspectWithoutLaunchLooksAtFilesOnly(t *testing.T) {
	path := testplugin.Install(t, "child") // writes a record as soon as it starts
	cfg := host.Config{
		Plugins: pluginList([]string{path, "/nowhere/plugin"}),
		PluginConfigs: map[string]host.PluginConfig{
			"p0": {File: "/nowhere/p0.yaml"},
		},
		Environ: []string{"LANG=C"},
	}
	got := host.Inspect(t.Context(), cfg, false)
	if got[0].Path != path || got[0].Where != path || got[0].Described || got[0].MaxConcurrency != 0 || len(got[0].Variables) != 2 {
		t.Errorf("%+v", got[0])
	}
	for i, want := range []string{
		`configuration file "/nowhere/p0.yaml": there is no such file; create it, or correct its path`,
		"start /nowhere/plugin: there is no such file; check the path, or build the plugin",
	} {
		if err := fmt.Sprint(got[i].Err); err != want {
			t.Errorf("p%d: error %s, want %s", i, err, want)
		}
	}
	if got := testplugin.Received(t, path); len(got) != 0 {
		t.Error("the plugin was started")
	}
}

func TestInspectOfAFaultyConfig(t *testing.T) {
	got := host.Inspect(t.Context(), host.Config{Plugins: ","}, true)
	if len(got) != 1 || got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "names no plugin") {
		t.Errorf("%+v", got)
	}
	if got := host.Inspect(t.Context(), host.Config{}, true); len(got) != 0 {
		t.Errorf("of an empty list: %+v", got)
	}
}

func TestInspectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got := host.Inspect(ctx, host.Config{Plugins: pluginList([]string{testplugin.Install(t, "silent:5m")}), StartTimeout: time.Hour}, true,
		host.WithLogger(slog.New(slog.DiscardHandler)))
	if err := fmt.Sprint(got[0].Err); !strings.Contains(err, "no handshake within the start timeout") || strings.Contains(err, host.EnvStartTimeout) {
		t.Errorf("error %s", err)
	}
}

// TestInspectAsksDescribeOnly: no other call reaches a plugin, and the inspection has the
// variables that are not granted.
func TestInspectAsksDescribeOnly(t *testing.T) {
	h, err := host.New(host.Config{Plugins: "/fake/plugin"})
	if err != nil {
		t.Fatal(err)
	}
	plugin := newFakePlugin(nil)
	plugin.patterns = []string{"*"}
	h.Supervisor().Connect = func(context.Context, *supervise.Settings, supervise.Plan, *slog.Logger) (supervise.Peer, error) {
		return plugin, nil
	}
	got := h.InspectOnly(t.Context())
	if !got.Described || got.Err == nil || !strings.HasPrefix(got.Err.Error(), `describe: the plugin asks for variables "*"`) {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff([]string{pluginv1.Lifecycle_Describe_FullMethodName}, plugin.methods); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	select {
	case <-plugin.Done():
	default:
		t.Error("the plugin was not ended")
	}
}
