// Command demo is what `make demo` runs: it starts the service hello with the
// console plugin, sends it real requests, and shows the spans of each as the
// plugin prints them. It proves that what a client sees and what the spans say
// agree, and ends with status 1 where they do not.
//
//		demo [--hello bin/hello] [--plugin bin/plugins/console]
//
//	 1. It starts hello on a free port, with the plugin in
//	    SERVE_TRACING_EXPORTER_PLUGIN and no other setting.
//	 2. For each request of the table in requests.go it sends the request, waits
//	    until the plugin has printed the request's four spans, prints them, and
//	    checks them (check.go).
//	 3. It sends SIGTERM, and checks that the service ends with status 0 and that
//	    the plugin is gone.
//
// It uses nothing of servetrace but the two programs. Open requests.go first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// most is how long the whole demo may take; it needs about a second.
const most = time.Minute

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	hello := flags.String("hello", "bin/hello", "the service")
	plugin := flags.String("plugin", "bin/plugins/console", "the exporter plugin, a path")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, path := range []string{*hello, *plugin} {
		if _, err := exec.LookPath(path); err != nil {
			return fmt.Errorf("%w; build it first: make build", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return show(ctx, stdout, *hello, *plugin)
}

// show runs the demo and joins everything that was not as it should be.
func show(ctx context.Context, w io.Writer, hello, plugin string) (err error) {
	s, err := startService(ctx, hello, plugin)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.stop())
		if err != nil {
			printf(w, "\nthe service's log:\n%s", s.log.String())
			return
		}
		printf(w, "\nAll is as it should be: %d requests, %d spans; service and plugin have ended.\n",
			len(requests), len(requests)*spansOfRequest)
	}()
	printf(w, "hello serves at %s; its spans leave through the plugin %s\n", s.url, plugin)
	var errs []error
	for i, r := range requests {
		if err := r.show(ctx, w, s, fmt.Sprintf("demo-%d", i+1)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.title, err))
			if errors.Is(err, errMissing) {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// printf prints for people. Where nobody reads any more, the checks still hold.
func printf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
