// Command hello is the smallest service worth looking at: the deployment
// HelloWorld at "/", with two replicas, whose handlers make a span of their own.
// It proves the whole way of a span, from the request to a plugin's output.
//
//	hello [--http 127.0.0.1:8000]
//
//	GET /         answers, under the span application_span
//	GET /fail     returns an error: status 500, ERROR on the proxy span
//	GET /stream   sends three lines, one at a time
//
// Its life: the settings come from the environment, the flag goes over them,
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
	cfg, err := servetrace.LoadConfig()
	if err != nil {
		return err
	}
	if cfg.Serving.HTTPAddr == "" {
		cfg.Serving.HTTPAddr = "127.0.0.1:8000"
	}
	flags := flag.NewFlagSet("hello", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.Serving.HTTPAddr, "http", cfg.Serving.HTTPAddr, "address to serve on; port 0 takes any free one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: want none", flags.Arg(0))
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
