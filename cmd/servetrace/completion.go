package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// choices returns the allowed values of a flag, which its usage lists in the form
// `json|proto`. For other flags it returns nil.
func choices(f *pflag.Flag) []string {
	placeholder, _ := pflag.UnquoteUsage(f)
	if !strings.Contains(placeholder, "|") {
		return nil
	}
	return strings.Split(placeholder, "|")
}

// setCompletions sets the shell completions of a command and of all commands below it. The
// placeholder in a flag's usage decides: FILE completes to paths, folder to folders,
// choices to themselves, and any other placeholder to nothing. A command that takes no
// arguments completes none.
func setCompletions(cmd *cobra.Command) {
	if !strings.Contains(cmd.Use, " ") && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch placeholder, _ := pflag.UnquoteUsage(f); placeholder {
		case "", "FILE": // cobra completes paths by default, and a flag with "" has no value to complete
		case "folder":
			_ = cmd.MarkFlagDirname(f.Name) // cannot fail, because the command has the flag
		default:
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(choices(f), cobra.ShellCompDirectiveNoFileComp)) // cannot fail, because the command has the flag
		}
	})
	for _, c := range cmd.Commands() {
		setCompletions(c)
	}
}

// checkChoices returns an error for the first flag with a value that is none of its choices.
func checkChoices(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		list := choices(f)
		if value := f.Value.String(); err == nil && len(list) > 0 && !slices.Contains(list, value) {
			last := len(list) - 1
			err = usagef("--%s %q: want %s or %s", f.Name, value, strings.Join(list[:last], ", "), list[last])
		}
	})
	return err
}
