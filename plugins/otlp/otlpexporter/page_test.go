package otlpexporter

import (
	"os"
	"strings"
	"testing"
)

// TestPageIsWhole: the page for operators has each variable, and the words of each
// fault.
func TestPageIsWhole(t *testing.T) {
	content, err := os.ReadFile("../../../docs/how-to/otlp.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	for _, name := range EnvPatterns() {
		if !strings.HasSuffix(name, "*") && !strings.Contains(page, "`"+name+"`") {
			t.Errorf("the page lacks %s", name)
		}
	}
	for _, variables := range [][]string{nil, {EnvEndpoint + "=https://a", EnvCertificate + "=" + newAuthority(t).file}} {
		c, err := readSettings(env(variables...), Defaults{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			words, _, _ := strings.Cut((&adviser{c}).says(f), ":")
			words, _, _ = strings.Cut(words, " in \"")
			words = strings.TrimSpace(words)
			if !strings.Contains(page, "`"+words) {
				t.Errorf("the page has nothing on %q", words)
			}
		}
	}
}
