// Command bench measures servetrace and its peers in one run with one sink, and
// compares the figures with the claims.
//
//	bench run [-quick] [-suite REGEXP] [-shape REGEXP] [-row REGEXP] [-repeat N] [-out DIR]
//	bench soak [-for 1h] [-rate N] [-out DIR]   memory while the sink is down
//	bench gate                       check looser bounds, on any machine
//	bench list                       list the cases
//	bench serve -by ours -app hello  run a server for another load generator
//
// The exit status is 3, without a report, if other processes use the machine, 1 if
// a case or the gate fails, and 4 with -check if a claim is missed. README.md
// describes the rows. With the argument "child" the program is a child process of
// itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/serveload"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/spanpath"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// suites returns all suites, in the order in which they run.
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
	child.Main(sink.Roles, spanpath.Roles, serveload.Roles)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:])
	stop()
	os.Exit(exitStatus(err))
}

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
	case "serve":
		return serveload.RunServer(ctx, args[1:], nil, os.Stdout)
	}
	return errUsage
}

func exitStatus(err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	slog.Error(err.Error())
	var busy *suite.BusyError
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

// list writes a line for each case.
func list(w io.Writer) error {
	for _, c := range suites().Cases {
		quick := ""
		if c.Quick {
			quick = "\t(quick)"
		}
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s%s\n", c.Suite, c.Shape, c.Row, quick); err != nil {
			return err
		}
	}
	return nil
}
