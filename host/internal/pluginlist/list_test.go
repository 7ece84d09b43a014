package pluginlist

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/host/internal/slowdisk"
	"github.com/servetrace/servetrace/internal/wire"
)

func TestParseList(t *testing.T) {
	ones, sum := strings.Repeat("AB", 32), strings.Repeat("\xab", 32)
	for _, test := range []struct {
		list string
		want []Entry
		err  string
	}{
		{"", nil, ""},
		{"console", []Entry{{Name: "console", Where: "console"}}, ""},
		{"./bin/plugins/console , otlp", []Entry{{Name: "console", Where: "./bin/plugins/console"}, {Name: "otlp", Where: "otlp"}}, ""},
		{"a=./x,b=./x", []Entry{{Name: "a", Where: "./x", Named: true}, {Name: "b", Where: "./x", Named: true}}, ""},
		{"a=./with%2Ccomma%3Dequals%40at%20", []Entry{{Name: "a", Where: "./with,comma=equals@at%20", Named: true}}, ""},
		{"./plugin.py", []Entry{{Name: "plugin", Where: "./plugin.py"}}, ""},
		{"./a/p,./b/p", nil, `entries "./a/p" and "./b/p" are both named "p"; write NAME=./b/p to name one of them`},
		{"a=b=c", nil, `entry "a=b=c": has two equals signs; write one in a path as %3D`},
		{"unix:///run/x.sock", []Entry{{Name: "x", Where: "unix:///run/x.sock", Attached: true}}, ""},
		{"a=unix://./a%2Cb%3Dc%40d.sock", []Entry{{Name: "a", Where: "unix://./a,b=c@d.sock", Attached: true, Named: true}}, ""},
		{"unix://run/x", nil, `entry "unix://run/x": the path of a socket must be absolute; write unix:///run/x, or unix://./run/x for one in the working folder`},
		{"unix://", nil, `entry "unix://": names no socket; write unix:///PATH`},
		{"unix:///run/", nil, `entry "unix:///run/": names no socket; write unix:///PATH`},
		{"unix:///x@sha256:ab", nil, `entry "unix:///x@sha256:ab": an address has no pin (@sha256:…): this host does not start that plugin; remove the pin, or write an at sign in a path as %40`},
		{"http://localhost:4317", nil, `entry "http://localhost:4317": is no address that a host attaches to; write unix:///PATH of a plugin's socket, or name an executable`},
		{"unix:/run/x.sock", nil, `entry "unix:/run/x.sock": is no address that a host attaches to; write unix:///PATH of a plugin's socket, or name an executable`},
		{"./p@sha256:" + ones, []Entry{{Name: "p", Where: "./p", Digest: sum}}, ""},
		{"q=p.x%40y@sha256:" + strings.ToLower(ones), []Entry{{Name: "q", Where: "p.x@y", Named: true, Digest: sum}}, ""},
		{"./p@sha256:ab", nil, `entry "./p@sha256:ab": the pin must be @sha256: and 64 hexadecimal digits, it has 2 characters; "servetrace plugin pin PATH" prints it, and an at sign in a path is written %40`},
		{"./p@sha256:" + ones + "@x", nil, `entry "./p@sha256:` + ones + `@x": the pin must be @sha256: and 64 hexadecimal digits, it has 66 characters; "servetrace plugin pin PATH" prints it, and an at sign in a path is written %40`},
		{"./p@sha512:ab", nil, `entry "./p@sha512:ab": the text after an at sign must be sha256: and the 64 hexadecimal digits of the file's digest; write an at sign in a path as %40`},
		{"./p@home/x", nil, `entry "./p@home/x": the text after an at sign must be sha256: and the 64 hexadecimal digits of the file's digest; write an at sign in a path as %40`},
		{"@sha256:" + ones, nil, `entry "@sha256:` + ones + `": names no plugin before its pin; write a path or a name there`},
		{"./plugins/,a/%2C/,console", []Entry{{Where: "./plugins/", Folder: true}, {Where: "a/,/", Folder: true}, {Name: "console", Where: "console"}}, ""},
		{"all=./plugins/", nil, `entry "all=./plugins/": a folder has no name of its own (all=), its plugins have the names of their files; write ./plugins/`},
		{"./plugins/@sha256:" + ones, nil, `entry "./plugins/@sha256:` + ones + `": a folder has no pin (@sha256:…), because its files may change; pin each executable`},
		{"we ird=./p", nil, `entry "we ird=./p": the name "we ird" must be letters, digits, dots, dashes and underscores, 63 at most; write NAME=PATH, and a comma between plugins`},
		{"console;otlp", nil, `entry "console;otlp": the name "console;otlp" must be letters, digits, dots, dashes and underscores, 63 at most; write NAME=PATH, and a comma between plugins`},
		{"~/console", nil, `entry "~/console": "~" is a home folder to a shell only; write the whole path, or ./~ for a file of that name`},
	} {
		t.Run(test.list, func(t *testing.T) {
			got, err := parseList(EnvPlugins, test.list)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			want := test.err
			if want != "" {
				want = "SERVE_TRACING_EXPORTER_PLUGIN: " + want
			}
			if err == nil && want != "" || err != nil && err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

// escapedWords cannot be written in a path.
var escapedWords = regexp.MustCompile(`%(2[Cc]|3[Dd]|40)`)

func FuzzParseList(f *testing.F) {
	f.Add("a=./x@sha256:00,unix:///y,/z/")
	f.Add("x@sha256:" + strings.Repeat("0f", 32) + ",b=%2C%3D%40,./z/")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseList(EnvPlugins, text)
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, e := range list {
			switch {
			case e.Folder:
				if e.Name != "" || e.Digest != "" || !strings.HasSuffix(e.Where, "/") {
					t.Errorf("folder %+v of %q", e, text)
				}
			case e.Name == "" || e.Where == "" || names[e.Name], e.Digest != "" && (e.Attached || len(e.Digest) != 32):
				t.Errorf("entry %+v of %q", e, text)
			}
			names[e.Name] = !e.Folder
		}
		// The text of an error of lock-down is itself a valid entry.
		for _, e := range list {
			if e.Digest == "" || escapedWords.MatchString(e.Where) || strings.TrimSpace(e.Where) != e.Where || strings.Contains(filepath.Clean("/"+e.Where), "://") {
				continue
			}
			again, err := parseList(EnvPlugins, Pinned(e.Named, e.Name, e.Where, e.Digest))
			if err != nil || len(again) != 1 || again[0].Digest != e.Digest || again[0].Name != e.Name {
				t.Errorf("%q is written %q, which is %+v, %v", text, Pinned(e.Named, e.Name, e.Where, e.Digest), again, err)
			}
		}
	})
}

func TestBareNamesAreLookedUp(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(second, "console"), filepath.Join(second, "both"), filepath.Join(first, "both")} {
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []string{first, second}
	for where, want := range map[string]string{
		"console":   filepath.Join(second, "console"),
		"both":      filepath.Join(first, "both"),
		"./console": "./console",
	} {
		got, err := Entry{Where: where}.Resolve(&Settings{PluginDirs: dirs})
		if err != nil || got != want {
			t.Errorf("resolve %q = %q, %v; want %q", where, got, err, want)
		}
	}
	_, err := Entry{Where: "nosuch"}.Resolve(&Settings{PluginDirs: dirs})
	want := fmt.Sprintf(`there is no plugin "nosuch" in %s, %s; build it there, write its path, or set SERVE_TRACING_PLUGIN_DIR`, first, second)
	if fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	_, err = Entry{Where: "consol"}.Resolve(&Settings{PluginDirs: []string{"/nosuch", second}})
	want = fmt.Sprintf(`there is no plugin "consol" in /nosuch (there is no such folder), %s; did you mean console? Else build it there, write its path, or set SERVE_TRACING_PLUGIN_DIR`, second)
	if fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestGrant(t *testing.T) {
	environ := []string{"DD_SITE=a", "DD_API_KEY=b=c", "DDX=no", "PATH=/bin", "LC_ALL=C", "https_proxy=p", "AWS_SECRET=no", "LATIN_1=\xe4"}
	for _, test := range []struct {
		patterns []string
		want     map[string]string
		err      string
	}{
		{nil, map[string]string{}, ""},
		{[]string{"DD_*"}, map[string]string{"DD_SITE": "a", "DD_API_KEY": "b=c"}, ""},
		{[]string{"DD_SITE", "UNSET"}, map[string]string{"DD_SITE": "a"}, ""},
		{[]string{"LATIN_1"}, nil, `the plugin asks for variable "LATIN_1", whose value is not UTF-8`},
		{[]string{"*"}, nil, `the plugin asks for variables "*"`},
		{[]string{"D_*"}, nil, `the plugin asks for variables "D_*"`},
		{[]string{"DD*"}, nil, `the plugin asks for variables "DD*"`},
		{[]string{"DD_*_KEY"}, nil, `the plugin asks for variables "DD_*_KEY"`},
	} {
		t.Run(strings.Join(test.patterns, ","), func(t *testing.T) {
			got, _, err := (&Settings{Environ: environ}).Grant("p", test.patterns)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("error %v, want %s…", err, test.err)
			}
		})
	}
	cfg := Settings{Environ: environ}
	if diff := cmp.Diff([]string{"PATH=/bin", "LC_ALL=C", "https_proxy=p", fmt.Sprintf("GOMAXPROCS=%d", DefaultMaxProcs())}, cfg.StartEnviron("p")); diff != "" {
		t.Errorf("base environment (-want +got):\n%s", diff)
	}
}

// FuzzPluginEnv: an accepted text has only names of plugins and valid patterns of
// variables.
func FuzzPluginEnv(f *testing.F) {
	f.Add("a:AWS_*,*:X, b : Y")
	f.Fuzz(func(t *testing.T, text string) {
		patterns, err := ParseEnv(text)
		for name, list := range patterns {
			if err != nil || name != EveryPlugin && !namePattern.MatchString(name) || len(list) == 0 {
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

// FuzzPluginLimits: an accepted text has values within bounds, for a plugin or for all.
func FuzzPluginLimits(f *testing.F) {
	f.Add("64MiB,a=1GiB")
	f.Add("2,a=1")
	f.Fuzz(func(t *testing.T, text string) {
		sizes, errSizes := ParseByName(EnvPluginMemoryLimit, text, "a size", strconv.Atoi)
		for name, n := range sizes {
			if errSizes != nil || name != "" && !namePattern.MatchString(name) || n < 1 {
				t.Errorf("%q: %q has %d, %v", text, name, n, errSizes)
			}
		}
		procs, errProcs := ParseByName(EnvPluginMaxProcs, text, "a number", ParseProcs)
		for name, n := range procs {
			if errProcs != nil || name != "" && !namePattern.MatchString(name) || n < 1 || n > mostProcs {
				t.Errorf("%q: %q has %d, %v", text, name, n, errProcs)
			}
		}
	})
}

func TestExplainUngranted(t *testing.T) {
	c := Settings{Environ: []string{"TOKEN=x", "ACME_KEY=y", "HOME=/h", "EMPTY=", "_=/bin/service"}}
	explain := func(err error) error {
		return c.ExplainUngranted("a", []string{"HOME=/h"}, map[string]string{"ACME_KEY": "y"}, []string{"EMPTY"}, err)
	}
	for text, hint := range map[string]string{
		"TOKEN is wrong":             " (TOKEN is set for this process, but the plugin does not declare it and so does not get it: add it to the plugin's Spec.Env, or a:TOKEN to SERVE_TRACING_PLUGIN_ENV)",
		`the variable "EMPTY" is no`: " (EMPTY is set for this process, and lock-down keeps it from the plugin: add a:EMPTY to SERVE_TRACING_PLUGIN_ENV)",
		"ACME_KEY: is too short":     "",
		"HOME: no such folder":       "",
		"MY_TOKEN: is not set":       "",
		"token: is not set":          "",
		"blocked_keys: is no list":   "",
	} {
		if got := explain(errors.New(text)).Error(); got != text+hint {
			t.Errorf("%s\nwant\n%s", got, text+hint)
		}
	}
	if err := explain(nil); err != nil {
		t.Errorf("%v, want nil", err)
	}
}

// TestDefaultOfMaxProcs: a plugin starts with a quarter of the processors, unless the
// operator sets another number.
func TestDefaultOfMaxProcs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct {
		name       string
		processors int
		config     Settings
		want       string // empty: not set
	}{
		{"two processors", 2, Settings{}, "1"},
		{"many processors", 17, Settings{}, "4"},
		{"set for all", 8, Settings{PluginMaxProcs: map[string]int{"": 3}}, "3"},
		{"set for another", 8, Settings{PluginMaxProcs: map[string]int{"b": 3}}, "2"},
		{"the service's own", 8, Settings{Environ: []string{"GOMAXPROCS=7"}, PluginEnv: map[string][]string{EveryPlugin: {"GOMAXPROCS"}}}, "7"},
		{"the service's own, which it does not name", 8, Settings{Environ: []string{"GOMAXPROCS=7"}}, "2"},
		{"the service's own, which is not set", 8, Settings{PluginEnv: map[string][]string{"a": {"GOMAXPROCS"}}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.GOMAXPROCS(c.processors)
			var want []string
			if c.want != "" {
				want = []string{"GOMAXPROCS=" + c.want}
			}
			got := slices.DeleteFunc(c.config.StartEnviron("a"), func(kv string) bool { return !strings.HasPrefix(kv, "GOMAXPROCS=") })
			if !slices.Equal(got, want) {
				t.Errorf("starts with %q, want %q", got, want)
			}
		})
	}
}

// TestFolderThatDoesNotAnswerKeepsItsPlugins: at a Reload, the plugins of a folder
// without an answer stay.
func TestFolderThatDoesNotAnswerKeepsItsPlugins(t *testing.T) {
	from := Entry{Name: "a", Where: "/dead/a", From: "/dead"}
	for _, folder := range []bool{false, true} { // written without its slash, and with it
		x := expansion{running: []Entry{from}}
		x.take(Entry{Name: "dead", Where: "/dead", Folder: folder}, sight{folder: folder, err: slowdisk.ErrSilent})
		if len(x.list) != 1 || x.list[0] != from || len(x.warnings) != 1 {
			t.Errorf("folder %t: list %v, warnings %q", folder, x.list, x.warnings)
		}
	}
	x := expansion{}
	x.take(Entry{Name: "p", Where: "/dead/p"}, sight{err: slowdisk.ErrSilent})
	if len(x.list) != 1 {
		t.Errorf("a plugin on a disk that does not answer is not on the list: %v", x.list)
	}
}
