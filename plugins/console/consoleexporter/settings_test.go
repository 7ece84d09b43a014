package consoleexporter_test

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// TestDocument: the configuration supplies values that variables do not set, in any form
// that the SDK reads.
func TestDocument(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		document, format string // the last one is a variable
		stdout           string // the beginning of the output; empty: it goes to the folder
	}{
		{document: "", stdout: "{"},
		{document: "exporter: {format: pretty}", stdout: "trace "},
		{document: "exporter:\n  format: pretty\n  output: stdout\n", stdout: "trace "},
		{document: `{"exporter": {"output": "FOLDER"}}`},
		{document: "exporter: {format: pretty, output: stdout}", format: "json", stdout: "{"},
		{document: "exporter: {format: pretty, output: FOLDER}", format: "json"},
	} {
		var stdout bytes.Buffer
		folder := filepath.Join(dir, strconv.Itoa(i))
		s := setup(map[string]string{consoleexporter.EnvFormat: c.format}, &stdout)
		s.Config = []byte(strings.ReplaceAll(c.document, "FOLDER", folder))
		export(t, s, resource("", nil, inTrace(1, 1, 0, "span", 1000)))
		if got := stdout.String(); !strings.HasPrefix(got, c.stdout) || c.stdout == "" && got != "" {
			t.Errorf("%q with %q: standard output has %q, want it to begin with %q", c.document, c.format, got, c.stdout)
		}
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil || (len(files) == 1) != (c.stdout == "") {
			t.Errorf("%q with %q: files %q, %v", c.document, c.format, files, err)
		}
	}
}

func TestWrongDocuments(t *testing.T) {
	// A wrong value is one where a variable would count, too.
	variables := map[string]string{consoleexporter.EnvFormat: "json", consoleexporter.EnvOutput: "stdout"}
	for _, document := range []string{"exporter: {format: xml}", "exporter: {output: spans}"} {
		s := setup(variables, io.Discard)
		s.Config = []byte(document)
		if _, err := consoleexporter.New(t.Context(), s); err == nil || !strings.HasPrefix(err.Error(), "exporter.") {
			t.Errorf("%q beside variables gives %v", document, err)
		}
	}
	for document, want := range map[string]string{
		"exporter: {format: xml}":                       `exporter.format: "xml" is not known: want json or pretty`,
		"exporter: {output: spans}":                     `exporter.output: "spans" is not known: want stdout, or a folder as a path with a slash, such as ./spans`,
		"exporter: {output: stderr}":                    `exporter.output: "stderr" is the service's log and not for spans: want stdout, or a folder as a path with a slash, such as ./spans`,
		"exporter: {format: pretty, output: ./spans}":   `exporter.output: "./spans" is a folder, which takes json only, in files of one component each: want stdout with exporter.format pretty`,
		"exporter: {output: " + "/dev/null/spans" + "}": `exporter.output: create the folder: mkdir /dev/null: not a directory`,
		"exporter: {colour: red}":                       "exporter.colour",
		"exporter: {format: [json]}":                    "exporter.format",
		"- exporter":                                    "want",
		"\x00":                                          "line 1: the byte 0x00 is no text; write the file in UTF-8",
	} {
		s := setup(nil, nil)
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
	s := setup(map[string]string{consoleexporter.EnvOutput: "stdout"}, &stdout)
	s.Config = []byte("exporter: {output: " + dir + "}")
	export(t, s, resource("", nil, proxySpan()))
	if made, err := filepath.Glob(dir); err != nil || len(made) > 0 || stdout.Len() == 0 {
		t.Errorf("folder %q, %v; %d bytes of output", made, err, stdout.Len())
	}
}

// TestEnvPatternsAreTheCallers: patterns that a caller appends stay with the caller.
func TestEnvPatternsAreTheCallers(t *testing.T) {
	one, two := append(consoleexporter.EnvPatterns(), "ONE"), append(consoleexporter.EnvPatterns(), "TWO")
	if slices.Contains(one, "TWO") || slices.Contains(two, "ONE") || one[0] != consoleexporter.EnvFormat {
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
