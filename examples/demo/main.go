// Command demo is run by `make demo`. It starts the service hello with the console
// plugin, sends requests, and shows the plugin's output for their spans. It checks that
// the spans agree with the responses, and exits with status 1 if they do not.
//
//		demo [--hello bin/hello] [--plugin bin/plugins/console]
//
//	 1. It starts hello on a free port, with the plugin in
//	    SERVE_TRACING_EXPORTER_PLUGIN, SERVE_CONSOLE_FORMAT=pretty and
//	    SERVE_RAY_CONTEXT=on, and the spans of a request in each batch.
//	 2. For each request of the table in requests.go it sends the request, waits
//	    until the plugin has drawn the request's four spans, and prints the
//	    drawing.
//	 3. It sends SIGTERM, and checks that the service ends with status 0 and that
//	    the plugin is gone.
//	 4. It repeats this with SERVE_CONSOLE_FORMAT=json, checks the contents of all
//	    spans (check.go) and prints the last span.
//
// It uses nothing of servetrace except the two programs. Open requests.go first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// timeout bounds the whole demo. It takes about a second on an idle machine.
const timeout = 3 * time.Minute

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
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return show(ctx, stdout, *hello, *plugin)
}

// show runs the demo and returns all mismatches, joined.
func show(ctx context.Context, w io.Writer, hello, plugin string) error {
	wrong := draw(ctx, w, hello, plugin)
	if wrong == nil {
		printf(w, "\nThe same requests once more, with SERVE_CONSOLE_FORMAT=json.")
		wrong = check(ctx, w, hello, plugin)
	}
	if wrong == nil {
		printf(w, "\nAll checks passed: %d requests, %d spans, as drawings and as JSON; services and plugins have ended.\n",
			len(requests), len(requests)*spansPerRequest)
	}
	return wrong
}

// settings returns the variables of the service and its plugin. A batch is sealed by
// its number of spans, not by age. So a delay in the middle of a request does not split
// its drawing.
func settings(format string) []string {
	return []string{
		"SERVE_CONSOLE_FORMAT=" + format, "SERVE_RAY_CONTEXT=on", "OTEL_SERVICE_NAME=hello",
		"SERVE_TRACING_BATCH_SPANS=" + strconv.Itoa(spansPerRequest), "SERVE_TRACING_BATCH_AGE=20s",
		"SERVE_TRACING_STOP_TIMEOUT=20s",
	}
}

// draw sends each request and shows the plugin's drawing.
func draw(ctx context.Context, w io.Writer, hello, plugin string) (err error) {
	env := append(settings("pretty"), terminalSettings(w)...)
	s, err := startService(ctx, hello, plugin, env, readDrawings)
	if err != nil {
		return err
	}
	defer func() { err = end(w, s, err) }()
	printf(w, "hello serves at %s\nIts spans leave through the plugin %s,\nwith SERVE_CONSOLE_FORMAT=pretty and SERVE_RAY_CONTEXT=on\n", s.url, plugin)
	return each(func(r request, id string) error { return r.show(ctx, w, s, id) })
}

// check sends each request, compares all spans with the expected ones, and prints the
// last span.
func check(ctx context.Context, w io.Writer, hello, plugin string) (err error) {
	s, err := startService(ctx, hello, plugin, settings("json"), readSpans)
	if err != nil {
		return err
	}
	defer func() { err = end(w, s, err) }()
	var sample *span
	err = each(func(r request, id string) error {
		spans, err := r.check(ctx, s, id)
		if len(spans) > 0 {
			sample = spans[len(spans)-1]
		}
		return err
	})
	if sample != nil {
		printf(w, " This is the last of the %d spans:\n\n%s\n", len(requests)*spansPerRequest, sample.text)
	}
	return err
}

// each calls do for each request and joins the errors. It stops when spans are missing.
func each(do func(r request, id string) error) error {
	var errs []error
	for i, r := range requests {
		if err := do(r, fmt.Sprintf("demo-%d", i+1)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.title, err))
			if errors.Is(err, errMissing) {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// end stops the service. It prints the log if there was an error.
func end[P printed](w io.Writer, s *service[P], err error) error {
	err = errors.Join(err, s.stop())
	if err != nil {
		printf(w, "\nthe service's log:\n%s", s.log.String())
	}
	return err
}

// printf prints text for people. Write errors are ignored, because the checks do not
// depend on the output.
func printf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
