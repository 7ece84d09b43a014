package consoleexporter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/servetrace/servetrace/internal/waterfall"
	"github.com/servetrace/servetrace/pluginsdk"
)

// This package's own variables; [EnvPatterns] returns all variables that it reads.
const (
	// EnvFormat is the format: json (the default) or pretty.
	EnvFormat = "SERVE_CONSOLE_FORMAT"
	// EnvOutput is the destination: stdout (the default), or a folder, as a path with a
	// slash or a dot. A folder requires json.
	EnvOutput = "SERVE_CONSOLE_OUTPUT"
)

// EnvPatterns returns the variables that [New] reads, for pluginsdk.Spec.Env: the
// variables above, and for drawings the variables of terminals:
//
//   - the variable of https://no-color.org, if not empty, disables colours with priority
//     over all other variables.
//   - the variable of https://force-color.org, if not empty, enables colours even if the
//     output is no terminal; 0 and false disable them.
//   - TERM: "dumb" means ASCII without colours, empty means without colours.
//   - COLUMNS is the width if the output is no terminal.
//   - LC_ALL, LC_CTYPE, LANG: the first that is set must name UTF-8, or drawings are in
//     ASCII. Every plugin gets them, so they are not in the list.
//
// The caller owns the slice.
func EnvPatterns() []string {
	return []string{EnvFormat, EnvOutput, waterfall.EnvNoColour, waterfall.EnvForceColour, waterfall.EnvTerm, waterfall.EnvColumns}
}

const (
	formatJSON   = "json"
	formatPretty = "pretty"
	outputStdout = "stdout"
)

type settings struct {
	format, output string
	// outputFrom names the setting that output comes from, for error messages.
	outputFrom string
}

// document is the configuration of the plugin. This package uses a part of it.
type document struct {
	Exporter struct {
		Format string `yaml:"format"`
		Output string `yaml:"output"`
	} `yaml:"exporter"`
}

// readSettings reads each setting from its variable, or from the configuration if the
// variable is not set. Errors name the source. An invalid value is an error even if the
// other source overrides it.
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

// source is the name of a source of a setting, and its value there. An empty value means
// that the setting is not set.
type source struct{ name, value string }

// choose returns the first value that is set, and the name of its source. If none is set,
// it returns the default. It validates all values.
func choose(known func(string) error, otherwise string, sources ...source) (value, from string, err error) {
	for _, s := range sources {
		if s.value == "" {
			continue
		}
		if wrong := known(s.value); wrong != nil {
			err = errors.Join(err, &pluginsdk.ConfigError{Path: s.name, Err: wrong})
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
		return errors.New(`"stderr" is the service's log and not for spans: want stdout, or a folder as a path with a slash, such as ./spans`)
	}
	return fmt.Errorf("%q is not known: want stdout, or a folder as a path with a slash, such as ./%[1]s", output)
}

func isFolder(output string) bool { return output == "." || strings.Contains(output, "/") }
