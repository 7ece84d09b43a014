package main

import "github.com/spf13/cobra"

const pluginLong = `Inspect, run, test, pin and create plugins, with the settings that a service in
this environment has.

PATH is a path (it contains a slash), a bare name that is looked up in
SERVE_TRACING_PLUGIN_DIR, or unix:// and the socket of a running plugin. No
character of a path is escaped.

Exit codes: 0 success; 1 failure (a plugin does not start, a rule failed, spans were not
delivered); 2 a wrong argument, variable or file; 130 a signal.`

func newPlugin(s settings, environ []string) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "plugin",
		Short: "Inspect, run, test, pin and create plugins",
		Long:  pluginLong,
	}, newPluginList(s), newPluginInfo(s), newPluginExplain(s), newPluginPin(s), newPluginInstall(s), newPluginRun(s), newPluginTest(s), newPluginBench(s), newPluginDev(s, environ), newPluginNew())
}
