package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/otlpjson"
	"github.com/servetrace/servetrace/internal/otlpwire"
)

const pluginRunLong = `Start a plugin, send it the spans of a file, and report the result. Spans are OTLP, as
file exporters write it; the built-in span is a first check of the back end.

The plugin gets the variables and the configuration that a service in this environment
would give it, or the configuration of --config. It must be ready within
SERVE_TRACING_START_TIMEOUT. Requests are sent one after another, cut at the plugin's
limits, and never twice. A plugin at unix:// only gets the spans.

Standard output has the plugin's output; of a processor plugin the results, as
OTLP/JSON in lines. The exit code is 0 if each span was delivered, or filtered by a
processor.`

const pluginRunExample = `  cat spans.json | servetrace plugin run ./names --spans - --config names.yaml`

// runSpan is the name of the span that plugin run sends without --spans, and the name of the
// span's service.
const runSpan = "servetrace plugin run"

type runFlags struct {
	spans, format, config string
	timeout               time.Duration
}

func newPluginRun(s settings) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:     "run PATH",
		Short:   "Send the spans of a file, or a built-in span, through a plugin",
		Long:    pluginRunLong,
		Example: pluginRunExample,
		Args:    oneArg("PATH"),
		RunE:    func(cmd *cobra.Command, list []string) error { return f.run(cmd, s, list[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.spans, "spans", "", "`FILE` of spans, or - (default: a built-in span)")
	flags.StringVar(&f.format, "format", formatJSON, "form of the spans: `json|proto`")
	flags.StringVar(&f.config, "config", "", "`FILE` with the plugin's configuration")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "`duration` of the whole command")
	return cmd
}

func (f runFlags) run(cmd *cobra.Command, s settings, where string) error {
	if err := f.check(); err != nil {
		return err
	}
	cfg, err := s.one(cmd.Context(), where, f.config)
	if err != nil {
		return err
	}
	requests, from := []request{builtInSpan(runSpan, runSpan, time.Now())}, "built in"
	if f.spans != "" {
		requests, err = readSpans(cmd.Context(), "--spans", f.spans, f.format, cmd.InOrStdin())
		from = "of " + f.spans
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), f.timeout, fmt.Errorf("--timeout %v has passed", f.timeout))
	defer cancel()
	result, err := send(ctx, cfg, requests, cmd.OutOrStdout(), cmd.ErrOrStderr())
	if result == nil {
		return err
	}
	if writeErr := result.write(cmd.ErrOrStderr(), from); writeErr != nil {
		return errors.Join(err, writeErr)
	}
	return errors.Join(err, result.verdict())
}

func (f runFlags) check() error {
	switch {
	case f.spans == "" && f.format == formatProto:
		return usagef("--format %s is the form of a file, and --spans is missing", f.format)
	case f.timeout <= 0:
		return usagef("--timeout %v: want a duration above zero, such as 30s", f.timeout)
	}
	return nil
}

// send starts the only plugin of cfg, sends it the requests and stops it. The accounting is
// nil if the plugin did not become ready. send writes the results of a processor plugin to
// out, and the plugin's log to logged.
func send(ctx context.Context, cfg host.Config, requests []request, out, logged io.Writer, opts ...host.Option) (acc *accounting, err error) {
	session, err := openSession(ctx, cfg, logged, opts...)
	if cause := over(ctx); err != nil && cause != nil {
		return nil, fmt.Errorf("%w: %w", cause, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Stop()) }()
	acc = newAccounting(session.Inspection(), requests)
	if err = sendAll(ctx, session, requests, acc, out); err == nil {
		err = session.Finish(ctx)
	}
	if cause := over(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return acc, err
}

// over returns the cause if ctx has ended or its deadline has passed, and otherwise nil. ctx
// ends a moment after its deadline, and gRPC may notice the deadline before. So over waits
// for that end.
func over(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	return context.Cause(ctx)
}

// sendAll sends the requests one after another, and counts the answers. It returns an error if
// ctx or the plugin ends before the last answer.
func sendAll(ctx context.Context, session *host.Session, requests []request, acc *accounting, out io.Writer) error {
	for batch, err := range batches(requests, session.Inspection()) {
		if err != nil {
			return err
		}
		ans := session.Export(ctx, batch.data)
		acc.settle(batch.spans, ans)
		if err := writeResult(out, ans.Result); err != nil {
			return err
		}
		if exit, ended := session.Ended(ctx, ans); ended {
			return fmt.Errorf("the plugin ended: %s", exit)
		}
		if err := over(ctx); err != nil {
			return err
		}
	}
	return nil
}

// batches yields the requests, cut to the plugin's limits. It does not change a request
// within the limits, even if the request has resources or scopes without spans.
func batches(requests []request, limits host.Inspection) iter.Seq2[request, error] {
	return func(yield func(request, error) bool) {
		for _, r := range requests {
			for sent := 0; sent < r.spans; {
				data, spans, err := otlpwire.Cut(r.data, sent, limits.MaxBatchSpans, limits.MaxBatchBytes)
				if err != nil {
					yield(request{}, fmt.Errorf("cut a request to the plugin's limits: %w", err))
					return
				}
				if spans == r.spans {
					data = r.data
				}
				if !yield(request{data: data, spans: spans}, nil) {
					return
				}
				sent += spans
			}
		}
	}
}

// writeResult writes the request that a processor plugin has returned, as OTLP/JSON in a
// line. It writes nothing if no spans are left.
func writeResult(w io.Writer, result []byte) error {
	if spans, err := otlpwire.CountSpans(result); err != nil || spans == 0 {
		return err
	}
	line, err := otlpjson.FromProto(result)
	if err != nil {
		return fmt.Errorf("the plugin's result: %w", err)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
