// Command grpc is a service with a method of each of gRPC's four kinds: a
// translator of words. It proves that each call is one trace with the caller's
// span above it and the method's own below, and that errors are the codes that
// gRPC has for them.
//
//	grpc [--grpc 127.0.0.1:9000] [--http 127.0.0.1:8000] [--config FILE]
//
//	Translate    one word for one word; NOT_FOUND for one that is not known
//	ListWords    a stream of all words that are known
//	CountWords   takes a stream of words, counts those that are known
//	Converse     takes a stream of words, and answers each as it comes
//
// See the traces drawn:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/grpc
//	grpcurl -plaintext -d '{"word": "cat"}' localhost:9000 translate.v1.TranslatorService/Translate
//
// Its life is that of examples/hello. It has no HTTP handler; health checks are
// answered on both ports. Open app.go for the service, and
// proto/translate/v1/translate.proto for its contract; translatev1 is the code
// made of that, which no hand writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

func main() {
	switch err := run(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "grpc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("grpc", flag.ContinueOnError)
	addr := flags.String("grpc", "", "`address` to serve gRPC on (default 127.0.0.1:9000); port 0 takes any free one")
	httpAddr := flags.String("http", "", "`address` for HTTP (default 127.0.0.1:8000), where there are health checks")
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
		cfg.Serving.GRPC.Addr = *addr
	}
	if *httpAddr != "" {
		cfg.Serving.HTTPAddr = *httpAddr
	}
	return servetrace.Run(context.Background(), cfg, []*serving.App{app()})
}
