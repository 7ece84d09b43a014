package main

import (
	"strings"

	"github.com/spf13/cobra"
)

func complete(cmd *cobra.Command, flag string, values ...string) {
	// Cannot fail, except for an unknown flag, or a flag that has completions already.
	// TestCommandsCompleteTheirFlags checks all of them.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func completeFolders(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = cmd.MarkFlagDirname(flag) // as above
	}
}

// shellWord returns a path as a word of a POSIX shell, in quotes if necessary.
func shellWord(path string) string {
	if path != "" && !strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
