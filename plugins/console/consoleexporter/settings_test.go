package consoleexporter_test

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// TestDocument holds that the document says what variables do not, in any form
// that the SDK reads.
func TestDocument(t *testing.T) {
	for _, c := range []struct {
		document, format, output string // the last two are variables
		stdout, stderr           string // how what is written begins
	}{
		{document: "", stdout: "{"},
		{document: "exporter: {format: pretty}", stdout: "trace "},
		{document: "exporter:\n  format: pretty\n  output: stderr\n", stderr: "trace "},
		{document: `{"exporter": {"output": "stderr"}}`, stderr: "{"},
		{document: "exporter: {format: pretty, output: stderr}", format: "json", stderr: "{"},
		{document: "exporter: {format: pretty, output: stderr}", output: "stdout", stdout: "trace "},
	} {
		var stdout, stderr bytes.Buffer
		s := setup(map[string]string{consoleexporter.EnvFormat: c.format, consoleexporter.EnvOutput: c.output}, &stdout, &stderr)
		s.Config = []byte(c.document)
		export(t, s, resource("", nil, inTrace(1, 1, 0, "span", 1000)))
		for _, out := range []struct {
			name, got, want string
		}{{"stdout", stdout.String(), c.stdout}, {"stderr", stderr.String(), c.stderr}} {
			if !strings.HasPrefix(out.got, out.want) || out.want == "" && out.got != "" {
				t.Errorf("%q with %q, %q: %s has %q, want it to begin with %q", c.document, c.format, c.output, out.name, out.got, out.want)
			}
		}
	}
}

func TestWrongDocuments(t *testing.T) {
	// A wrong value is one where a variable would count, too.
	variables := map[string]string{consoleexporter.EnvFormat: "json", consoleexporter.EnvOutput: "stdout"}
	for _, document := range []string{"exporter: {format: xml}", "exporter: {output: spans}"} {
		s := setup(variables, io.Discard, nil)
		s.Config = []byte(document)
		if _, err := consoleexporter.New(t.Context(), s); err == nil || !strings.HasPrefix(err.Error(), "exporter.") {
			t.Errorf("%q beside variables gives %v", document, err)
		}
	}
	for document, want := range map[string]string{
		"exporter: {format: xml}":                       `exporter.format: "xml" is not known: want json or pretty`,
		"exporter: {output: spans}":                     `exporter.output: "spans" is not known: want stdout, stderr, or a folder as a path with a slash, such as ./spans`,
		"exporter: {format: pretty, output: ./spans}":   `exporter.output: "./spans" is a folder, which takes json only, in files of one component each: want stdout or stderr with exporter.format pretty`,
		"exporter: {output: " + "/dev/null/spans" + "}": `exporter.output: make the folder: mkdir /dev/null: not a directory`,
		"exporter: {colour: red}":                       "exporter.colour",
		"exporter: {format: [json]}":                    "exporter.format",
		"- exporter":                                    "want",
		"\x00":                                          "control characters are not allowed",
	} {
		s := setup(nil, nil, nil)
		s.Config = []byte(document)
		_, err := consoleexporter.New(t.Context(), s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v\nwant %s", document, err, want)
		}
	}
}

// TestVariablesWin has a document whose folder must not be made.
func TestVariablesWin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spans")
	var stdout bytes.Buffer
	s := setup(map[string]string{consoleexporter.EnvOutput: "stdout"}, &stdout, nil)
	s.Config = []byte("exporter: {output: " + dir + "}")
	export(t, s, resource("", nil, proxySpan()))
	if made, err := filepath.Glob(dir); err != nil || len(made) > 0 || stdout.Len() == 0 {
		t.Errorf("folder %q, %v; %d bytes of output", made, err, stdout.Len())
	}
}

// TestEnvPatternsAreTheCallers holds that what is appended to them stays with
// whoever does.
func TestEnvPatternsAreTheCallers(t *testing.T) {
	one, two := append(consoleexporter.EnvPatterns(), "ONE"), append(consoleexporter.EnvPatterns(), "TWO")
	if slices.Contains(one, "TWO") || slices.Contains(two, "ONE") || one[0] != "SERVE_CONSOLE_*" {
		t.Errorf("patterns are %q and %q", one, two)
	}
	for _, spec := range [][]string{one, two} {
		err := pluginsdk.Run(t.Context(), pluginsdk.Env{Args: []string{"x", "--describe"}}, pluginsdk.Spec{
			Name: "x", Env: spec, Exporter: consoleexporter.New,
		})
		if err != nil {
			t.Error(err)
		}
	}
}
