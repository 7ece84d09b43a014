// Package consoleexporter writes spans for people, and for programs that read Ray
// Serve's span files. It is the exporter of the console plugin. A plugin with its own
// processors can use it, too:
//
//	pluginsdk.Main(pluginsdk.Spec{
//		Name:       "my-console",
//		Env:        consoleexporter.EnvPatterns(),
//		Processors: []pluginsdk.NewProcessor{redact},
//		Exporter:   consoleexporter.New,
//	})
//
// There are two formats. "json" is the format of OpenTelemetry's console exporter for
// Python, shown in Ray Serve's tracing guide. "pretty" draws each trace as a waterfall:
// a tree of spans with their times.
//
// The life of an exporter:
//
//  1. [New] reads the settings. If the output is a folder, it creates the folder.
//  2. Export writes its batch before it returns nil. As JSON, each span is a single
//     Write, in the order of their ends, to the host's standard output or to the file
//     of the span's component. As drawings, the part of each trace in the batch is a
//     single Write.
//  3. There is nothing to shut down. Files are open only while a batch is written, so
//     they can be moved away at any time.
//
// The exporter does not hold spans back until their trace is complete. The spans of a
// trace in a later batch are drawn under a heading with "continued", below their known
// ancestors. The exporter remembers ancestors in at most some 3 MiB. A span with an
// unknown parent is marked.
//
// If a part of a batch cannot be written, the host sends the whole batch again, so a span
// may appear twice. If the disk is full, a partly written span is removed from its file.
// The package does not rotate files and does not sync them to disk. A drawing omits stack
// traces, attributes of events, and values that repeat the span's name or values of its
// ancestors. JSON has everything.
//
// Open this file first, then settings.go. json.go writes JSON and folder.go names the
// files. pretty.go writes drawings, made by package waterfall.
package consoleexporter

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/servetrace/servetrace/pluginsdk"
)

var _ pluginsdk.NewExporter = New

// New returns an exporter that is configured by the variables of [EnvPatterns]. For
// variables that are not set, it uses the part "exporter" of the plugin's configuration:
//
//	exporter:
//	  format: pretty   # as SERVE_CONSOLE_FORMAT
//	  output: stdout   # as SERVE_CONSOLE_OUTPUT
//
// An invalid value, or a folder that cannot be created, is a [pluginsdk.ConfigError]
// with the name of the variable or the path in the configuration. New does not block.
// The exporter is safe for concurrent use.
func New(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	chosen, err := readSettings(s)
	if err != nil {
		return nil, err
	}
	if isFolder(chosen.output) {
		return toFolder(chosen, s.Context.Node)
	}
	if chosen.format == formatPretty {
		return toTerminal(s), nil
	}
	return toWriter(s.Stdout), nil
}

func toWriter(w io.Writer) pluginsdk.ExportFunc {
	return func(ctx context.Context, batch *pluginsdk.Batch) error {
		return render(ctx, batch, func(pluginsdk.Span) (io.Writer, error) { return w, nil })
	}
}

// render writes each span of batch as JSON, in a single Write to the writer that target
// returns for it. It sorts the spans by their end, because a batch is grouped by scope.
// It stops after the first failed write, and when ctx ends.
func render(ctx context.Context, batch *pluginsdk.Batch, target func(pluginsdk.Span) (io.Writer, error)) error {
	spans := slices.SortedStableFunc(batch.Spans(), func(a, b pluginsdk.Span) int {
		return a.EndTime().Compare(b.EndTime())
	})
	for _, span := range spans {
		if err := ctx.Err(); err != nil {
			return err
		}
		w, err := target(span)
		if err != nil {
			return err
		}
		if _, err := w.Write(renderJSON(span)); err != nil {
			return fmt.Errorf("write span: %w", err)
		}
	}
	return nil
}
