package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/internal/waterfall"
)

const traceLong = `Draw the traces of files as waterfalls: each span below its parent, with a bar for its
time, errors, events and links. The bars of the critical path, the chain of spans that
the trace's end waited for, are thick. A gap is a long time in a span with children,
without a child.

The spans of all files together make the traces. - is standard input. -o html writes one
page without scripts, and -o svg one picture.`

const traceExample = `  servetrace trace ./spans/*_tracing.json -o html > spans.html`

type traceFlags struct{ format, output, trace string }

func newTrace(s settings) *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:     "trace FILE...",
		Short:   "Draw the traces of files as waterfalls",
		Long:    traceLong,
		Example: traceExample,
		Args: args(func(_ *cobra.Command, list []string) error {
			if len(list) == 0 {
				return errors.New("FILE is missing")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, list []string) error { return f.run(cmd, s, list) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", formatJSON, "form of the spans: `json|proto`")
	flags.StringVarP(&f.output, "output", "o", outputText, "form of the drawing: `text|html|svg`")
	flags.StringVar(&f.trace, "trace", "", "draw only traces whose `id` begins so")
	return cmd
}

// Values of --output, besides outputText.
const (
	outputHTML = "html"
	outputSVG  = "svg"
)

func (f traceFlags) run(cmd *cobra.Command, s settings, files []string) error {
	groups, err := f.read(cmd.Context(), files, cmd.InOrStdin())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	look := waterfall.LookOf(s.getenv, out, false, 0)
	var traces []waterfall.Trace
	for _, g := range groups {
		t := waterfall.LayOut(g.ID, g.Spans, nil, look)
		t.Analyse()
		traces = append(traces, t)
	}
	var drawing bytes.Buffer
	switch f.output {
	case outputHTML:
		waterfall.WritePage(&drawing, "Traces of "+strings.Join(files, ", "), traces)
	case outputSVG:
		waterfall.WriteSVG(&drawing, traces)
	default:
		for _, t := range traces {
			drawing.Write(waterfall.Draw(t, look))
		}
	}
	_, err = out.Write(drawing.Bytes())
	return err
}

// read returns the traces in the files with ids that begin with the value of --trace, in the
// order of their start times.
func (f traceFlags) read(ctx context.Context, files []string, stdin io.Reader) ([]*waterfall.Group, error) {
	var spans []*waterfall.Span
	for _, name := range files {
		requests, err := readSpans(ctx, "FILE", name, f.format, stdin)
		if err != nil {
			return nil, err
		}
		for _, r := range requests {
			some, err := waterfall.Read(r.data)
			if err != nil {
				return nil, usagef("read spans of %s: %w", name, err)
			}
			spans = append(spans, some...)
		}
	}
	wanted := strings.ToLower(strings.TrimPrefix(f.trace, "0x"))
	all := waterfall.ByTrace(spans)
	groups := slices.DeleteFunc(slices.Clone(all), func(g *waterfall.Group) bool {
		return !strings.HasPrefix(g.ID.String(), wanted)
	})
	if len(groups) == 0 {
		return nil, usagef("--trace %q: no id of the %d traces begins so; the first is %s", f.trace, len(all), all[0].ID)
	}
	return groups, nil
}
