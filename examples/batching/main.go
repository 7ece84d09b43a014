// Command batching answers requests together: a model that scores lists of
// texts, and one that continues several texts word by word. It proves that a
// batch has one span, in the trace of its first sampled request and with links to
// the others, and that the work inside belongs to it.
//
//	batching [--http ADDRESS] [--config FILE] [--size N] [--wait TIME] [--batches N]
//
// See the traces drawn, after requests that come at the same time:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/batching --wait 1s
//	for i in 1 2 3; do curl -s -d '{"text": "a good day"}' http://localhost:8000/score & done; wait
//	curl -N -d '{"text": "once upon a time"}' http://localhost:8000/continue
//
// Its life is that of examples/hello. Open app.go for the models.
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
	"github.com/servetrace/servetrace/serving/batching"
)

func main() {
	switch err := run(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "batching:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("batching", flag.ContinueOnError)
	addr := flags.String("http", "", "`address` to serve on (default 127.0.0.1:8000); port 0 takes any free one")
	file := flags.String("config", "", "service `file` (default that of "+servetrace.EnvConfig+")")
	size := flags.Int("size", 8, "most requests in a batch")
	wait := flags.Duration("wait", 10*time.Millisecond, "how long the first request of a batch waits for others")
	batches := flags.Int("batches", 1, "how many batches run at a time")
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
	apps := []*serving.App{app(batching.WithMaxBatchSize(*size), batching.WithWaitTimeout(*wait), batching.WithMaxConcurrentBatches(*batches))}
	return servetrace.Run(context.Background(), cfg, apps, servetrace.WithReady(printHint))
}

func printHint(addr net.Addr) {
	fmt.Fprintf(os.Stderr, "try:   curl -d '{\"text\": \"a good day\"}' http://%s/score\nstop:  Ctrl-C\n", addr)
}
