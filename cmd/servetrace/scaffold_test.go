package main

import (
	"bytes"
	"errors"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// clone is this checkout.
func clone(tb testing.TB) string {
	tb.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// run runs a command in dir, without the network, and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-ldflags=-s", "GOWORK=off") // -s: linking is faster
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestNewPluginWorksAtOnce builds the module of "plugin new" unchanged and offline, runs
// its tests, and runs the conformance suite on the binary.
func TestNewPluginWorksAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two modules")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	for _, kind := range []kind{kindProcessor, kindExporter} {
		t.Run(string(kind), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new plugin") // a space, to be quoted in go.mod
			_, _, err := command(t, nil, "plugin", "new", "my-plugin", "--kind", string(kind),
				"--module", "example.com/my/plugin", "--dir", dir, "--replace", clone(t))
			if err != nil {
				t.Fatal(err)
			}
			run(t, dir, "go", "build", "-o", "my-plugin", ".")
			run(t, dir, "go", "vet", "./...")
			run(t, dir, "go", "test", "./...")
			binary := filepath.Join(dir, "my-plugin")
			stdout, _, err := command(t, nil, "plugin", "test", binary)
			if err != nil {
				t.Errorf("plugin test: %v\n%s", err, stdout)
			}
			stdout, _, err = command(t, nil, "plugin", "info", binary)
			if err != nil || !strings.Contains(stdout, "my-plugin") || !strings.Contains(stdout, "MY_PLUGIN_") || !strings.Contains(stdout, "  "+string(kind)) {
				t.Errorf("plugin info: %v\n%s", err, stdout)
			}
			stdout, stderr, err := command(t, nil, "plugin", "run", binary)
			passed := strings.Contains(stderr, "1 passed") && strings.Contains(stdout, `{"key":"team","value":{"stringValue":"unknown"}}`)
			if err != nil || passed != (kind == kindProcessor) {
				t.Errorf("plugin run: %v\n%s%s", err, stdout, stderr)
			}
		})
	}
}

func TestNewFilesAreFormatted(t *testing.T) {
	for _, kind := range []kind{kindProcessor, kindExporter} {
		s := scaffold{Name: "a-rather-long-name", Kind: kind, Module: "example.org/a"}
		files, err := s.render(base{version: "v1.2.3", goLine: goRelease})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if bytes.Contains(f.text, []byte("[[")) || bytes.Contains(f.text, []byte("<no value>")) {
				t.Errorf("%s %s: not filled in:\n%s", kind, f.name, f.text)
			}
			if !strings.HasSuffix(f.name, ".go") {
				continue
			}
			formatted, err := format.Source(f.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(formatted), string(f.text)); diff != "" {
				t.Errorf("%s %s is not gofmt's (-want +got):\n%s", kind, f.name, diff)
			}
		}
	}
}

func TestNewOfARelease(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "names")
	info := &debug.BuildInfo{Main: debug.Module{Path: ownModule, Version: "v1.2.3"}}
	var out bytes.Buffer
	if err := writePlugin(&out, scaffold{Name: "names", Kind: kindExporter, Dir: dir}, info); err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	want := "module example.org/names\n\ngo " + goRelease + "\n\nrequire github.com/servetrace/servetrace v1.2.3\n"
	if diff := cmp.Diff(want, string(goMod)); diff != "" {
		t.Errorf("go.mod (-want +got):\n%s", diff)
	}
	if !strings.Contains(out.String(), "go mod tidy") {
		t.Errorf("does not say that the module is to be tidied:\n%s", out.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "go.sum")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a go.sum: %v", err)
	}
}

func TestReleased(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs", Value: "git"}}
	for _, c := range []struct {
		name string
		info *debug.BuildInfo
		want bool
	}{
		{"none", nil, false},
		{"another module", &debug.BuildInfo{Main: debug.Module{Path: "example.org/x", Version: "v1.2.3"}}, false},
		{"devel", &debug.BuildInfo{Main: debug.Module{Path: ownModule, Version: "(devel)"}}, false},
		{"installed", &debug.BuildInfo{Main: debug.Module{Path: ownModule, Version: "v1.2.3"}}, true},
		{"installed from a branch", &debug.BuildInfo{Main: debug.Module{Path: ownModule, Version: "v0.0.0-20260101000000-0123456789ab"}}, true},
		{"built from a tag", &debug.BuildInfo{Main: debug.Module{Path: ownModule, Version: "v1.2.3"}, Settings: vcs}, true},
		{"built from a commit", &debug.BuildInfo{Main: debug.Module{Path: ownModule, Version: "v1.2.4-0.20260101000000-0123456789ab"}, Settings: vcs}, false},
		{"built from changes", &debug.BuildInfo{Main: debug.Module{Path: ownModule, Version: "v1.2.3+dirty"}, Settings: vcs}, false},
	} {
		if _, got := released(c.info); got != c.want {
			t.Errorf("%s: released %v, want %v", c.name, got, c.want)
		}
	}
}

// TestGoReleaseIsTheModules holds the constant to go.mod.
func TestGoReleaseIsTheModules(t *testing.T) {
	b, err := readClone(clone(t))
	if err != nil {
		t.Fatal(err)
	}
	if b.goLine != goRelease {
		t.Errorf("go.mod has go %s, this command writes %s", b.goLine, goRelease)
	}
}

// TestGoModOfAClone wants the clone's requirements, with the imported modules apart
// from the others.
func TestGoModOfAClone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a clone") // a space, to be quoted in go.mod
	if err := create(dir, []file{{"go.sum", nil}, {"go.mod", []byte("module " + ownModule + " // x\n\ngo 1.25\n\nrequire example.org/one v1.0.0\n\n" +
		"require (\n\texample.org/two/v2 v2.0.0 // indirect\n\texample.org/twofold v1.3.0\n)\n")}}); err != nil {
		t.Fatal(err)
	}
	b, err := readClone(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := `module example.com/new

go 1.25

require (
	example.org/two/v2 v2.0.0
	github.com/servetrace/servetrace ` + noVersion + `
)

require (
	example.org/one v1.0.0 // indirect
	example.org/twofold v1.3.0 // indirect
)

replace github.com/servetrace/servetrace => "` + dir + `"
`
	got, err := b.goMod("example.com/new", []string{"fmt", "example.org/two/v2/deep", ownModule + "/pluginsdk"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("go.mod (-want +got):\n%s", diff)
	}
}

// A command that was built from a clone needs no --replace in it: the example of
// --help works there.
func TestNewInAClone(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Path: ownModule, Version: "(devel)"}}
	b, err := scaffold{Name: "names", Kind: kindExporter}.base(info) // the working folder is in the clone
	if err != nil || b.replace != clone(t) {
		t.Errorf("base %+v, %v, want the clone %s", b, err, clone(t))
	}
	t.Chdir(t.TempDir())
	if _, err := (scaffold{}).base(info); err == nil || !strings.Contains(err.Error(), "name the clone with --replace DIR") {
		t.Errorf("outside of a clone: %v, want advice to name it", err)
	}
	if _, err := (scaffold{Replace: t.TempDir()}).base(info); err == nil || !strings.Contains(err.Error(), "no clone of servetrace") {
		t.Errorf("--replace with another folder: %v", err)
	}
}

// TestTemplatesNameWhatTheyNeed: the list of imports is found by a pattern.
func TestTemplatesNameWhatTheyNeed(t *testing.T) {
	s := scaffold{Name: "x", Kind: kindProcessor, Module: "example.org/x"}
	files, err := s.render(base{version: "v1.2.3", goLine: goRelease})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(importsOf(files), " ")
	for _, want := range []string{"go.opentelemetry.io/otel/attribute", ownModule + "/pluginsdk/plugintest", "testing"} {
		if !regexp.MustCompile(`(^| )` + regexp.QuoteMeta(want) + `($| )`).MatchString(all) {
			t.Errorf("imports %s: %s is missing", all, want)
		}
	}
}

// TestCreateOverwritesNothing: a failed create also removes its own files.
func TestCreateOverwritesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "b"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := create(dir, []file{{"a", nil}, {"b", nil}})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "b")+": there already") {
		t.Errorf("create: %v", err)
	}
	if err := create(dir, []file{{"a", nil}, {"no/such/folder", nil}}); err == nil {
		t.Error("a file in a folder that is not there is no error")
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of a create that failed is there: %v", err)
	}
	err = create(filepath.Join(dir, "b"), []file{{"a", nil}})
	if err == nil || strings.Contains(err.Error(), "there already") || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("create below a file: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "b")); err != nil || string(text) != "mine" {
		t.Errorf("b is %q, %v", text, err)
	}
}
