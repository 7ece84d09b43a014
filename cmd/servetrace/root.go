package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/servetrace/servetrace/internal/spelling"
)

const rootLong = `servetrace is a Go serving runtime whose traces leave the process through
exporter plugins. The service starts each plugin as a process, sends it batches
of spans over a Unix socket, and starts it again after a crash. One variable
names the plugins:

  SERVE_TRACING_EXPORTER_PLUGIN=console             bare names are looked up in
                                                    SERVE_TRACING_PLUGIN_DIR
  SERVE_TRACING_EXPORTER_PLUGIN=./bin/plugins/console,mine=/opt/exporter

Unset, tracing is off, unless a service file (SERVE_CONFIG) says otherwise.
Settings: docs/reference/settings.md. This command: docs/reference/cli.md.
Plugin authors: docs/how-to/write-an-exporter-plugin.md.`

const rootExample = `  # the example service, its spans printed by the console plugin
  SERVE_TRACING_EXPORTER_PLUGIN=console ./bin/hello

  # the plugins that this shell's settings name
  servetrace plugin list

  # the plugins of a running service
  servetrace status`

// newRoot returns the command tree. Without a subcommand, the root command prints its
// help. getenv returns a variable of the environment, and environ lists the environment.
func newRoot(getenv func(string) string, environ []string) *cobra.Command {
	s := settings{getenv}
	root := newGroup(&cobra.Command{
		Use:     "servetrace",
		Short:   "Serving runtime that exports traces through plugins",
		Long:    rootLong,
		Example: rootExample,
		// Cobra prints neither errors nor, after an error, the help. runProcess prints errors.
		SilenceUsage:  true,
		SilenceErrors: true,

		PersistentPreRunE: checkChoices,
	}, newVersion(), newStatus(s), newDoctor(s, environ), newRelay(s, environ), newCapture(s), newConfig(s, environ), newPlugin(s, environ), newTrace(s), newRender(s), newMan())
	setCompletions(root)
	root.Version = versionText() // the output of --version
	root.SetVersionTemplate("{{.Version}}")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w%s; see %s --help", err, meantFlag(cmd, err), cmd.CommandPath())
	})
	return root
}

// meantFlag returns a question such as "; did you mean --spans?" if err is about an unknown
// flag, and the command has a flag with a similar name. Otherwise it returns "".
func meantFlag(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if meant := spelling.Nearest(unknown.GetSpecifiedName(), names); meant != "" {
		return "; did you mean --" + meant + "?"
	}
	return ""
}

// newGroup adds commands to parent. Without a subcommand, parent prints its help.
func newGroup(parent *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	parent.SuggestionsMinimumDistance = 2 // cobra sets its default too late for onlyCommands
	parent.Args = onlyCommands
	parent.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	parent.AddCommand(commands...)
	return parent
}
