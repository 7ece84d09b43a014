package pluginlist

import (
	"encoding/base64"
	"slices"
	"testing"
)

// TestSecretsOf: parts of a variable's value that a plugin may show alone are secrets,
// too.
func TestSecretsOf(t *testing.T) {
	basic := base64.StdEncoding.EncodeToString([]byte("bob:hunter2-hunter2"))
	for kv, want := range map[[2]string][]string{
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abcdef, x-key=ghijkl"}:         {"Bearer abcdef", "abcdef", "ghijkl"},
		{"API_TOKEN", "Basic " + basic}:                                                       {basic, "hunter2-hunter2"},
		{"GOOGLE_KEY", `{"type": "account", "key": {"pem": "-----BEGIN\nabcdefghijklmnop"}}`}: {"-----BEGIN\nabcdefghijklmnop"},
		{"https_proxy", "http://bob:hunter2@proxy:1"}:                                         {"hunter2"},
	} {
		got := secretsOf(kv[0], kv[1])
		for _, text := range want {
			if !slices.Contains(got, text) {
				t.Errorf("%s=%s has the secrets %q, and not %q", kv[0], kv[1], got, text)
			}
		}
		if slices.Contains(got, "account") {
			t.Errorf("a word is a secret: %q", got)
		}
	}
	if got := secretsOf("LANG", "Bearer abcdef"); len(got) > 0 {
		t.Errorf("LANG has secrets: %q", got)
	}
}
