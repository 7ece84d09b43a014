package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/printable"
	"github.com/servetrace/servetrace/internal/wire"
)

const pluginExplainLong = `Show what a service in this environment would give each plugin of
SERVE_TRACING_EXPORTER_PLUGIN, or of --plugins: its file and pin, the variables
and the grant of each, the variables that lock-down withholds, the
configuration, facts about the process, and the limits of batches. Each plugin
is started and asked, not configured.

Values of variables are never printed. A text of a configuration is printed as
its length, "<12 bytes>"; keys, numbers and booleans are shown, so put secret
digits in quotes.

The exit code is 1 if a service could not use a plugin, or if a configuration is
neither YAML nor JSON.`

const pluginExplainExample = `  servetrace plugin explain
  DD_API_KEY=... servetrace plugin explain --plugins /opt/traces/datadog --json`

// newPluginExplain is "servetrace plugin explain".
func newPluginExplain(s settings) *cobra.Command {
	var plugins string
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "explain",
		Short:             "Show what each plugin would get, with values redacted",
		Long:              pluginExplainLong,
		Example:           pluginExplainExample,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := s.inspect(cmd, plugins, true)
			if err != nil {
				return err
			}
			out := []explained{}
			for i := range list {
				list[i].Err = errors.Join(list[i].Err, documentFault(list[i]))
				out = append(out, explain(list[i]))
			}
			switch {
			case asJSON:
				err = writeJSON(cmd.OutOrStdout(), out)
			case len(list) == 0:
				err = s.writeOff(cmd.OutOrStdout(), plugins)
			default:
				err = writeExplained(cmd.OutOrStdout(), out)
			}
			return errors.Join(err, faults(list))
		},
	}
	addPlugins(cmd, &plugins)
	addJSON(cmd, &asJSON)
	return cmd
}

// explained is what one plugin would get, without any value.
type explained struct {
	Name     string `json:"name"`
	Path     string `json:"path,omitempty"`
	Attached bool   `json:"attached,omitempty"`
	Folder   string `json:"folder,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Pin      string `json:"pin,omitempty"`
	Error    string `json:"error,omitempty"`
	// Variables are in the order of their names, Withheld those that lock-down
	// keeps from the plugin.
	Variables   []variable `json:"variables"`
	Withheld    []string   `json:"withheld,omitempty"`
	EnvPatterns []string   `json:"env_patterns,omitempty"`
	ConfigFile  string     `json:"config_file,omitempty"`
	// Config is the document with its texts redacted, YAML.
	Config  string  `json:"config,omitempty"`
	Context []field `json:"context"`
	Limits  *limits `json:"limits,omitempty"`
}

// variable is one that the plugin gets. GrantedBy is its own pattern by which,
// and Setting the operator's variable that gives it; both are empty for those
// that every plugin gets.
type variable struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	GrantedBy string `json:"granted_by,omitempty"`
	Setting   string `json:"setting,omitempty"`
	// Default: the operator has not set Setting.
	Default bool `json:"default,omitempty"`
}

// field is one of the static context.
type field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// explain takes all values out of an inspection.
func explain(is host.Inspection) explained {
	e := explained{
		Name:        is.Name,
		Path:        whereText(is),
		Attached:    is.Attached,
		Folder:      is.Folder,
		Digest:      is.Digest,
		Pin:         is.Pin,
		Withheld:    is.Withheld,
		Error:       textOf(hint(is)),
		Variables:   []variable{},
		EnvPatterns: is.About.Patterns,
		ConfigFile:  is.ConfigFile,
		Config:      redactDocument(is.Config),
		Context:     contextOf(is),
		Limits:      limitsJSON(is),
	}
	for _, v := range is.Variables {
		shown := variable{Name: v.Name, Value: redacted(v.Value)}
		shown.Setting, shown.Default = v.Setting, v.Default
		if !v.Base && v.Setting == "" {
			shown.GrantedBy, _ = wire.DeclaredBy(is.About.Patterns, v.Name)
		}
		e.Variables = append(e.Variables, shown)
	}
	return e
}

// contextOf is the static context, by the names of the contract; fields that are
// not known are left out.
func contextOf(is host.Inspection) []field {
	fields := []field{}
	for _, f := range []field{
		{"application", is.Context.Application},
		{"deployment", is.Context.Deployment},
		{"replica", is.Context.Replica},
		{"node", is.Context.Node},
		{"job", is.Context.Job},
		{"service_name", is.Context.ServiceName},
		{"plugin_name", is.Name},
	} {
		if f.Value != "" {
			fields = append(fields, field{f.Name, redacted(f.Value)})
		}
	}
	return fields
}

func writeExplained(w io.Writer, list []explained) error {
	for n, e := range list {
		if n > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := e.write(w); err != nil {
			return err
		}
	}
	return nil
}

// write prints one plugin: its name, and below it what it would get, each kind
// with a heading in the first column.
func (e explained) write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\n", printable.Text(e.Name))
	rows := func(heading string, lines ...string) {
		for _, line := range lines {
			fmt.Fprintf(table, "  %s\t%s\n", heading, line)
			heading = ""
		}
	}
	if e.Path != "" {
		rows("path", printable.Text(e.Path))
	}
	if e.Folder != "" {
		rows("folder", printable.Text(e.Folder))
	}
	if e.Pin != "" {
		rows("pin", e.Pin)
	} else if e.Digest != "" {
		rows("digest", e.Digest+" (not pinned)")
	}
	rows("variables", e.variableLines()...)
	if len(e.Withheld) > 0 {
		rows("withheld", printable.Text(strings.Join(e.Withheld, ", "))+" (by lock-down; "+host.EnvPluginEnv+" grants them)")
	}
	rows("declares", orNone(printable.Text(strings.Join(e.EnvPatterns, ", "))))
	rows("config", e.configLines()...)
	var known []string
	for _, f := range e.Context {
		known = append(known, f.Name+"="+f.Value)
	}
	rows("context", known...)
	if e.Limits != nil {
		rows("limits", limitsText(host.Inspection{
			MaxBatchSpans: e.Limits.MaxBatchSpans, MaxBatchBytes: e.Limits.MaxBatchBytes, MaxConcurrency: e.Limits.MaxConcurrency,
		}))
	}
	if e.Error != "" {
		rows("error", strings.Split(printable.Lines(e.Error), "\n")...)
	}
	return table.Flush()
}

func (e explained) variableLines() []string {
	var lines []string
	for _, v := range e.Variables {
		line := printable.Text(v.Name) + "=" + v.Value
		if v.GrantedBy != "" {
			line += "  (declared: " + printable.Text(v.GrantedBy) + ")"
		}
		switch {
		case v.Default:
			line += "  (default: " + v.Setting + " is not set)"
		case v.Setting != "":
			line += "  (by " + v.Setting + ")"
		}
		lines = append(lines, line)
	}
	if lines == nil {
		return []string{"none"}
	}
	return lines
}

func (e explained) configLines() []string {
	var lines []string
	if e.ConfigFile != "" {
		lines = append(lines, "of "+printable.Text(e.ConfigFile))
	}
	if e.Config != "" {
		lines = append(lines, strings.Split(strings.TrimRight(printable.Lines(e.Config), "\n"), "\n")...)
	}
	if lines == nil {
		return []string{"none"}
	}
	return lines
}
