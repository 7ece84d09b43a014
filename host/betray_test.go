package host_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/total"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestSecretsThatThePluginBetrays: a plugin prints its secrets in every place and in
// every form of printed text. No secret is shown, neither from its configuration nor from
// a variable of its start.
func TestSecretsThatThePluginBetrays(t *testing.T) {
	const ofFile, ofEnv = `s3cr3t/0f+a "f1l3" <&>`, `of-the-start-s3cr3t`
	path, dir := testplugin.Install(t, "betray"), filepath.Join(t.TempDir(), "crashes")
	var cfg host.Config
	r := startHost(t, func(c *host.Config) {
		c.CrashDir = dir
		c.PluginEnv = map[string][]string{"p0": {"BETRAYED"}}
		c.Environ = append(c.Environ, "BETRAYED="+ofEnv)
		c.PluginConfigs = map[string]host.PluginConfig{"p0": {Document: []byte("secret: ${file:" + file(t, "secret", ofFile+"\n") + "}\nstart: ${env:BETRAYED}\n")}}
		cfg = *c
	}, path)
	r.waitReady(0)
	r.spans("filtered", 3)
	counts := func() host.ExporterStats { return r.Stats().Exporters[0] }
	testplugin.WaitFor(t, "filtered spans", func() bool { return len(counts().Filtered) > 0 })
	var statuses strings.Builder
	for counts().Crashes == 0 {
		before := counts()
		r.spans("s", 1)
		testplugin.WaitFor(t, "an answer", func() bool {
			b := counts()
			return b.Crashes > 0 || total.Of(b.Rejected) > total.Of(before.Rejected)
		})
		fmt.Fprintf(&statuses, "%+v\n", r.Stats())
	}
	var report string
	testplugin.WaitFor(t, "a crash report", func() bool {
		report = ""
		_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				data, _ := os.ReadFile(name)
				report += string(data)
			}
			return nil
		})
		return strings.Contains(report, "panic: ")
	})
	about := fmt.Sprintf("%+v", host.Inspect(t.Context(), cfg, true)[0].About)
	for where, text := range map[string]string{
		"log": r.log.String(), "status": statuses.String(), "crash report": report, "inspection": about,
	} {
		for _, line := range strings.Split(text, "\n") {
			if shown := shows(line, ofFile, ofEnv); shown != "" {
				t.Errorf("the %s shows %q: %.500s", where, shown, line)
			}
		}
		if !strings.Contains(text, "<redacted>") {
			t.Errorf("the %s has nothing of it: %.500s", where, text)
		}
	}
}

// shows returns ten consecutive characters of a secret, in any form, that text has; ""
// for none.
func shows(text string, secrets ...string) string {
	folded := strings.ToLower(text)
	for _, secret := range secrets {
		forms := []string{secret, hex.EncodeToString([]byte(secret)), fmt.Sprintf("%q", secret)}
		for before := range 3 {
			forms = append(forms, base64.StdEncoding.EncodeToString(append(slices.Repeat([]byte{'x'}, before), secret...))[4:])
		}
		const few = 10
		for _, form := range forms {
			form = strings.ToLower(form)
			for at := 0; at+few <= len(form); at++ {
				if strings.Contains(folded, form[at:at+few]) {
					return form[at : at+few]
				}
			}
		}
	}
	return ""
}
