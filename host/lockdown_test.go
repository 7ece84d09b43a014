package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/internal/wire"
)

// TestLockdownOfTheList: all faults at once, each with what to write.
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
	err = Config{
		Lockdown:   true,
		PluginDirs: []string{"/ok", "here"},
		Plugins: strings.Join([]string{
			"/ok/a" + pin, "b" + pin, "/no/c", "d", "./e", "f=./x%40y" + pin, "sub/g" + pin, "unix:///h", "./folder/", here + "/folder",
		}, ","),
	}.Validate()
	want := strings.ReplaceAll(`SERVE_TRACING_EXPORTER_PLUGIN: entry "/no/c": under lock-down (SERVE_TRACING_LOCKDOWN) an executable must have a pin; write what this prints: servetrace plugin pin /no/c
SERVE_TRACING_EXPORTER_PLUGIN: entry "d": under lock-down (SERVE_TRACING_LOCKDOWN) an executable must have a pin; write what this prints: servetrace plugin pin d
SERVE_TRACING_EXPORTER_PLUGIN: entry "./e": under lock-down (SERVE_TRACING_LOCKDOWN) a path must be absolute and have a pin; write what this prints: servetrace plugin pin ./e
SERVE_TRACING_EXPORTER_PLUGIN: entry "./x@y": under lock-down (SERVE_TRACING_LOCKDOWN) a path must be absolute; write f=HERE/x%40y`+pin+`
SERVE_TRACING_EXPORTER_PLUGIN: entry "sub/g": under lock-down (SERVE_TRACING_LOCKDOWN) a path must be absolute; write HERE/sub/g`+pin+`
SERVE_TRACING_EXPORTER_PLUGIN: entry "unix:///h": under lock-down (SERVE_TRACING_LOCKDOWN) only pinned executables run, and an address has no pin; name the plugin's executable
SERVE_TRACING_EXPORTER_PLUGIN: entry "./folder/": under lock-down (SERVE_TRACING_LOCKDOWN) only pinned executables run, and a folder has no pin; write what this prints: servetrace plugin pin --plugins ./folder/
SERVE_TRACING_EXPORTER_PLUGIN: entry "HERE/folder": under lock-down (SERVE_TRACING_LOCKDOWN) only pinned executables run, and a folder has no pin; write what this prints: servetrace plugin pin --plugins HERE/folder/
SERVE_TRACING_PLUGIN_DIR: folder "here": under lock-down (SERVE_TRACING_LOCKDOWN) it must be an absolute path`, "HERE", filepath.Clean(here))
	if fmt.Sprint(err) != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
	if err := (Config{Lockdown: true, Plugins: "/ok/a" + pin}).Validate(); err != nil {
		t.Error(err)
	}
}

// FuzzPluginEnv: what is taken names plugins and families of variables only.
func FuzzPluginEnv(f *testing.F) {
	f.Add("a:AWS_*,*:X, b : Y")
	f.Fuzz(func(t *testing.T, text string) {
		patterns, err := parsePluginEnv(text)
		for name, list := range patterns {
			if err != nil || name != everyPlugin && !namePattern.MatchString(name) || len(list) == 0 {
				t.Errorf("%q: %q has %q, %v", text, name, list, err)
			}
			for _, pattern := range list {
				if !wire.ValidEnvPattern(pattern) {
					t.Errorf("%q: %q has %q", text, name, pattern)
				}
			}
		}
	})
}

// FuzzPluginLimits: what is taken is a value within bounds, for a name or all.
func FuzzPluginLimits(f *testing.F) {
	f.Add("64MiB,a=1GiB")
	f.Add("2,a=1")
	f.Fuzz(func(t *testing.T, text string) {
		sizes, errSizes := parseByName(EnvPluginMemoryLimit, text, "a size", parseSize)
		for name, n := range sizes {
			if errSizes != nil || name != "" && !namePattern.MatchString(name) || n < 1 {
				t.Errorf("%q: %q has %d, %v", text, name, n, errSizes)
			}
		}
		procs, errProcs := parseByName(EnvPluginMaxProcs, text, "a number", parseProcs)
		for name, n := range procs {
			if errProcs != nil || name != "" && !namePattern.MatchString(name) || n < 1 || n > mostProcs {
				t.Errorf("%q: %q has %d, %v", text, name, n, errProcs)
			}
		}
	})
}
