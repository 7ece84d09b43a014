package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan returns "servetrace man". The scripts that build packages run it.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write the manual pages of all commands to a folder",
		Long:    "Write the manual pages of all commands to a folder, which is created if missing.",
		Example: "  servetrace man ~/.local/share/man/man1",
		Args:    oneArg("FOLDER"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // pages are for everyone
				return fmt.Errorf("manual pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // so that the same commit always gives the same bytes
			if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "servetrace"}, args[0]); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
			return nil
		},
	}
}
