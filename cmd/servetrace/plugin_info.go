package main

import (
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
configured and gets no span.

The exit code is 1 if it does not start or is no plugin for this host.`

const pluginInfoExample = `  servetrace plugin info console
  servetrace plugin info ./names --json
  servetrace plugin info unix:///run/traces/names.sock`

// newPluginInfo is "servetrace plugin info".
func newPluginInfo(s settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "info PATH",
		Short:   "Start a plugin and show what it says of itself",
		Long:    pluginInfoLong,
		Example: pluginInfoExample,
		Args:    oneArg("PATH"),
		RunE: func(cmd *cobra.Command, list []string) error {
			cfg, err := s.one(cmd.Context(), list[0], "")
			if err != nil {
				return err
			}
			is, err := inspectOne(cmd.Context(), cfg, cmd.ErrOrStderr())
			if asJSON {
				return errors.Join(writeJSON(cmd.OutOrStdout(), infoJSON(is, err)), err)
			}
			if err != nil {
				return err
			}
			return writeInfo(cmd.OutOrStdout(), is)
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func writeInfo(w io.Writer, is host.Inspection) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what, value string) {
		if value != "" {
			fmt.Fprintf(table, "%s\t%s\n", what, printable.Text(value))
		}
	}
	if is.Described {
		row("name", is.About.Name)
		row("version", is.About.Version)
		row("description", is.About.Description)
		row("sdk", is.About.SDK)
		row("language", is.About.Language)
		row("variables", orNone(strings.Join(is.About.Patterns, ", ")))
	} else {
		row("name", `says nothing of itself, as a plain OTLP receiver; "servetrace plugin run" tells whether it takes spans`)
	}
	row("limits", limitsText(is))
	row("path", whereText(is))
	return table.Flush()
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// limitsText are the limits that a host keeps to.
func limitsText(is host.Inspection) string {
	return fmt.Sprintf("%s and %s a batch, %s at a time", counted(is.MaxBatchSpans, "span"),
		counted(is.MaxBatchBytes, "byte"), countedAs(is.MaxConcurrency, "batch", "batches"))
}

// whereText is the plugin's file, or the address of one that runs already.
func whereText(is host.Inspection) string {
	if is.Attached {
		return is.Where
	}
	return is.Path
}

// described is a plugin in JSON. Names are those of the contract, as in a
// plugin's own --describe.
type described struct {
	Path string `json:"path,omitempty"`
	// Error and Misfit are there where the plugin cannot be used.
	Error  string `json:"error,omitempty"`
	Misfit string `json:"misfit,omitempty"`
	// Plain: an OTLP receiver that says nothing of itself.
	Plain       bool     `json:"plain,omitempty"`
	Name        string   `json:"name,omitempty"`
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

func infoJSON(is host.Inspection, err error) described {
	d := described{Path: whereText(is), Error: textOf(err), Misfit: misfitOf(is)}
	if err != nil {
		return d
	}
	d.Plain = !is.Described
	d.Name, d.Version, d.Description = is.About.Name, is.About.Version, is.About.Description
	d.SDK, d.Language, d.EnvPatterns = is.About.SDK, is.About.Language, is.About.Patterns
	d.Limits = limitsJSON(is)
	return d
}

func limitsJSON(is host.Inspection) *limits {
	if is.MaxConcurrency == 0 { // the plugin was not asked
		return nil
	}
	return &limits{is.MaxBatchSpans, is.MaxBatchBytes, is.MaxConcurrency}
}

// misfitOf is in a word why a plugin cannot be used; empty if it can.
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
