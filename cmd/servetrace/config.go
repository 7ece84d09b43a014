package main

import "github.com/spf13/cobra"

const configLong = `Check settings as a service reads them, or describe them for an editor.`

func newConfig(s settings, environ []string) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "config",
		Short: "Check the service file and the settings",
		Long:  configLong,
	}, newConfigCheck(s, environ), newConfigSchema())
}
