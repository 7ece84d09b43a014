// Command streaming answers with parts as they are made: as server-sent events,
// for EventSource in a browser, and as a plain chunked body. It proves that each
// part is with the client before the next one is made, that a client that leaves
// ends the work for it, also in the deployment behind, and that the spans last
// as long as the stream.
//
//	streaming [--http ADDRESS] [--config FILE] [--pause TIME]
//
//	Gateway (HTTP) ── Generator.generate (a stream)
//
// See it, and the trace drawn when it has ended:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/streaming
//	curl -N 'http://localhost:8000/events?about=the+sea'
//	curl -N 'http://localhost:8000/text?about=the+sea'
//
// A page with EventSource is at http://localhost:8000/. /events?about=everything
// has no end but the client's.
//
// Its life is that of examples/hello. Open app.go for the deployments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

func main() {
	switch err := run(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "streaming:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("streaming", flag.ContinueOnError)
	addr := flags.String("http", "", "`address` to serve on (default 127.0.0.1:8000); port 0 takes any free one")
	file := flags.String("config", "", "service `file` (default that of "+servetrace.EnvConfig+")")
	pause := flags.Duration("pause", 200*time.Millisecond, "`time` that a word takes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: want none", flags.Arg(0))
	}
	cfg, err := servetrace.LoadConfigFile(*file, os.Getenv) //nolint:forbidigo // the process is put together here
	if err != nil {
		return err
	}
	if *addr != "" {
		cfg.Serving.HTTPAddr = *addr
	}
	return servetrace.Run(context.Background(), cfg, []*serving.App{app(*pause)}, servetrace.WithReady(printHint))
}

func printHint(addr net.Addr) {
	fmt.Fprintf(os.Stderr, "try:   curl -N 'http://%s/events?about=the+sea'\nstop:  Ctrl-C\n", addr)
}
