package main

import "github.com/spf13/cobra"

const configLong = `Look at settings as a service would.`

// newConfig returns "servetrace config".
func newConfig(s settings, environ []string) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "config",
		Short: "Look at the service file and the settings",
		Long:  configLong,
	}, newConfigCheck(s, environ))
}
