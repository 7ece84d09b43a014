package servetrace

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/internal/settings"
)

// unreadIn returns the texts of the warnings in a log, in order.
func unreadIn(log string) []string {
	var texts []string
	for _, line := range strings.Split(log, "\n") {
		if found := regexp.MustCompile(`level=WARN msg="setting is not used" setting="(.*)"`).FindStringSubmatch(line); found != nil {
			texts = append(texts, found[1])
		}
	}
	return texts
}

// TestUnreadVariablesAreWarnedOf checks that a service warns once of each variable that
// looks like a setting although no code reads it, and once of all variables of Ray. A
// variable that a plugin declares has a reader, and so has a variable that its
// configuration refers to.
func TestUnreadVariablesAreWarnedOf(t *testing.T) {
	document := filepath.Join(t.TempDir(), "console.yaml")
	text := `exporter: {format: "${env:SERVE_ACME_TOKEN}"}`
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := []string{"SERVE_TRACING_SAMPLE_RATIO=0.1", "SERVE_SERVICE_PORT=8000", "SERVE_SERVICE_HOST=10.0.0.1", "ANYSCALE_TRACING_SAMPLING_RATIO=1", "RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=a:b", "SERVE_ACME_TOKEN=hunter2"}
	const (
		ratio = "SERVE_TRACING_SAMPLE_RATIO: neither the service nor a running plugin reads this variable; did you mean SERVE_TRACING_SAMPLING_RATIO?"
		ray   = "ANYSCALE_TRACING_SAMPLING_RATIO, RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH: Ray's settings have no effect here; set SERVE_TRACING_EXPORTER_PLUGIN=python:MODULE:FUNCTION and SERVE_TRACING_SAMPLING_RATIO"
		acme  = "SERVE_ACME_TOKEN: neither the service nor a running plugin reads this variable"
	)
	for name, c := range map[string]struct {
		env  []string
		want []string
	}{
		"no plugin":             {nil, []string{ray, acme, ratio}},
		"plugin declares it":    {[]string{"SERVE_TRACING_EXPORTER_PLUGIN=console,acme"}, []string{ray, ratio}},
		"document refers to it": {[]string{"SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_TRACING_PLUGIN_CONFIG=console=" + document, "SERVE_ACME_TOKEN=json"}, []string{ray, ratio}},
		"operator grants it":    {[]string{"SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_TRACING_PLUGIN_ENV=console:SERVE_ACME_TOKEN"}, []string{ray, ratio}},
		"plugin does not start": {[]string{"SERVE_TRACING_EXPORTER_PLUGIN=./nosuch", "SERVE_TRACING_START_TIMEOUT=100ms"}, []string{ray, acme, ratio}},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProc(t, append(wrong, c.env...)...)
			p.log.await(t, `setting="`+ratio)
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d\n%s", code, p.log)
			}
			if diff := cmp.Diff(c.want, unreadIn(p.log.String())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(p.log.String(), "hunter2") {
				t.Errorf("the log has a value:\n%s", p.log)
			}
		})
	}
}

// TestVariablesOfThePageAreKnown checks that every variable of the settings page has a
// reader. The variables of the relay have theirs in package relay.
func TestVariablesOfThePageAreKnown(t *testing.T) {
	page, err := os.ReadFile("docs/reference/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	var environ []string
	for _, name := range regexp.MustCompile(`\bSERVE(_[A-Z0-9]+)+\b`).FindAllString(string(page), -1) {
		if !strings.HasPrefix(name, "SERVE_RELAY_") {
			environ = append(environ, name+"=x")
		}
	}
	if len(environ) < 50 {
		t.Fatalf("the page has %d variables only: %q", len(environ), environ)
	}
	for _, warning := range settings.Warnings(settings.Unread(environ, readSettings, nil), "nothing reads it") {
		t.Error(warning)
	}
}
