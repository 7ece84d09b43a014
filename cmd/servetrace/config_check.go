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
	"github.com/servetrace/servetrace/internal/printable"
	"github.com/servetrace/servetrace/internal/servicefile"
	variables "github.com/servetrace/servetrace/internal/settings"
)

const configCheckLong = `Read a service file as a service in this environment would, and print all its
mistakes with their places, or each setting with its value and origin. A star marks a
value that is not a default. Without FILE, it is the file of SERVE_CONFIG, or the
environment alone. Nothing is started.

Names of applications and deployments are listed, not checked. Of a plugin's
configuration, only the references (${env:NAME}, ${file:/PATH}) are checked.

A variable that neither the service nor a stock plugin reads is a warning. The exit
code is 1 if a service would not start.`

const configCheckExample = `  SERVE_TRACING_QUEUE_BYTES=8MiB servetrace config check serve.yaml --json`

func newConfigCheck(s settings, environ []string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "check [FILE]",
		Short:   "Check a service file, and print its errors or all settings in force",
		Long:    configCheckLong,
		Example: configCheckExample,
		Args:    args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, list []string) error {
			path := strings.TrimSpace(s.getenv(servetrace.EnvConfig))
			if len(list) > 0 {
				path = list[0]
			}
			checked, err := check(s, path, environ)
			if err != nil {
				return err
			}
			for _, warning := range checked.Warnings {
				if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "Warning:", printable.Text(warning)); err != nil {
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

// checked is the result of a check of a service file and the environment. If there are
// faults, it has no settings.
type checked struct {
	File     string                `json:"file,omitempty"`
	Faults   []fault               `json:"faults,omitempty"`
	Warnings []string              `json:"warnings,omitempty"`
	Settings []servicefile.Setting `json:"settings,omitempty"`
	// References are the references, such as ${env:NAME}, in the plugins' configurations,
	// sorted by plugin.
	References []reference `json:"references,omitempty"`
	// NotChecked are the names of applications and deployments in the file. Only the program
	// of the service knows whether it has them.
	NotChecked []string `json:"not_checked,omitempty"`
	// unread are variables that look like settings although no code reads them.
	unread []variables.Variable
	cfg    servetrace.Config
}

// reference is a reference in a plugin's configuration, such as ${env:NAME}. Missing is
// the reason why it cannot be resolved on this machine, or empty.
type reference struct {
	Plugin    string `json:"plugin"`
	Reference string `json:"reference"`
	Missing   string `json:"missing,omitempty"`
}

// fault is an error in the service file. If Line is 0, it is an error in the environment.
type fault struct {
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Text   string `json:"text"`
	whole  string // the text with the place before it
}

// check checks the service file, or only the environment if path is empty. It returns an
// error if the file cannot be read.
func check(s settings, path string, environ []string) (checked, error) {
	data := []byte("{}")
	if path != "" {
		var err error
		if data, err = servicefile.Read(path); err != nil {
			return checked{}, usageError{err}
		}
	}
	cfg, err := servetrace.LoadConfigFile(path, s.getenv)
	is := checked{File: path, cfg: cfg}
	if err == nil {
		_, err = readRelay(path, s.getenv)
	}
	if err != nil {
		is.Faults = faultsOf(err)
		return is, nil
	}
	is.Warnings = cfg.Tracing.Warnings
	file := servicefile.Parse(path, data, s.getenv)
	for _, name := range file.Plugins() {
		list := host.Config{Plugins: cfg.Host.Plugins, PluginConfigs: map[string]host.PluginConfig{name: {}}}
		if err := list.Validate(); err != nil { // report the setting as unused, because the list has no such plugin
			file.Drop(name, err, true)
		}
	}
	if idle := file.Idle(); idle != "" {
		is.Warnings = append(is.Warnings, idle)
	}
	is.Settings = file.Settings()
	is.refer(cfg.Host)
	is.unread = slices.DeleteFunc(variables.Unread(without(environ, pythonSettings), readSettings, cfg.Host.PluginEnv), func(v variables.Variable) bool {
		refers := func(r reference) bool { return r.Reference == "${env:"+v.Name+"}" }
		return slices.ContainsFunc(is.References, refers)
	})
	is.Warnings = append(is.Warnings, variables.Warnings(is.unread, "neither the service nor a stock plugin reads this variable")...)
	for _, app := range file.Apps {
		is.NotChecked = append(is.NotChecked, notChecked(app)...)
	}
	return is, nil
}

// notChecked returns the names of an application and its deployments.
func notChecked(app servicefile.App) []string {
	name := "an app without a name"
	if app.Name != "" {
		name = fmt.Sprintf("app %q", app.Name)
	}
	names := []string{name}
	for _, d := range app.Deployments {
		names = append(names, fmt.Sprintf("deployment %q of %s", d.Name, name))
	}
	return names
}

// refer sets c.References. A reference that cannot be resolved here is no fault, because
// the service may run on another machine, and it starts without a plugin that it cannot
// configure.
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

// faultsOf returns a fault for each of the errors that errors.Join has joined in err.
func faultsOf(err error) []fault {
	var list []fault
	for _, err := range servicefile.Leaves(err) {
		is := fault{Text: err.Error(), whole: err.Error()}
		if placed, ok := errors.AsType[*servicefile.FaultError](err); ok {
			is.Line, is.Column, is.Text = placed.Line, placed.Column, placed.Text
		}
		list = append(list, is)
	}
	return list
}

func (c checked) write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range c.Faults {
		fmt.Fprintln(table, printable.Text(f.whole))
	}
	if len(c.Settings) > 0 {
		fmt.Fprintln(table, "  KEY\tVALUE\tFROM")
	}
	for _, held := range c.Settings {
		mark := "*"
		if held.From == servicefile.FromDefault {
			mark = " "
		}
		fmt.Fprintf(table, "%s %s\t%s\t%s\n", mark, held.Key, cmp.Or(printable.Text(held.Value), "-"), printable.Text(held.From))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(c.References) > 0 {
		fmt.Fprintln(table, "\nREFERENCE\tPLUGIN\tHERE")
	}
	for _, r := range c.References {
		fmt.Fprintf(table, "%s\t%s\t%s\n", printable.Text(r.Reference), printable.Text(r.Plugin), cmp.Or(printable.Text(r.Missing), "resolves"))
	}
	if len(c.NotChecked) > 0 {
		fmt.Fprintf(table, "\nNot checked, because only the program knows its applications: %s\n", printable.Text(strings.Join(c.NotChecked, ", ")))
	}
	return table.Flush()
}

// verdict returns an error if there are faults.
func (c checked) verdict() error {
	if len(c.Faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s; a service would not start with it", cmp.Or(printable.Text(c.File), "the environment"), counted(len(c.Faults), "fault"))
}
