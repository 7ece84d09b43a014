package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes. They are part of the command line's contract: docs/reference/cli.md.
const (
	exitOK = 0
	// exitNo means that the command did its work and found a failure: a rule failed, a
	// plugin does not start, or spans were not delivered.
	exitNo = 1
	// exitUsage means that the command could not do its work, because an argument, a flag or
	// a variable is invalid, or a file cannot be read.
	exitUsage = 2
	// exitNotReady means that a running service has a plugin that is not ready.
	exitNotReady = 3
	// exitInterrupted means that SIGINT or SIGTERM ended the command.
	exitInterrupted = 130
)

// usageError is an error in the command line or in the settings. Its exit code is 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// lossError is the error of a relay that lost spans at its stop. Its exit code is 1, also if
// a signal stopped the relay.
type lossError struct{ err error }

func (e lossError) Error() string { return "spans were lost: " + e.err.Error() }
func (e lossError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCode returns the exit code for the error of a command, which may be nil. ctx is the
// command's context, which SIGINT and SIGTERM end.
func exitCode(ctx context.Context, err error) int {
	_, usage := errors.AsType[usageError](err)
	_, notReady := errors.AsType[notReadyError](err)
	_, loss := errors.AsType[lossError](err)
	switch {
	case err == nil:
		return exitOK
	case usage:
		return exitUsage
	case notReady:
		return exitNotReady
	case ctx.Err() != nil && !loss:
		return exitInterrupted
	}
	return exitNo
}

// args returns a check that turns the errors of another check into usage errors, and names
// the command's --help.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, list []string) error {
		if err := check(cmd, list); err != nil {
			return usagef("%w; see %s --help", err, cmd.CommandPath())
		}
		return nil
	}
}

// noArgs is a check for a command without arguments.
var noArgs = args(func(cmd *cobra.Command, list []string) error {
	if len(list) > 0 {
		return fmt.Errorf("%s takes no arguments, but got %q", cmd.CommandPath(), list[0])
	}
	return nil
})

// oneArg returns a check for exactly one argument. name is the argument's name in the help.
func oneArg(name string) cobra.PositionalArgs {
	return args(func(_ *cobra.Command, list []string) error {
		switch len(list) {
		case 0:
			return fmt.Errorf("%s is missing", name)
		case 1:
			return nil
		}
		return fmt.Errorf("one %s at a time, not %d arguments", name, len(list))
	})
}

// onlyCommands returns an error if a command that has only subcommands gets an argument
// that is none of them. The error names commands with similar names.
func onlyCommands(cmd *cobra.Command, list []string) error {
	if len(list) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", list[0], cmd.CommandPath())
	if near := append(cmd.SuggestionsFor(list[0]), deeper(cmd, list[0])...); len(near) > 0 {
		return usagef("%s; did you mean %s?", text, strings.Join(near, " or "))
	}
	return usagef("%s; see %s --help", text, cmd.CommandPath())
}

// deeper returns the commands with this name among the subcommands of cmd's subcommands,
// such as "plugin info" for "info".
func deeper(cmd *cobra.Command, name string) []string {
	var found []string
	for _, group := range cmd.Commands() {
		for _, c := range group.Commands() {
			if c.Name() == name {
				found = append(found, group.Name()+" "+name)
			}
		}
	}
	return found
}
