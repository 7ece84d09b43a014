package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/servicefile"
)

const configCheckLong = `Read a service file as a service in this environment would. Either it says what is
wrong, each fault with its place, or what holds of each setting, and why: by the
environment, by a line of the file, or by default. FILE is that of SERVE_CONFIG
where it is not given. Nothing is started.

Of a plugin's document there is only the length, for it may hold secrets;
"servetrace plugin explain" shows more of it. Its references are listed, ${env:NAME}
and ${file:/PATH}, with whether they can be resolved here: a service resolves them
where it runs, each time that it starts the plugin. Warnings, which the log of a service
would have too, go to standard error.

The exit code is 1 where a service would not start with the file.`

const configCheckExample = `  servetrace config check serve.yaml
  SERVE_TRACING_QUEUE_BYTES=8MiB servetrace config check serve.yaml --json`

// newConfigCheck is "servetrace config check".
func newConfigCheck(s settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "check [FILE]",
		Short:   "Say what is wrong with a service file, or what holds and why",
		Long:    configCheckLong,
		Example: configCheckExample,
		Args:    args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, list []string) error {
			path := strings.TrimSpace(s.getenv(servetrace.EnvConfig))
			if len(list) > 0 {
				path = list[0]
			}
			if path == "" {
				return usagef("FILE is missing, and %s is not set; see %s --help", servetrace.EnvConfig, cmd.CommandPath())
			}
			checked, err := s.check(path)
			if err != nil {
				return err
			}
			for _, warning := range checked.Warnings {
				if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "Warning:", printable(warning)); err != nil {
					return err
				}
			}
			write := checked.write
			if asJSON {
				write = func(w io.Writer) error { return writeJSON(w, checked) }
			}
			return errors.Join(write(cmd.OutOrStdout()), checked.verdict())
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

// checked is what came of a service file: faults, or settings.
type checked struct {
	File     string      `json:"file"`
	Faults   []fault     `json:"faults,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
	Settings []effective `json:"settings,omitempty"`
	// References are those of the plugins' documents, by the plugins' names.
	References []reference `json:"references,omitempty"`
}

// reference is one of a plugin's document, without its value. Missing is why it
// can not be resolved here.
type reference struct {
	Plugin    string `json:"plugin"`
	Reference string `json:"reference"`
	Missing   string `json:"missing,omitempty"`
}

// fault is one that the file has, or, without a line, the environment.
type fault struct {
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Text   string `json:"text"`
	// whole is the text with the file and the place in front.
	whole string
}

// effective is what holds of one key.
type effective struct {
	Key      string `json:"key"`
	Variable string `json:"variable,omitempty"`
	Value    string `json:"value"`
	From     string `json:"from"`
}

// check reads the file. The error is one of reading it at all.
func (s settings) check(path string) (checked, error) {
	data, err := servicefile.Read(path)
	if err != nil {
		return checked{}, usageError{err}
	}
	is := checked{File: path}
	cfg, err := servetrace.LoadConfigFile(path, s.getenv)
	if err != nil {
		is.Faults = faultsOf(err)
		return is, nil
	}
	is.Warnings = cfg.Tracing.Warnings
	file := servicefile.Parse(path, data, s.getenv)
	for _, name := range file.Plugins() {
		list := host.Config{Plugins: cfg.Host.Plugins, PluginConfigs: map[string]host.PluginConfig{name: {}}}
		if err := list.Validate(); err != nil { // there is a warning of it
			file.Drop(name, err, true)
		}
	}
	for _, held := range file.Settings() {
		is.Settings = append(is.Settings, effective(held))
	}
	is.refer(cfg.Host)
	return is, nil
}

// refer tries the references of all documents. One that fails here is no fault of
// the file: a service may run elsewhere, and starts without its plugin.
func (c *checked) refer(cfg host.Config) {
	for _, plugin := range slices.Sorted(maps.Keys(cfg.PluginConfigs)) {
		list, err := cfg.References(plugin)
		if err != nil {
			c.Warnings = append(c.Warnings, fmt.Sprintf("plugin %q: %v", plugin, err))
		}
		for _, r := range list {
			c.References = append(c.References, reference{plugin, r.Text, textOf(r.Err)})
		}
	}
}

// faultsOf takes what was joined apart.
func faultsOf(err error) []fault {
	var list []fault
	joined, many := err.(interface{ Unwrap() []error })
	if !many {
		is := fault{Text: err.Error(), whole: err.Error()}
		if placed, ok := errors.AsType[*servicefile.FaultError](err); ok {
			is.Line, is.Column, is.Text = placed.Line, placed.Column, placed.Text
		}
		return []fault{is}
	}
	for _, err := range joined.Unwrap() {
		list = append(list, faultsOf(err)...)
	}
	return list
}

func (c checked) write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range c.Faults {
		fmt.Fprintln(table, printable(f.whole))
	}
	if len(c.Settings) > 0 {
		fmt.Fprintln(table, "KEY\tVALUE\tFROM")
	}
	for _, held := range c.Settings {
		value := printable(held.Value)
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", held.Key, value, printable(held.From))
	}
	if err := table.Flush(); err != nil || len(c.References) == 0 {
		return err
	}
	fmt.Fprintln(table, "\nREFERENCE\tPLUGIN\tHERE")
	for _, r := range c.References {
		fmt.Fprintf(table, "%s\t%s\t%s\n", printable(r.Reference), printable(r.Plugin), cmp.Or(printable(r.Missing), "resolves"))
	}
	return table.Flush()
}

// verdict is the error that makes the exit code.
func (c checked) verdict() error {
	if len(c.Faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s; a service would not start with it", printable(c.File), counted(len(c.Faults), "fault"))
}
