package pluginlist_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/host/internal/pluginlist"
)

// folderOf makes a folder of files. A name that ends in a star is an executable, a name
// that ends in a slash is a folder, and a name with an arrow is a link. The path ends in
// a slash.
func folderOf(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir() + "/"
	for _, file := range files {
		name, executable := strings.CutSuffix(file, "*")
		name, target, link := strings.Cut(name, "->")
		var err error
		switch {
		case link:
			err = os.Symlink(target, dir+name)
		case strings.HasSuffix(name, "/"):
			err = os.Mkdir(dir+name, 0o755)
		case executable:
			err = os.WriteFile(dir+name, nil, 0o755)
		default:
			err = os.WriteFile(dir+name, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// expanded returns the names and paths of a list, with the folder as FOLDER.
func expanded(list []pluginlist.Entry, folder string) []string {
	var got []string
	for _, e := range list {
		got = append(got, e.Name+"="+strings.ReplaceAll(e.Where, folder, "FOLDER/"))
	}
	return got
}

func TestFolderOfPlugins(t *testing.T) {
	dir := folderOf(t, "20-b*", "10-a.py*", ".hidden*", "old~*", "a.bak*", "b.tmp*", "c.swp*", "README", "sub/", "link->20-b", "dead->nothing", "odd name*")
	for _, where := range []string{dir, strings.TrimSuffix(dir, "/")} { // also without its slash
		cfg := pluginlist.Settings{Plugins: "first," + where + ",last=/x"}
		list, warnings, err := cfg.Expand(nil)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"first=first", "10-a=FOLDER/10-a.py", "20-b=FOLDER/20-b", "link=FOLDER/link", "last=/x"}
		if diff := cmp.Diff(want, expanded(list, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", where, diff)
		}
		wantWarnings := []string{"SERVE_TRACING_EXPORTER_PLUGIN: " + dir + "odd name is left out: its name without the extension must be letters, digits, dots, dashes and underscores, 63 at most; rename it"}
		if diff := cmp.Diff(wantWarnings, warnings); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	}
}

func TestFolderThatBringsANameTwice(t *testing.T) {
	dir := folderOf(t, "a.py*", "a.rb*", "b*")
	for list, want := range map[string]string{
		dir: "plugin \"a\" is there twice, FOLDER/a.py and FOLDER/a.rb; rename one of the files, or remove it",
		dir + ",b": "plugin \"a\" is there twice, FOLDER/a.py and FOLDER/a.rb; rename one of the files, or remove it\n" +
			"SERVE_TRACING_EXPORTER_PLUGIN: plugin \"b\" is there twice, FOLDER/b and b; rename one of the files, or remove it",
		"x=" + strings.TrimSuffix(dir, "/"):                                 "entry \"FOLDER\": a folder has no name of its own (x=), its plugins have the names of their files; write FOLDER/",
		strings.TrimSuffix(dir, "/") + "@sha256:" + strings.Repeat("0", 64): "entry \"FOLDER\": a folder has no pin (@sha256:…), because its files may change; pin each executable",
	} {
		s := pluginlist.Settings{Plugins: list}
		err := s.Validate()
		if err == nil {
			_, _, err = s.Expand(nil)
		}
		want = "SERVE_TRACING_EXPORTER_PLUGIN: " + want
		if got := strings.ReplaceAll(fmt.Sprint(err), strings.TrimSuffix(dir, "/"), "FOLDER"); got != want {
			t.Errorf("%s: error\n%s\nwant\n%s", list, got, want)
		}
	}
}

// TestFolderAtReload: running plugins stay if their folder has an error.
func TestFolderAtReload(t *testing.T) {
	dir := folderOf(t, "a.rb*", "b*")
	cfg := pluginlist.Settings{Plugins: dir + ",c=/x/c"}
	running, _, err := cfg.Expand(nil)
	if err != nil {
		t.Fatal(err)
	}
	again := func(wantWarning string, want ...string) {
		t.Helper()
		list, warnings, err := cfg.Expand(running)
		if diff := cmp.Diff(want, expanded(list, dir)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		got := strings.ReplaceAll(strings.Join(warnings, "\n"), dir, "FOLDER/")
		if got != wantWarning && (wantWarning == "" || !strings.HasPrefix(got, wantWarning)) {
			t.Errorf("warnings\n%s\nwant\n%s", got, wantWarning)
		}
	}
	again("", "a=FOLDER/a.rb", "b=FOLDER/b", "c=/x/c")
	if err := os.WriteFile(dir+"a.py", nil, 0o755); err != nil { // before a.rb by its name
		t.Fatal(err)
	}
	if err := os.Remove(dir + "b"); err != nil {
		t.Fatal(err)
	}
	again("SERVE_TRACING_EXPORTER_PLUGIN: plugin \"a\" is there twice, FOLDER/a.py and FOLDER/a.rb: FOLDER/a.rb is taken, the other is not; rename its file, or remove it",
		"a=FOLDER/a.rb", "c=/x/c")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	again("SERVE_TRACING_EXPORTER_PLUGIN: there is no folder FOLDER/: it brings no plugin", "c=/x/c")
	if err := os.WriteFile(strings.TrimSuffix(dir, "/"), nil, 0o644); err != nil { // cannot be read as a folder
		t.Fatal(err)
	}
	again("SERVE_TRACING_EXPORTER_PLUGIN: folder FOLDER/ cannot be read, so its plugins stay as they are: not a directory",
		"a=FOLDER/a.rb", "b=FOLDER/b", "c=/x/c")
}

func TestSettingsForPluginsOfFolders(t *testing.T) {
	dir := folderOf(t, "a*")
	cfg := pluginlist.Settings{
		Plugins:           strings.TrimSuffix(dir, "/"),
		PluginConfigs:     map[string]pluginlist.Configuration{"a": {File: "x"}, "b": {File: "y"}},
		PluginEnv:         map[string][]string{"*": {"X"}, "a": {"X"}, "c": {"X"}},
		PluginMemoryLimit: map[string]int64{"": 1, "d": 1},
		PluginMaxProcs:    map[string]int{"": 1, "e": 1},
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	_, warnings, err := cfg.Expand(nil)
	var want []string
	for _, s := range []struct{ variable, name string }{
		{"SERVE_TRACING_PLUGIN_CONFIG", "b"}, {"SERVE_TRACING_PLUGIN_ENV", "c"},
		{"SERVE_TRACING_PLUGIN_GOMEMLIMIT", "d"}, {"SERVE_TRACING_PLUGIN_GOMAXPROCS", "e"},
	} {
		want = append(want, s.variable+`: there is no plugin "`+s.name+`", and no folder of SERVE_TRACING_EXPORTER_PLUGIN has brought one so far`)
	}
	if diff := cmp.Diff(want, warnings); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	cfg.Plugins = "/x/a,unix:///s"
	cfg.PluginEnv["s"] = []string{"X", "Y*"}
	wantErr := `SERVE_TRACING_PLUGIN_CONFIG: there is no plugin "b"; the plugins of SERVE_TRACING_EXPORTER_PLUGIN are a, s
SERVE_TRACING_PLUGIN_ENV: there is no plugin "c"; the plugins of SERVE_TRACING_EXPORTER_PLUGIN are a, s
SERVE_TRACING_PLUGIN_ENV: plugin "s" is attached to (unix:///s): this host does not start it; set it where the plugin is started
SERVE_TRACING_PLUGIN_ENV: variables "Y*" of plugin "s": must be a name, or a prefix of three characters or more that ends in an underscore, and a star
SERVE_TRACING_PLUGIN_GOMEMLIMIT: there is no plugin "d"; the plugins of SERVE_TRACING_EXPORTER_PLUGIN are a, s
SERVE_TRACING_PLUGIN_GOMAXPROCS: there is no plugin "e"; the plugins of SERVE_TRACING_EXPORTER_PLUGIN are a, s`
	if err := cfg.Validate(); fmt.Sprint(err) != wantErr {
		t.Errorf("error\n%v\nwant\n%s", err, wantErr)
	}
}
