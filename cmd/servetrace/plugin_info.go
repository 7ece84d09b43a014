package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/printable"
)

const pluginInfoLong = `Start a plugin as a service would, print its description, and end it. It is not
configured and gets no span. The exit code is 1 if it does not start, or does not fit
this host.`

const pluginInfoExample = `  servetrace plugin info unix:///run/traces/names.sock`

func newPluginInfo(s settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "info PATH",
		Short:   "Start a plugin and print its description",
		Long:    pluginInfoLong,
		Example: pluginInfoExample,
		Args:    oneArg("PATH"),
		RunE: func(cmd *cobra.Command, list []string) error {
			cfg, err := s.one(cmd.Context(), list[0], "")
			if err != nil {
				return err
			}
			is, err := inspectOne(cmd.Context(), cfg, cmd.ErrOrStderr())
			switch d := infoJSON(is, err); {
			case asJSON:
				return errors.Join(writeJSON(cmd.OutOrStdout(), d), err)
			case err != nil:
				return err
			default:
				return writeInfo(cmd.OutOrStdout(), d)
			}
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func writeInfo(w io.Writer, d described) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(heading, value string) {
		if value != "" {
			fmt.Fprintf(table, "%s\t%s\n", heading, printable.Text(value))
		}
	}
	if d.Plain {
		row("name", `none, because it is a plain OTLP receiver; "servetrace plugin run" shows whether it accepts spans`)
	} else {
		row("name", d.Name)
		row("kind", d.Kind)
		row("version", d.Version)
		row("description", d.Description)
		row("sdk", d.SDK)
		row("language", d.Language)
		row("variables", cmp.Or(strings.Join(d.EnvPatterns, ", "), "none"))
	}
	row("limits", d.Limits.String())
	row("path", d.Path)
	return table.Flush()
}

// whereText returns the plugin's file with its arguments, or the address of a running
// plugin.
func whereText(is host.Inspection) string {
	switch {
	case is.Attached:
		return is.Where
	case is.Path == "":
		return ""
	}
	return strings.Join(append([]string{is.Path}, is.Args...), " ")
}

// described is the JSON of plugin info. Its keys are the keys in the output of a plugin's own
// flag --describe.
type described struct {
	Path string `json:"path,omitempty"`
	// Error is the reason why the plugin cannot be used, and Misfit the reason in one word.
	// Both are empty if the plugin can be used.
	Error  string `json:"error,omitempty"`
	Misfit string `json:"misfit,omitempty"`
	// Plain is true for an attached OTLP receiver that does not describe itself.
	Plain       bool     `json:"plain,omitempty"`
	Name        string   `json:"name,omitempty"`
	Kind        string   `json:"kind,omitempty"`
	Version     string   `json:"version,omitempty"`
	Description string   `json:"description,omitempty"`
	SDK         string   `json:"sdk,omitempty"`
	Language    string   `json:"language,omitempty"`
	EnvPatterns []string `json:"env_patterns,omitempty"`
	Limits      *limits  `json:"limits,omitempty"`
}

type limits struct {
	MaxBatchSpans  int `json:"max_batch_spans"`
	MaxBatchBytes  int `json:"max_batch_bytes"`
	MaxConcurrency int `json:"max_concurrency"`
}

// String returns the limits as text, such as "512 spans and 65536 bytes a batch, 4 batches at a
// time".
func (l limits) String() string {
	return fmt.Sprintf("%s and %s a batch, %s at a time", counted(l.MaxBatchSpans, "span"),
		counted(l.MaxBatchBytes, "byte"), countedAs(l.MaxConcurrency, "batch", "batches"))
}

// infoJSON returns the JSON for an inspection. err is the reason why the plugin cannot be
// used, or nil.
func infoJSON(is host.Inspection, err error) described {
	if err != nil {
		return described{Path: whereText(is), Error: err.Error(), Misfit: misfitOf(is)}
	}
	return described{
		Path: whereText(is), Plain: !is.Described, Limits: limitsJSON(is),
		Name: is.About.Name, Kind: kindOf(is), Version: is.About.Version, Description: is.About.Description,
		SDK: is.About.SDK, Language: is.About.Language, EnvPatterns: is.About.Patterns,
	}
}

// kindOf returns "processor" or "exporter", or "" if the plugin was not described.
func kindOf(is host.Inspection) string {
	switch {
	case !is.Described:
		return ""
	case is.About.Processor:
		return string(kindProcessor)
	}
	return string(kindExporter)
}

// limitsJSON returns the limits of a plugin, or nil if the plugin was not started.
func limitsJSON(is host.Inspection) *limits {
	if is.MaxConcurrency == 0 {
		return nil
	}
	return &limits{is.MaxBatchSpans, is.MaxBatchBytes, is.MaxConcurrency}
}

// misfitOf returns one word for the reason why a plugin cannot be used, or "" if it can be
// used.
func misfitOf(is host.Inspection) string {
	misfit, launched := errors.AsType[*launch.Error](is.Err)
	switch {
	case is.Err == nil:
		return ""
	case launched:
		return misfit.Reason.String()
	case is.Path == "" && !is.Attached:
		return launch.ReasonNotFound.String()
	}
	return launch.ReasonOther.String()
}
