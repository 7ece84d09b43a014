//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// render returns what "servetrace render" prints.
func render(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", append([]string{"run", "./cmd/servetrace", "render"}, args...)...)
	cmd.Dir = "../.."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("render: %v", err)
	}
	return out
}

// TestServerTakesRenderedManifests has the API server check the manifests of "servetrace
// render". Nothing is kept. test/deploy checks what they say.
func TestServerTakesRenderedManifests(t *testing.T) {
	dir := t.TempDir()
	file, manifests := filepath.Join(dir, "serve.yaml"), filepath.Join(dir, "manifests.yaml")
	text := "call_options: {remote: [Model=dns:///model.default.svc:9100, Ranker=k8s:///default/ranker:9200]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := render(t, file, "--autoscale", "hpa", "--plugins-image", "registry.example/plugins:1")
	if err := os.WriteFile(manifests, out, 0o600); err != nil {
		t.Fatal(err)
	}
	got := kubectl(t, "apply", "--dry-run=server", "-f", manifests)
	if n, want := strings.Count(got, "(server dry run)"), strings.Count(string(out), "\nkind: "); n != want {
		t.Errorf("the server takes %d of %d manifests:\n%s", n, want, got)
	}
}
