// Command upstream-downstream is what Ray Serve's tracing guide shows under
// "Propagate traces between services": a service that calls another over HTTP.
// It proves that the spans of both are one trace, because the caller writes its
// trace context into the headers of the call.
//
//	upstream-downstream [--http ADDRESS] [--config FILE] [--downstream URL]
//
// As in the guide, one program has both applications, UpstreamApp at "/" and
// DownstreamApp at "/downstream". Here it runs twice, as two services:
//
//	bin/upstream-downstream --config examples/upstream-downstream/downstream.yaml
//	bin/upstream-downstream --config examples/upstream-downstream/upstream.yaml
//	curl http://localhost:8000/
//
// The files switch tracing on, so that both services write span files, into the
// folder that their logs name. Or see the trace drawn, half of it in each
// terminal:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty SERVE_HTTP_PORT=8002 bin/upstream-downstream
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/upstream-downstream
//	curl http://localhost:8000/
//
// Its life is that of examples/hello. It knows of no plugin, and has no span of
// its own around the call: whoever wants one starts it as any other. Open
// services.go for the two handlers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"

	"github.com/servetrace/servetrace"
)

func main() {
	switch err := run(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "upstream-downstream:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("upstream-downstream", flag.ContinueOnError)
	addr := flags.String("http", "", "`address` to serve on (default 127.0.0.1:8000); port 0 takes any free one")
	file := flags.String("config", "", "service `file` (default that of "+servetrace.EnvConfig+")")
	url := flags.String("downstream", "http://127.0.0.1:8002/downstream", "`URL` that UpstreamApp calls")
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
	return servetrace.Run(context.Background(), cfg, apps(*url), servetrace.WithReady(printHint))
}

func printHint(addr net.Addr) {
	fmt.Fprintf(os.Stderr, "try:   curl http://%s/\nstop:  Ctrl-C\n", addr)
}
