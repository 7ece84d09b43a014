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
	"github.com/servetrace/servetrace/internal/printable"
	"github.com/servetrace/servetrace/internal/wire"
)

const pluginExplainLong = `Show what a service in this environment would give each plugin: its file and pin, its
variables with the grant of each, the variables that lock-down withholds, the
configuration, and the limits of batches. Each plugin is started, not configured.

Values of variables are never printed. A text of a configuration is printed as its
length, "<12 bytes>"; keys, numbers and booleans are shown, so put secret digits in
quotes.

The exit code is 1 if a service could not use a plugin or its configuration.`

const pluginExplainExample = `  DD_API_KEY=... servetrace plugin explain --plugins /opt/traces/datadog --json`

func newPluginExplain(s settings) *cobra.Command {
	var plugins string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "explain",
		Short:   "Show the variables and configuration that each plugin would get",
		Long:    pluginExplainLong,
		Example: pluginExplainExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := inspectList(cmd, s, plugins, true)
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
				err = writeOff(cmd.OutOrStdout(), s, plugins)
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

// explained describes the values that a plugin would get, without secrets. It is an item of
// the JSON of plugin explain.
type explained struct {
	Name     string `json:"name"`
	Path     string `json:"path,omitempty"`
	Attached bool   `json:"attached,omitempty"`
	Folder   string `json:"folder,omitempty"`
	// Processor names the exporters that a processor plugin runs before, and says whether it
	// fails open or closed. Empty for an exporter.
	Processor string `json:"processor,omitempty"`
	Digest    string `json:"digest,omitempty"`
	Pin       string `json:"pin,omitempty"`
	Error     string `json:"error,omitempty"`
	// Variables are the variables that the plugin gets, sorted by name. Withheld names the
	// declared variables that the plugin does not get because of lock-down.
	Variables   []variable `json:"variables"`
	Withheld    []string   `json:"withheld,omitempty"`
	EnvPatterns []string   `json:"env_patterns,omitempty"`
	ConfigFile  string     `json:"config_file,omitempty"`
	// Config is the configuration in YAML, with the lengths of texts instead of the texts.
	Config  string  `json:"config,omitempty"`
	Context []field `json:"context"`
	Limits  *limits `json:"limits,omitempty"`
}

// variable is a variable that a plugin gets, with the length of its value. GrantedBy is the
// pattern by which the plugin declares it, and Setting the operator's setting that adds it.
// Both are empty for a variable that every plugin gets.
type variable struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	GrantedBy string `json:"granted_by,omitempty"`
	Setting   string `json:"setting,omitempty"`
	// Default is true if the value is the default, because Setting is not set.
	Default bool `json:"default,omitempty"`
}

type field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// explain describes an inspection without secrets.
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
	if is.Processor {
		e.Processor = "of " + cmp.Or(is.Exporter, "all exporters") + ", fails closed"
		if is.FailOpen {
			e.Processor = "of " + cmp.Or(is.Exporter, "all exporters") + ", fails open"
		}
	}
	for _, v := range is.Variables {
		shown := variable{Name: v.Name, Value: redacted(v.Value)}
		shown.Setting, shown.Default = v.Setting, v.Default
		if !v.Base && v.Setting == "" {
			shown.GrantedBy = wire.DeclaredBy(is.About.Patterns, v.Name)
		}
		e.Variables = append(e.Variables, shown)
	}
	return e
}

// contextOf returns the fields of the context that have a value. Their names are the names in
// the contract between host and plugin.
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

// writeExplained writes the plugins as text, with an empty line between them.
func writeExplained(w io.Writer, list []explained) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, e := range list {
		if i > 0 {
			fmt.Fprintln(table)
		}
		e.writeTo(table)
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// writeTo writes the name of the plugin, and below it rows with a heading in the first
// column and values in the second. Rows without a value are left out.
func (e explained) writeTo(table *tabwriter.Writer) {
	add := func(heading string, lines ...string) {
		if strings.Join(lines, "") == "" {
			return
		}
		for _, line := range lines {
			fmt.Fprintf(table, "  %s\t%s\n", heading, printable.Text(line))
			heading = "" // only the first line has the heading
		}
	}
	fmt.Fprintln(table, printable.Text(e.Name))
	add("processor", e.Processor)
	add("path", e.Path)
	add("folder", e.Folder)
	if e.Pin == "" && e.Digest != "" {
		add("digest", e.Digest+" (not pinned)")
	}
	add("pin", e.Pin)
	add("variables", e.variableLines()...)
	if len(e.Withheld) > 0 {
		add("withheld", strings.Join(e.Withheld, ", ")+" (by lock-down; "+host.EnvPluginEnv+" grants them)")
	}
	add("declares", cmp.Or(strings.Join(e.EnvPatterns, ", "), "none"))
	config := e.Config
	if e.ConfigFile != "" {
		config = "of " + printable.Text(e.ConfigFile) + "\n" + config
	}
	add("config", strings.Split(cmp.Or(strings.TrimRight(config, "\n"), "none"), "\n")...)
	var context []string
	for _, f := range e.Context {
		context = append(context, f.Name+"="+f.Value)
	}
	add("context", context...)
	if e.Limits != nil {
		add("limits", e.Limits.String())
	}
	add("error", strings.Split(e.Error, "\n")...)
}

// variableLines returns a line for each variable, with the reason why the plugin gets it.
func (e explained) variableLines() []string {
	var lines []string
	for _, v := range e.Variables {
		line := v.Name + "=" + v.Value
		switch {
		case v.GrantedBy != "":
			line += "  (declared: " + v.GrantedBy + ")"
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
