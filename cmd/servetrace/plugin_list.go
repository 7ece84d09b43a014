package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/printable"
)

const pluginListLong = `Show the plugins in the list of the service: name, state of the file, item of the
list, pin, digest and path. A folder stands for its executables. Nothing is started.

The exit code is 1 if a service could not use a plugin.`

const pluginListExample = `  servetrace plugin list --plugins console,mine=/opt/traces/exporter --json`

func newPluginList(s settings) *cobra.Command {
	var plugins string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show the plugins that the setting names, without starting them",
		Long:    pluginListLong,
		Example: pluginListExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := inspectList(cmd, s, plugins, false)
			if err != nil {
				return err
			}
			if asJSON {
				return errors.Join(writeJSON(cmd.OutOrStdout(), listJSON(list)), faults(list))
			}
			if len(list) == 0 {
				return writeOff(cmd.OutOrStdout(), s, plugins)
			}
			return errors.Join(writeList(cmd.OutOrStdout(), list), faults(list))
		},
	}
	addPlugins(cmd, &plugins)
	addJSON(cmd, &asJSON)
	return cmd
}

// addPlugins adds the flag --plugins.
func addPlugins(cmd *cobra.Command, plugins *string) {
	cmd.Flags().StringVar(plugins, "plugins", "", "`list` in place of "+host.EnvPlugins)
}

// addJSON adds the flag --json.
func addJSON(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

// inspectList inspects the plugins of the list plugins. If that list is empty, it inspects
// the plugins of the settings. If start is true, it also starts the plugins.
func inspectList(cmd *cobra.Command, s settings, plugins string, start bool) ([]host.Inspection, error) {
	if cmd.Flags().Changed("plugins") && plugins == "" {
		return nil, usagef("--plugins is empty: want a list in the form of %s", host.EnvPlugins)
	}
	cfg, err := s.list(plugins)
	if err != nil {
		return nil, err
	}
	return inspectAll(cmd.Context(), cfg, start, cmd.ErrOrStderr())
}

// faults joins the errors of all entries, each with the name of the entry.
func faults(list []host.Inspection) error {
	var errs []error
	for _, i := range list {
		if i.Err != nil {
			errs = append(errs, fmt.Errorf("plugin %q: %w", i.Name, hint(i)))
		}
	}
	return errors.Join(errs...)
}

// writeOff writes the reason why there are no plugins.
func writeOff(w io.Writer, s settings, plugins string) error {
	_, err := fmt.Fprintf(w, "no plugins: %s\n", s.off(plugins))
	return err
}

func writeList(w io.Writer, list []host.Inspection) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tSTATE\tENTRY\tPIN\tDIGEST\tPATH")
	for _, i := range list {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n",
			i.Name, stateOf(i), printable.Text(i.Where), pinText(i), cmp.Or(i.Digest, "-"), printable.Text(cmp.Or(i.Path, "-")))
	}
	return table.Flush()
}

// pinText compares the pin of an entry with the digest of its file.
func pinText(i host.Inspection) string {
	switch i.Pin {
	case "":
		return "none"
	case i.Digest:
		return "matches"
	}
	return "differs"
}

// stateOf returns the state of an entry's file in a word, such as "executable".
func stateOf(i host.Inspection) string {
	misfit, launched := errors.AsType[*launch.Error](i.Err)
	switch {
	case i.Err == nil && i.Attached:
		return "attached"
	case i.Err == nil:
		return "executable"
	case launched && misfit.Reason == launch.ReasonNotFound, i.Path == "":
		return "missing"
	case launched:
		return misfit.Reason.String()
	}
	return "unusable"
}

// listed is an item of the JSON of plugin list.
type listed struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Entry string `json:"entry"`
	Path  string `json:"path,omitempty"`
	// Folder is the folder in the list that has the plugin. Digest is the digest of the
	// plugin's file, and Pin the digest in the list.
	Folder string `json:"folder,omitempty"`
	Digest string `json:"digest,omitempty"`
	Pin    string `json:"pin,omitempty"`
	Error  string `json:"error,omitempty"`
}

func listJSON(list []host.Inspection) []listed {
	out := []listed{}
	for _, i := range list {
		out = append(out, listed{Name: i.Name, State: stateOf(i), Entry: i.Where, Path: i.Path, Folder: i.Folder, Digest: i.Digest, Pin: i.Pin, Error: textOf(hint(i))})
	}
	return out
}
