package host_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

func TestFolderWithoutPlugins(t *testing.T) {
	empty := t.TempDir() + "/"
	if err := os.WriteFile(empty+"README", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]string{
		empty:       "folder " + empty + " has no executable: it brings no plugin until there is one and plugins are reloaded (SIGHUP)",
		"/nowhere/": "there is no folder /nowhere/: it brings no plugin until it is there and plugins are reloaded (SIGHUP)",
	} {
		log := &testplugin.Log{}
		h, err := host.New(host.Config{Plugins: where}, host.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		if err != nil {
			t.Fatal(err)
		}
		if !h.Enabled() || len(h.Stats().Exporters) != 0 {
			t.Errorf("%s: enabled %v with %d plugins", where, h.Enabled(), len(h.Stats().Exporters))
		}
		if !strings.Contains(log.String(), want) {
			t.Errorf("log\n%s\nwant %s", log, want)
		}
		if err := h.Start(t.Context()); err != nil {
			t.Error(err)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// TestFolderPluginsRun: a folder of real plugins, each called as its file.
func TestFolderPluginsRun(t *testing.T) {
	dir := t.TempDir()
	exe, err := filepath.EvalSymlinks(testplugin.Install(t, "record"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"testplugin-record", "testplugin-stock"} {
		if err := os.Symlink(exe, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := startHost(t, func(c *host.Config) { c.Plugins = dir + "/" })
	r.spans("s", 100)
	r.flush()
	for _, name := range []string{"testplugin-record", "testplugin-stock"} {
		wantOnce(t, filepath.Join(dir, name), "s", 100)
	}
	if x := r.Stats().Exporters; len(x) != 2 || x[0].Name != "testplugin-record" || x[1].Name != "testplugin-stock" {
		t.Errorf("%+v", x)
	}
}
