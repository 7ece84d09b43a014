// Command ddagent is the core of Datadog's trace agent, Datadog's own code, in front of a
// back end of ours that records the payloads for Datadog.
//
//		ddagent -port PORT -otlp-grpc PORT [-json FILE | -frames FILE] [-socket PATH]
//
//	 1. It takes traces as an agent does: HTTP on -port and, if asked, on a Unix
//	    socket, OTLP over gRPC on -otlp-grpc, all on 127.0.0.1.
//	 2. The agent normalises, samples and packs them as usual, and sends them to the
//	    back end in this process, which appends each payload to a file: as a line of
//	    JSON for people, or as length and bytes for the tests.
//	 3. SIGTERM ends it after all accepted spans are written. With -stdin, so does the
//	    end of standard input, so that it does not outlive the process that started it.
//
// It lacks an agent's other parts: no metrics, no remote configuration, no telemetry, no
// OTLP over HTTP (use a Collector in front). It never connects to Datadog. Open agent.go
// for the differences from a packaged agent.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ddagent:", err)
		os.Exit(1)
	}
}

// options are the options of the command line.
type options struct {
	// port and otlp are ports of 127.0.0.1; socket is the path of a Unix socket,
	// empty without.
	port, otlp int
	socket     string
	// json and frames are files to write to, "-" for standard output.
	json, frames string
	// stats is a file for statistics. With it the agent samples as it does by
	// default, and not everything that its client wants kept is kept at any rate.
	stats string
	// ready is a path below http://127.0.0.1:PORT that answers 200 when all of
	// it can be reached.
	ready string
	// withoutV1 plays an agent that does not know protocol 1.0; inner is the path
	// of a socket for that, at which the agent itself listens.
	withoutV1 bool
	inner     string
	// stdin: the end of standard input ends the process.
	stdin bool
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("ddagent", flag.ContinueOnError)
	flags.IntVar(&o.port, "port", 8126, "take traces over HTTP on this port")
	flags.IntVar(&o.otlp, "otlp-grpc", 4317, "take OTLP over gRPC on this port")
	flags.StringVar(&o.socket, "socket", "", "take traces over HTTP on this Unix socket, too")
	flags.StringVar(&o.json, "json", "", "append payloads to this file, as lines of JSON (- for standard output)")
	flags.StringVar(&o.frames, "frames", "", "append payloads to this file, as AgentPayload messages behind their length")
	flags.StringVar(&o.stats, "stats", "", "append statistics to this file, as StatsPayload messages behind their length, and sample by the agent's default rate")
	flags.StringVar(&o.ready, "ready", "/ready", "the path that answers 200 when everything listens")
	flags.BoolVar(&o.withoutV1, "without-v1", false, "do not know protocol 1.0, as agents before 7.70")
	flags.StringVar(&o.inner, "inner", "", "where the agent itself listens with -without-v1: a Unix socket to make")
	flags.BoolVar(&o.stdin, "stdin", false, "end when standard input does")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.withoutV1 && (o.inner == "" || o.socket != "") {
		return o, errors.New("-without-v1 needs -inner, and goes without -socket")
	}
	return o, nil
}

// run takes traces until ctx ends.
func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.stdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
			cancel()
		}()
	}
	in, err := startIntake(o)
	if err != nil {
		return err
	}
	front, err := startFront(o)
	if err != nil {
		return errors.Join(err, in.stop())
	}
	err = runAgent(ctx, o, in.url())
	if front != nil {
		err = errors.Join(err, front.Close())
	}
	return errors.Join(err, in.stop())
}
