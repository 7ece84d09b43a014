package main

import "github.com/spf13/cobra"

const rootLong = `servetrace is a Go serving runtime whose traces leave the process through
exporter plugins. A plugin is a program of its own: the service starts it,
feeds it batches of spans over a Unix socket and starts it again when it dies.
Which plugins there are is the operator's choice, made by one variable:

  SERVE_TRACING_EXPORTER_PLUGIN=console             bare names are looked up in
                                                    SERVE_TRACING_PLUGIN_DIR
  SERVE_TRACING_EXPORTER_PLUGIN=./bin/plugins/console,mine=/opt/exporter

Unset or empty, tracing is off. A plugin that is run by hand with --help says
what it does and which variables it reads. All variables are in
docs/settings.md, the plugin author's side is in docs/plugins.md.`

const rootExample = `  # the example service, its spans printed by the console plugin
  SERVE_TRACING_EXPORTER_PLUGIN=console ./bin/hello

  # what this binary is
  servetrace version`

// newRoot builds the command tree. It writes nothing by itself; without a
// command it prints its help.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:          "servetrace",
		Short:        "Serve with traces that leave through plugins",
		Long:         rootLong,
		Example:      rootExample,
		Args:         cobra.NoArgs,
		SilenceUsage: true, // an error is one line, not a page of help below it
		RunE:         func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newVersion())
	return root
}
