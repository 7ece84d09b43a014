package recipe

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// builder gives one for a module that has a single file, and the folder that
// its peers go to.
func builder(t *testing.T) (Builder, *bytes.Buffer) {
	t.Helper()
	module := t.TempDir()
	if err := os.WriteFile(filepath.Join(module, "definition"), []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	return Builder{Module: module, Peers: filepath.Join(t.TempDir(), "peers"), Go: "go", Output: &said, Environ: os.Environ()}, &said
}

func copied() Recipe {
	return Recipe{Name: "copied", Files: []string{"definition"}, Commands: []Command{
		{Dir: "{work}", Args: []string{"cp", "{module}/definition", "between"}},
		{Dir: "{work}", Args: []string{"cp", "between", "{out}/copied"}},
	}}
}

func TestPeerIsBuiltOnceForEachDefinition(t *testing.T) {
	b, _ := builder(t)
	first, built, err := b.Build(t.Context(), copied())
	if err != nil || !built {
		t.Fatalf("the first time: built %v, %v", built, err)
	}
	if text, err := os.ReadFile(filepath.Join(first, "copied")); string(text) != "one" {
		t.Errorf("the peer is %q, %v", text, err)
	}
	if again, built, err := b.Build(t.Context(), copied()); again != first || built || err != nil {
		t.Errorf("the second time: %s, built %v, %v; want %s, there already", again, built, err, first)
	}
	if err := os.WriteFile(filepath.Join(b.Module, "definition"), []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if other, built, err := b.Build(t.Context(), copied()); other == first || !built || err != nil {
		t.Errorf("with another file: %s, built %v, %v; want another folder, built", other, built, err)
	}
	changed := copied()
	changed.Commands[1].Args = append(changed.Commands[1].Args, "-f")
	if other, built, err := b.Build(t.Context(), changed); other == first || !built || err != nil {
		t.Errorf("with another command: %s, built %v, %v; want another folder, built", other, built, err)
	}
	if names := list(t, b.Peers); len(names) != 4 || names[0] != "copied" {
		t.Errorf("the folder of peers holds %q, want a link, three peers and nothing else", names)
	}
	if text, err := os.ReadFile(filepath.Join(b.Peers, "copied", "copied")); string(text) != "two" {
		t.Errorf("the link leads to %q, %v, want the newest", text, err)
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	b, said := builder(t)
	r := copied()
	r.Commands = append(r.Commands, Command{Dir: "{work}", Args: []string{"cp", "nothing", "{out}/"}})
	if _, built, err := b.Build(t.Context(), r); err == nil || built || !strings.Contains(err.Error(), "build peer copied: cp nothing") {
		t.Errorf("built %v, %v; want an error that names peer and command", built, err)
	}
	if said.Len() == 0 {
		t.Error("what the command said is lost")
	}
	if names := list(t, b.Peers); len(names) != 0 {
		t.Errorf("the folder of peers holds %q", names)
	}
}

func TestEnvironmentDoesNotChangeWhatIsBuilt(t *testing.T) {
	b, said := builder(t)
	b.Environ = append(b.Environ, "GOFLAGS=-mod=nonsense", "GOOS=plan9", "GOWORK=/nowhere/go.work", "CGO_ENABLED=1", "GOPROXY=http://127.0.0.1:1")
	r := Recipe{Name: "env", Commands: []Command{{Dir: "{work}", Args: []string{"go", "env", "GOFLAGS", "GOOS", "GOWORK", "CGO_ENABLED", "GOPROXY"}}}}
	if _, _, err := b.Build(t.Context(), r); err != nil {
		t.Fatal(err, said)
	}
	lines := strings.Split(said.String(), "\n")
	if lines[0] != "-buildvcs=false" || lines[1] == "plan9" || lines[2] != "off" || lines[3] != "0" || lines[4] != "http://127.0.0.1:1" {
		t.Errorf("the go command sees %q: only the proxy is the user's to say", lines)
	}
}

func TestPeersLieWhereTheVariableSays(t *testing.T) {
	for value, want := range map[string]string{
		"":       "/repo/.tools/peers",
		"/other": "/other",
		"shared": "/repo/shared",
	} {
		getenv := func(name string) string { return map[string]string{EnvDir: value}[name] }
		if got := Peers("/repo/test/peers", getenv); got != want {
			t.Errorf("%s=%q: %s, want %s", EnvDir, value, got, want)
		}
	}
}

func TestEveryRecipeIsWhole(t *testing.T) {
	module, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, r := range All() {
		key, err := r.Key(module)
		if err != nil {
			t.Error(err)
		}
		if keys[key] || len(r.Commands) == 0 || !strings.HasPrefix(key, r.Name+"-") {
			t.Errorf("peer %q, key %q, %d commands", r.Name, key, len(r.Commands))
		}
		keys[key] = true
	}
	if _, err := (Recipe{Name: "x", Files: []string{"nothing/*.go"}}).Key(module); err == nil {
		t.Error("a recipe whose files are not there has a key")
	}
	if _, err := Dir(module, "/peers", "nobody"); err == nil {
		t.Error("a peer that there is not has a folder")
	}
}

// list gives the names in a folder, none where it is not there.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
