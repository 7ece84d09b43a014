// Command multiplex serves five models by two replicas that have room for two
// each. It proves that a model is loaded by the first request that names it,
// under a span of its own, and that others go where it is.
//
//	multiplex [--http ADDRESS] [--config FILE]
//
// See the traces drawn:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/multiplex
//	curl -H 'serve_multiplexed_model_id: german' 'http://localhost:8000/?name=Ada'
//
// Its life is that of examples/hello. Open app.go for the handler and the models.
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
		fmt.Fprintln(os.Stderr, "multiplex:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("multiplex", flag.ContinueOnError)
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
	fmt.Fprintf(os.Stderr, "try:   curl -H 'serve_multiplexed_model_id: german' 'http://%s/?name=Ada'\nstop:  Ctrl-C\n", addr)
}
