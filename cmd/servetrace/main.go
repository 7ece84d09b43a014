// Command servetrace is the command line of servetrace. It answers
//
//	servetrace version
//	servetrace status
//	servetrace config check
//	servetrace plugin list | info | explain | run | test | new
//
// and, by its help, what the project is and which variables start it. It does
// not serve: a service is a Go program that uses the root package, and
// examples/hello is one.
//
// A run has four steps: the command tree is built (root.go), cobra picks the
// command by the arguments, and the command writes its answer to standard
// output; an error goes to standard error, and exit.go makes a code of it.
//
// Each command is a file, NAME.go, config_NAME.go or plugin_NAME.go, and decides nothing about
// plugins by itself: what a setting resolves to is the host's word
// (host.Inspect), what a plugin must do is the conformance suite's
// (plugintest.Check), how a running service is its own (admin.Status). docs/reference/cli.md is
// the reference, and a test holds it equal to the command tree. Open root.go
// first.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/servetrace/servetrace/internal/printable"
)

func main() { os.Exit(runProcess()) }

// runProcess runs the command that the process's arguments name and gives the
// exit code. The first SIGINT or SIGTERM has the command end what it started; a
// second ends the process as the system does, and its plugins see that it has
// gone.
func runProcess() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	err := newRoot(os.Getenv, os.Environ()).ExecuteContext(ctx) //nolint:forbidigo // the process is put together here
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", printable.Lines(err.Error())) // it may quote a plugin
	}
	return exitCode(ctx, err)
}
