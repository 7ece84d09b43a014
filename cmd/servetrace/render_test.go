package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRenderRefuses has a test of the manifests beside it: test/deploy.
func TestRenderRefuses(t *testing.T) {
	for _, c := range []struct {
		remote string
		args   []string
		want   string
	}{
		{"", []string{"--autoscale", "vpa"}, `--autoscale "vpa": want hpa or keda`},
		{"", []string{"--replicas", "3", "--max-replicas", "2"}, `--replicas 3, --max-replicas 2: want at least 1, and no fewer at most than at least`},
		{"", []string{"--name", "My App"}, `--name "My App": want lower-case letters, digits and dashes, such as shop-2`},
		{"", []string{"--prometheus", "http://p:9090"}, `--prometheus "http://p:9090": only the autoscalers of KEDA have it: add --autoscale keda`},
		{"", []string{"--prometheus", "http://p:9090", "--autoscale", "hpa"}, `--prometheus "http://p:9090": only the autoscalers of KEDA have it: add --autoscale keda`},
		{"", []string{"--prometheus", "p:9090", "--autoscale", "keda"}, `--prometheus "p:9090": want an address such as http://prometheus-server.monitoring.svc`},
		{"Model=dns:///app:9100", nil, `the Service "app" is that of the pods that take requests: name another by --name, or in call_options.remote`},
		{"Model=dns:///m.a.svc:9100, Ranker=k8s:///b/r:9100", nil, `the Service "r" is in namespace "b", and the other pods are in "a": want one namespace`},
		{"Model=dns:///m.a.svc:9100", []string{"--namespace", "b"}, `the Service "m" is in namespace "a", and the other pods are in "b": want one namespace`},
		{"A=dns:///m:9100, B=dns:///m:9101", nil, `call_options.remote: Service "m" has two namespaces or ports: want one of each`},
		{"Model=dns:///192.0.2.7:9100", nil, `call_options.remote: deployment "Model": target "dns:///192.0.2.7:9100" names no Service: want dns:///SERVICE.NAMESPACE.svc:PORT or k8s:///NAMESPACE/SERVICE:PORT, with a number or "call" as the port`},
	} {
		file := filepath.Join(t.TempDir(), "serve.yaml")
		if err := os.WriteFile(file, []byte("call_options: {remote: ["+c.remote+"]}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := newRoot(func(string) string { return "" }, nil)
		cmd.SetArgs(append([]string{"render", file}, c.args...))
		if err := cmd.Execute(); err == nil || err.Error() != c.want {
			t.Errorf("remote %q, %v:\n%v, want\n%s", c.remote, c.args, err, c.want)
		}
	}
}

// TestRenderWarns: a folder to write to is a warning on standard error, because the root file
// system of the pods is read-only.
func TestRenderWarns(t *testing.T) {
	const below = " is below the root file system, which is read-only in the pods: mount a volume there\n"
	for text, want := range map[string]string{
		"{exporter_plugin: console}": "",
		"{exporter_plugin: console, plugins: {console: {config: {exporter: {output: stdout}}}}}":            "",
		"{exporter_plugin: traces=console, plugins: {traces: {config: {exporter: {output: /var/spans/}}}}}": "warning: tracing_config.plugins.traces.config.exporter.output: /var/spans/" + below,
		"{exporter_plugin: otlp, plugins: {otlp: {config: {exporter: [/a]}}}}":                              "",
		"{enabled: true}": "warning: tracing_config.enabled without exporter_plugin: span files" + below,
		"{exporter_plugin: otlp, crash_dir: /var/crash, spool_dir: /var/spool}": "warning: tracing_config.spool_dir: /var/spool" + below +
			"warning: tracing_config.crash_dir: /var/crash" + below,
	} {
		file := filepath.Join(t.TempDir(), "serve.yaml")
		if err := os.WriteFile(file, []byte("tracing_config: "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, warnings, err := command(t, nil, "render", file)
		if err != nil || warnings != want || !strings.HasPrefix(out, "---\n") {
			t.Errorf("%s: %v\n%s, want\n%s", text, err, warnings, want)
		}
	}
}

func TestRenderNamesPrometheus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, flags := range map[string][]string{
		"http://prometheus-server.monitoring.svc": nil,
		"https://p.example:9090/prom":             {"--prometheus", "https://p.example:9090/prom"},
	} {
		out, _, err := command(t, nil, append([]string{"render", file, "--autoscale", "keda"}, flags...)...)
		if want := "serverAddress: \"" + address + "\"\n"; err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v\n%s, want %s", flags, err, out, want)
		}
	}
}

// TestRenderScalesByGRPC: a service without a gRPC port has no metric of gRPC.
func TestRenderScalesByGRPC(t *testing.T) {
	for text, want := range map[string]int{"{}": 0, "grpc_options: {}": 0, "grpc_options: {port: 9001}": 1} {
		file := filepath.Join(t.TempDir(), "serve.yaml")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, by := range []string{"hpa", "keda"} {
			out, _, err := command(t, nil, "render", file, "--autoscale", by)
			if got := strings.Count(out, "serve_num_ongoing_grpc_requests"); err != nil || got != want {
				t.Errorf("%s, %s: %v, %d metrics of gRPC, want %d\n%s", text, by, err, got, want, out)
			}
		}
	}
}

// TestRenderCountsOwnPods: the autoscaler of a Deployment counts its own pods, and no pods
// of a Deployment whose name begins with the same word.
func TestRenderCountsOwnPods(t *testing.T) {
	file := filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := command(t, nil, "render", file, "--autoscale", "keda", "--name", "shop")
	found := regexp.MustCompile(`pod=~"(.*?)"`).FindStringSubmatch(out)
	if err != nil || found == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pods := regexp.MustCompile("^(?:" + found[1] + ")$") // Prometheus matches whole values
	for pod, want := range map[string]bool{
		"shop-7d9c6f8b5-x2v9k": true, "shop-7d9c6fx2v9k": true, "shop-2-7d9c6f8b5-x2v9k": false, "shop-2-0": false, "shop-model-7d9c6f8b5-x2v9k": false,
	} {
		if got := pods.MatchString(pod); got != want {
			t.Errorf("%s matches %s: %v, want %v", pods, pod, got, want)
		}
	}
}
