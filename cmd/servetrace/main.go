// Command servetrace is the command line of servetrace. Its commands are:
//
//	servetrace version
//	servetrace doctor
//	servetrace status
//	servetrace relay
//	servetrace capture
//	servetrace trace
//	servetrace render
//	servetrace man
//	servetrace config check | schema
//	servetrace plugin list | info | explain | run | test | bench | dev | new | pin | install
//
// Its help describes the project. The command serves no application: a service is a
// Go program that uses the root package, such as examples/hello.
//
//  1. newRoot returns the command tree (root.go).
//  2. cobra selects the command by the arguments.
//  3. The command writes its answer to standard output. Relay runs until a signal, and
//     writes a log to standard error.
//  4. An error goes to standard error, and exitCode (exit.go) returns its exit code.
//
// Each command has a file: NAME.go, config_NAME.go or plugin_NAME.go. Only "plugin test" is
// in plugin_conformance.go, because Go takes plugin_test.go for tests. The checks of doctor
// have files of their own: doctor_NAME.go. No command has rules of its own about
// plugins: host.Inspect resolves settings, plugintest.Check checks the contract between
// host and plugin, and admin.Status describes a running service. docs/reference/cli.md is
// the reference, and a test compares it with the command tree. Open root.go first.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/servetrace/servetrace/internal/printable"
	"github.com/servetrace/servetrace/internal/wire"
)

func main() { os.Exit(runProcess()) }

// runProcess runs the command that the process's arguments name, and returns the exit
// code. On the first SIGINT or SIGTERM the command ends its plugins and returns. A second
// signal ends the process at once, and the plugins end with it.
func runProcess() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	if len(os.Args) == 1 && os.Getenv(wire.CookieKey) == wire.CookieValue { //nolint:forbidigo // a host has started this process as its plugin
		nothing()
	}
	err := newRoot(os.Getenv, os.Environ()).ExecuteContext(ctx) //nolint:forbidigo // the environment is read only here
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", printable.Lines(err.Error())) // the error may quote a plugin
	}
	return exitCode(ctx, err)
}
