package main

import (
	"os"
	"path/filepath"
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
		cmd := newRender(settings{func(string) string { return "" }})
		cmd.SetArgs(append([]string{file}, c.args...))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.Execute(); err == nil || err.Error() != c.want {
			t.Errorf("remote %q, %v:\n%v, want\n%s", c.remote, c.args, err, c.want)
		}
	}
}
