// Command composition is an application of four deployments that call each
// other by handle: a chain of three, and two calls at a time. It proves that all
// of it is one trace, in which each call has the spans of its own router and
// replica under those of its caller.
//
//	composition [--http ADDRESS] [--config FILE]
//
//	Gateway (HTTP) ─┬─ Shortener.shorten ── Tokenizer.tokens (a stream)
//	                └─ Sentiment
//
// See the trace drawn:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/composition
//	curl -d '{"text": "A good day. Then rain came."}' http://localhost:8000/describe
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

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

func main() {
	switch err := run(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "composition:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("composition", flag.ContinueOnError)
	addr := flags.String("http", "", "`address` to serve on (default 127.0.0.1:8000); port 0 takes any free one")
	file := flags.String("config", "", "service `file` (default that of "+servetrace.EnvConfig+")")
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
	return servetrace.Run(context.Background(), cfg, []*serving.App{app()}, servetrace.WithReady(printHint))
}

func printHint(addr net.Addr) {
	fmt.Fprintf(os.Stderr, "try:   curl -d '{\"text\": \"A good day. Then rain came.\"}' http://%s/describe\nstop:  Ctrl-C\n", addr)
}
