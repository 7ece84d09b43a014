package main

import "github.com/spf13/cobra"

const pluginLong = `Look at exporter plugins as a service sees them, try them, test them, and begin
one of your own.

PATH is what an entry of SERVE_TRACING_EXPORTER_PLUGIN may be: a path (it
contains a slash), a bare name that is looked up in SERVE_TRACING_PLUGIN_DIR, or
unix:// and the socket of a plugin that runs already. Unlike in an entry, no
character of a path is escaped.

Exit codes: 0 the answer is yes; 1 it is no (a plugin does not start, a rule
failed, spans were not delivered); 2 the question could not be asked (a wrong
argument, a file that cannot be read, a variable that cannot be right); 130 a
signal came first.`

// newPlugin is "servetrace plugin".
func newPlugin(s settings) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "plugin",
		Short: "Look at plugins, try them, test them, begin one",
		Long:  pluginLong,
	}, newPluginList(s), newPluginInfo(s), newPluginExplain(s), newPluginPin(s), newPluginRun(s), newPluginTest(s), newPluginNew())
}
