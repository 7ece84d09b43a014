package consoleexporter

import (
	"fmt"
	"strings"

	"github.com/servetrace/servetrace/pluginsdk"
)

// The variables that are this package's own; [EnvPatterns] has all that it reads.
const (
	// EnvPattern covers them.
	EnvPattern = "SERVE_CONSOLE_*"
	// EnvFormat is the form: json, which is the default, or pretty.
	EnvFormat = "SERVE_CONSOLE_FORMAT"
	// EnvOutput says where spans go: stdout (the default), stderr, or a folder,
	// as a path with a slash in it, or a dot. A folder takes json only.
	EnvOutput = "SERVE_CONSOLE_OUTPUT"
)

// EnvPatterns gives the variables that [New] reads, for pluginsdk.Spec.Env:
// those above, and for drawings what terminals and their users say of
// themselves:
//
//   - NO_COLOR, if not empty, forbids colours, whatever else is set
//     (https://no-color.org).
//   - FORCE_COLOR, if not empty, wants them where the output is no terminal, too;
//     0 and false forbid them.
//   - TERM: "dumb" means ASCII without colours, empty means without colours.
//   - COLUMNS is the width where the output is no terminal, which is asked.
//   - LC_ALL, LC_CTYPE, LANG, of which the first that is set must name UTF-8,
//     else drawings are in ASCII. Every plugin has them, so they are not in the
//     list.
//
// The slice is the caller's, to append to.
func EnvPatterns() []string {
	return []string{EnvPattern, "NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS"}
}

// Forms and outputs.
const (
	formatJSON   = "json"
	formatPretty = "pretty"
	outputStdout = "stdout"
	outputStderr = "stderr"
)

// settings are what the operator chose.
type settings struct {
	format, output string
	// outputFrom is the name of what output is from, for errors.
	outputFrom string
}

// folder tells whether spans go to files.
func (s settings) folder() bool { return s.output == "." || strings.Contains(s.output, "/") }

// document is the plugin's, of which this package has one part.
type document struct {
	Exporter struct {
		Format string `yaml:"format"`
		Output string `yaml:"output"`
	} `yaml:"exporter"`
	Others map[string]any `yaml:",inline"`
}

// readSettings takes each setting from its variable, or else from the document,
// and checks it. An error names the one or the other.
func readSettings(s pluginsdk.Setup) (settings, error) {
	var doc document
	if err := s.DecodeConfig(&doc); err != nil {
		return settings{}, err
	}
	format, formatFrom := choose(s, EnvFormat, doc.Exporter.Format, "exporter.format", formatJSON)
	output, outputFrom := choose(s, EnvOutput, doc.Exporter.Output, "exporter.output", outputStdout)
	chosen := settings{format, output, outputFrom}
	if format != formatJSON && format != formatPretty {
		return chosen, &pluginsdk.ConfigError{Path: formatFrom, Err: fmt.Errorf("%q is not known: want json or pretty", format)}
	}
	if output != outputStdout && output != outputStderr && !chosen.folder() {
		return chosen, &pluginsdk.ConfigError{Path: outputFrom, Err: fmt.Errorf(
			"%q is not known: want stdout, stderr, or a folder as a path with a slash, such as ./%[1]s", output)}
	}
	if format == formatPretty && chosen.folder() {
		return chosen, &pluginsdk.ConfigError{Path: outputFrom, Err: fmt.Errorf(
			"%q is a folder, which takes json only, in files of one component each: want stdout or stderr with %s pretty",
			output, formatFrom)}
	}
	return chosen, nil
}

// choose gives the value of a variable, else that of the document, else the
// default, and the name of what it is from.
func choose(s pluginsdk.Setup, variable, value, path, otherwise string) (chosen, from string) {
	if fromEnv := s.Getenv(variable); fromEnv != "" {
		return fromEnv, variable
	}
	if value != "" {
		return value, path
	}
	return otherwise, variable
}
