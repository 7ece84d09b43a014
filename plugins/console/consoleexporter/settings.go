package consoleexporter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/servetrace/servetrace/internal/waterfall"
	"github.com/servetrace/servetrace/pluginsdk"
)

// The environment variables of this package. [EnvPatterns] also returns variables of
// other programs that it reads.
const (
	// EnvFormat is the variable for the format of the output: json (the default) or pretty.
	EnvFormat = "SERVE_CONSOLE_FORMAT"
	// EnvOutput is the variable for the destination of the output: stdout (the default), or
	// a folder. A folder is "." or a path with a slash, and requires the format json.
	EnvOutput = "SERVE_CONSOLE_OUTPUT"
)

// EnvPatterns returns the variables that [New] reads, for pluginsdk.Spec.Env. Beside the
// variables above, these are variables about the terminal, for drawings:
//
//   - the variable of https://no-color.org disables colours if it is not empty, whatever
//     the other variables are.
//   - the variable of https://force-color.org enables colours if it is not empty, even if
//     the output is no terminal. 0 and false disable colours.
//   - TERM: "dumb" means ASCII without colours, and an empty value means no colours.
//   - COLUMNS is the width of a drawing if the output is no terminal.
//   - LC_ALL, LC_CTYPE, LANG: drawings are in ASCII unless the first of these variables
//     that is set names UTF-8. They are not in the result, because every plugin gets
//     them.
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
	// outputFrom names the variable or the path in the configuration that output comes from,
	// for error messages.
	outputFrom string
}

// document is the part of the plugin's configuration that this package decodes.
type document struct {
	Exporter struct {
		Format string `yaml:"format"`
		Output string `yaml:"output"`
	} `yaml:"exporter"`
}

// readSettings reads each setting from its variable, or from the configuration if the
// variable is not set. Errors name the variable or the path in the configuration. An
// invalid value in the configuration is an error even if the variable is set.
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

// source is a place from which a setting is read, a variable or a path in the
// configuration, and the value there. If the value is empty, the setting is not set
// there.
type source struct{ name, value string }

// choose returns the first value that is set, and the name of its source. If none is set,
// it returns otherwise. It calls known for all values, which returns an error for an
// invalid value.
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
