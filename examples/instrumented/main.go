// Command instrumented is a service whose handlers are traced by OpenTelemetry's
// own libraries, otelhttp and otelgrpc, in the place of the FastAPI instrumentor
// of the tracing guide. It proves that their spans and the runtime's are one
// connected trace, through HTTP and through gRPC: each library's span is a child
// of the replica's, and what it calls is a child of its own.
//
//	instrumented [--http ADDRESS] [--words ADDRESS] [--config FILE]
//
//	proxy → router → replica → otelhttp → otelgrpc (the client's)
//	→ proxy → router → replica → otelgrpc (the server's) → look_up
//
// See the trace drawn:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/instrumented
//	curl http://localhost:8000/translate/cat
//
// By default it calls its own gRPC port; --words names that of another. Its life
// is that of examples/hello. Open app.go for what is traced.
package main

import (
	"cmp"
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
		fmt.Fprintln(os.Stderr, "instrumented:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	flags := flag.NewFlagSet("instrumented", flag.ContinueOnError)
	addr := flags.String("http", "", "`address` to serve on (default 127.0.0.1:8000); port 0 takes any free one")
	words := flags.String("words", "", "`address` of the gRPC port to call (default this service's own)")
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
	client, hangUp, err := dial(cmp.Or(*words, cfg.Serving.GRPC.Addr, "127.0.0.1:9000"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hangUp()) }()
	return servetrace.Run(context.Background(), cfg, apps(client), servetrace.WithReady(printHint))
}

func printHint(addr net.Addr) {
	fmt.Fprintf(os.Stderr, "try:   curl http://%s/translate/cat\nstop:  Ctrl-C\n", addr)
}
