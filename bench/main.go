// Command bench measures servetrace side by side with its peers, in one run and
// with one sink, and holds the figures against what is claimed.
//
//	bench run [-quick] [-suite REGEXP] [-shape REGEXP] [-row REGEXP] [-repeat N] [-out DIR]
//	bench soak [-for 1h] [-rate N] [-out DIR]   memory while the sink is down
//	bench gate                       hold a change to looser bounds, on any machine
//	bench list                       what there is
//	bench serve -by ours -app hello  one of the servers, for another load generator
//
// It exits with status 3, and reports nothing, on a machine that others use;
// with 1 where a case fails or the gate does not hold, with 4 where -check is
// given and a claim is missed. README.md says what a row means and how to add
// one. The roles "sink" and "child" are processes that it starts itself as.
//
// Its life: the flags choose cases; the sink starts; package suite runs the
// cases, each mostly in a child process; package report writes what was
// measured. Whatever ends it, its processes and its folder end with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/serveload"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/spanpath"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// suites are all of them, in the order in which they run.
func suites() suite.Set {
	var set suite.Set
	set.Add(spanpath.Set())
	set.Add(serveload.Set())
	return set
}

// The exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
	exitBusy   = 3
	exitMissed = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:])
	stop()
	os.Exit(exitStatus(err))
}

// errUsage ends the program with what it is used for.
var errUsage = errors.New("usage: bench run|gate|soak|list|serve [flags]; bench run -h lists them")

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch args[0] {
	case "run":
		return run(ctx, args[1:])
	case "gate":
		return gate(ctx, args[1:])
	case "list":
		return list(os.Stdout)
	case "soak":
		return runSoak(ctx, args[1:])
	case "sink":
		return sink.Serve(ctx, os.Stdin, os.Stdout)
	case "child":
		if len(args) >= 2 {
			return child(ctx, args[1], args[2:])
		}
	case "serve":
		return serveload.RunServer(ctx, args[1:], nil, os.Stdout)
	}
	return errUsage
}

// child is one of the roles that suites start this program in.
func child(ctx context.Context, role string, args []string) error {
	switch role {
	case spanpath.Name:
		return spanpath.Child(ctx, os.Stdin, os.Stdout)
	case spanpath.PulseRole:
		return spanpath.Pulse(os.Stdout, args)
	case serveload.RoleServer:
		return serveload.RunServer(ctx, args, os.Stdin, os.Stdout)
	case serveload.RoleLoad:
		return serveload.RunLoad(ctx, args, os.Stdin, os.Stdout)
	}
	return fmt.Errorf("no role %q", role)
}

func exitStatus(err error) int {
	var busy *measure.BusyError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		return 0
	}
	slog.Error(err.Error())
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.As(err, &busy):
		return exitBusy
	case errors.Is(err, errMissed):
		return exitMissed
	}
	return exitFailed
}
