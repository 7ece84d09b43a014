package helm

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

const chart = "../../../deploy/helm/servetrace"

// serviceFile has a deployment of each kind of target, and text that a template may spoil.
const serviceFile = `# Two models apart.
http_options: {port: 8080}
grpc_options: {port: 9001}
call_options:
  remote:
    - Model=dns:///model.shop.svc:9100
    - shop/Ranker=k8s:///shop/ranker:9200
applications:
  - name: shop
    deployments:
      - name: Model
        num_replicas: 2
        max_ongoing_requests: 8
        user_config: {text: "{{ .Values.image }}\n\n  \"quoted\": # no comment"}
`

func TestHelmMakesTheSameManifests(t *testing.T) {
	dir := t.TempDir()
	file, bin := filepath.Join(dir, "serve.yaml"), filepath.Join(dir, "servetrace")
	if err := os.WriteFile(file, []byte(serviceFile), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", bin, "./cmd/servetrace")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, flags := range [][]string{nil, {"--autoscale", "hpa", "--plugins-image", "registry.example/plugins:1"}, {"--autoscale", "keda"}, {"--autoscale", "keda", "--prometheus", "http://p:9090"}} {
		args := append([]string{"render", file, "--name", "shop", "--image", "registry.example/shop:2"}, flags...)
		want := documents(t, render(t, bin, args))
		got := documents(t, template(t, render(t, bin, append(args, "--values"))))
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("%v: manifests (-render +helm):\n%s", flags, diff)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: (-render +helm):\n%s", flags, diff)
		}
	}
}

func render(t *testing.T, bin string, args []string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(bin, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

// template is "helm template shop --namespace shop -f VALUES".
func template(t *testing.T, text string) string {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	given, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	values, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "shop", Namespace: "shop", IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(slices.Collect(maps.Values(files)), "\n---\n")
}

var separator = regexp.MustCompile(`(?m)^---$`)

// documents returns the manifests by kind and name.
func documents(t *testing.T, text string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, doc := range separator.Split(text, -1) {
		var manifest struct {
			Kind     string
			Metadata struct{ Name string }
		}
		var whole any
		if err := yaml.Unmarshal([]byte(doc), &manifest); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if err := yaml.Unmarshal([]byte(doc), &whole); err != nil {
			t.Fatal(err)
		}
		if whole != nil {
			all[manifest.Kind+" "+manifest.Metadata.Name] = whole
		}
	}
	return all
}
