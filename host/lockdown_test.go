package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/host"
)

// TestLockdownOfTheList: all faults are reported at once, each with the text to write.
func TestLockdownOfTheList(t *testing.T) {
	pin, here := "@sha256:"+strings.Repeat("0a", 32), t.TempDir()
	t.Chdir(here)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("folder", 0o755); err != nil {
		t.Fatal(err)
	}
	err = host.Config{
		Lockdown:   true,
		PluginDirs: []string{"/ok", "here"},
		Plugins: strings.Join([]string{
			"/ok/a" + pin, "b" + pin, "/no/c", "d", "./e", "f=./x%40y" + pin, "sub/g" + pin, "unix:///h", "./folder/", here + "/folder",
		}, ","),
	}.Validate()
	want := strings.ReplaceAll(`SERVE_TRACING_EXPORTER_PLUGIN: entry "/no/c": under lock-down (SERVE_TRACING_LOCKDOWN) an executable must have a pin; write the output of: servetrace plugin pin /no/c
SERVE_TRACING_EXPORTER_PLUGIN: entry "d": under lock-down (SERVE_TRACING_LOCKDOWN) an executable must have a pin; write the output of: servetrace plugin pin d
SERVE_TRACING_EXPORTER_PLUGIN: entry "./e": under lock-down (SERVE_TRACING_LOCKDOWN) a path must be absolute and have a pin; write the output of: servetrace plugin pin ./e
SERVE_TRACING_EXPORTER_PLUGIN: entry "./x@y": under lock-down (SERVE_TRACING_LOCKDOWN) a path must be absolute; write f=HERE/x%40y`+pin+`
SERVE_TRACING_EXPORTER_PLUGIN: entry "sub/g": under lock-down (SERVE_TRACING_LOCKDOWN) a path must be absolute; write HERE/sub/g`+pin+`
SERVE_TRACING_EXPORTER_PLUGIN: entry "unix:///h": under lock-down (SERVE_TRACING_LOCKDOWN) only pinned executables run, and an address has no pin; name the plugin's executable
SERVE_TRACING_EXPORTER_PLUGIN: entry "./folder/": under lock-down (SERVE_TRACING_LOCKDOWN) only pinned executables run, and a folder has no pin; write the output of: servetrace plugin pin --plugins ./folder/
SERVE_TRACING_EXPORTER_PLUGIN: entry "HERE/folder": under lock-down (SERVE_TRACING_LOCKDOWN) only pinned executables run, and a folder has no pin; write the output of: servetrace plugin pin --plugins HERE/folder/
SERVE_TRACING_PLUGIN_DIR: folder "here": under lock-down (SERVE_TRACING_LOCKDOWN) it must be an absolute path`, "HERE", filepath.Clean(here))
	if fmt.Sprint(err) != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
	if err := (host.Config{Lockdown: true, Plugins: "/ok/a" + pin}).Validate(); err != nil {
		t.Error(err)
	}
}
