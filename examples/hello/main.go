// Command hello is the smallest service worth looking at: the deployment
// HelloWorld at "/", with two replicas, whose handlers make a span of their own.
// It proves the whole way of a span, from the request to a plugin's output.
//
//	hello [--http 127.0.0.1:8000] [--config FILE]
//
//	GET /         answers, under the span application_span
//	GET /fail     returns an error: status 500, ERROR on the proxy span
//	GET /stream   sends three lines, one at a time
//
// Its life: the settings come from the environment and the service file below
// it, the flag goes over them,
// servetrace.Run serves until SIGTERM or SIGINT. Which plugin gets the spans is
// the operator's choice, made by SERVE_TRACING_EXPORTER_PLUGIN; this program
// does not know. It has no state, and no configuration of its own.
//
// Open hello.go for the handlers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

func main() {
	switch err := run(os.Args[1:], os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("hello", flag.ContinueOnError)
	flags.SetOutput(stderr)
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
	tell := func(addr net.Addr) { printHints(stderr, addr) }
	return servetrace.Run(context.Background(), cfg, []*serving.App{app()}, servetrace.WithReady(tell))
}

func printHints(w io.Writer, addr net.Addr) {
	_, _ = fmt.Fprintf(w, "try:   curl -i http://%[1]s/\n"+
		"       curl -i http://%[1]s/fail\n"+
		"       curl -N http://%[1]s/stream\n"+
		"       curl -i -H 'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' http://%[1]s/\n"+
		"stop:  Ctrl-C\n", addr)
}
