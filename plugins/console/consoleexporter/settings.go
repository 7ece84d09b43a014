package consoleexporter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/servetrace/servetrace/pluginsdk"
)

// The variables that are this package's own; [EnvPatterns] has all that it reads.
const (
	// EnvFormat is the form: json, which is the default, or pretty.
	EnvFormat = "SERVE_CONSOLE_FORMAT"
	// EnvOutput says where spans go: stdout (the default), or a folder, as a path
	// with a slash in it, or a dot. A folder takes json only.
	EnvOutput = "SERVE_CONSOLE_OUTPUT"
)

// The patterns of [EnvPatterns].
const (
	envNoColour    = "NO_COLOR"
	envForceColour = "FORCE_COLOR"
	envTerm        = "TERM"
	envColumns     = "COLUMNS"
)

// EnvPatterns gives the variables that [New] reads, for pluginsdk.Spec.Env:
// those above, and for drawings what terminals and their users say of
// themselves:
//
//   - the one of https://no-color.org, if not empty, forbids colours, whatever
//     else is set;
//   - the one of https://force-color.org, if not empty, wants them where the
//     output is no terminal, too; 0 and false forbid them;
//   - TERM: "dumb" means ASCII without colours, empty means without colours;
//   - COLUMNS is the width where the output is no terminal, which is asked;
//   - LC_ALL, LC_CTYPE, LANG, of which the first that is set must name UTF-8,
//     else drawings are in ASCII. Every plugin has them, so they are not in the
//     list.
//
// The slice is the caller's, to append to.
func EnvPatterns() []string {
	return []string{EnvFormat, EnvOutput, envNoColour, envForceColour, envTerm, envColumns}
}

// Forms and outputs.
const (
	formatJSON   = "json"
	formatPretty = "pretty"
	outputStdout = "stdout"
)

// settings are what the operator chose, checked.
type settings struct {
	format, output string
	// outputFrom is the name of what output is from, for errors.
	outputFrom string
}

// document is the plugin's, of which this package has one part.
type document struct {
	Exporter struct {
		Format string `yaml:"format"`
		Output string `yaml:"output"`
	} `yaml:"exporter"`
}

// readSettings takes each setting from its variable, or else from the document.
// An error names the one or the other; a wrong value is one also where the other
// would count.
func readSettings(s pluginsdk.Setup) (settings, error) {
	var doc document
	if err := s.DecodeConfig(&doc); err != nil {
		return settings{}, err
	}
	format, formatFrom, errFormat := choose(knownFormat, formatJSON,
		source{EnvFormat, s.Getenv(EnvFormat)}, source{"exporter.format", doc.Exporter.Format})
	output, outputFrom, errOutput := choose(knownOutput, outputStdout,
		source{EnvOutput, s.Getenv(EnvOutput)}, source{"exporter.output", doc.Exporter.Output})
	if err := errors.Join(errFormat, errOutput); err != nil {
		return settings{}, err
	}
	if format == formatPretty && isFolder(output) {
		return settings{}, &pluginsdk.ConfigError{Path: outputFrom, Err: fmt.Errorf(
			"%q is a folder, which takes json only, in files of one component each: want stdout with %s pretty",
			output, formatFrom)}
	}
	return settings{format, output, outputFrom}, nil
}

// source is one place where a setting may be, and its value there; empty: it is
// not set.
type source struct{ name, value string }

// choose gives the first value that is set, else the default, and the name of
// what it is from, once all are known.
func choose(known func(string) error, otherwise string, sources ...source) (value, from string, err error) {
	for _, s := range sources {
		if s.value == "" {
			continue
		}
		if fault := known(s.value); fault != nil {
			err = errors.Join(err, &pluginsdk.ConfigError{Path: s.name, Err: fault})
		}
		if value == "" {
			value, from = s.value, s.name
		}
	}
	if value == "" {
		return otherwise, sources[0].name, nil
	}
	return value, from, err
}

func knownFormat(format string) error {
	if format == formatJSON || format == formatPretty {
		return nil
	}
	return fmt.Errorf("%q is not known: want json or pretty", format)
}

func knownOutput(output string) error {
	if output == outputStdout || isFolder(output) {
		return nil
	}
	if output == "stderr" {
		return errors.New(`"stderr" is the service's log, which has no room for spans: want stdout, or a folder as a path with a slash, such as ./spans`)
	}
	return fmt.Errorf("%q is not known: want stdout, or a folder as a path with a slash, such as ./%[1]s", output)
}

// isFolder tells whether an output is files.
func isFolder(output string) bool { return output == "." || strings.Contains(output, "/") }
