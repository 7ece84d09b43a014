// Package consoleexporter writes spans for people and for programs that read
// what Ray Serve writes. It is the exporter of the console plugin, and can be
// that of a plugin with processors of its own:
//
//	pluginsdk.Main(pluginsdk.Spec{
//		Name:       "my-console",
//		Env:        consoleexporter.EnvPatterns(),
//		Processors: []pluginsdk.NewProcessor{redact},
//		Exporter:   consoleexporter.New,
//	})
//
// There are two forms. "json" is that of OpenTelemetry's console exporter for
// Python, which Ray Serve's tracing guide shows. "pretty" draws each trace as a
// waterfall: a tree of spans with their times.
//
// The life of an exporter:
//
//  1. [New] reads the settings, and makes the folder if there is one.
//  2. Export hands on what it is given: as JSON each span in one Write, in the
//     order of their ends, to the host's standard output or to the file of the
//     component that the span is from; drawn, what the batch has of each trace in
//     one Write. When it returns nil all of the batch
//     is written.
//  3. There is nothing to shut down: files are open only while a batch is
//     written, so they can be moved away at any time.
//
// No span is held back for others of its trace. Those of a later batch are
// drawn under a heading that says "continued", below the way to them as far as
// it is remembered (recent.go: some 3 MiB at most). A span whose parent has not
// come is marked.
//
// A batch of which a part could not be written is retried whole, so a span may
// stand twice; of a span that a full disk has cut off nothing stays in a file. Files grow until someone takes them away: the package rotates
// nothing, and syncs nothing to disk. A drawing does not have everything: what
// a span repeats of its name or its parents, stack traces, and attributes of
// events are in JSON only.
//
// Open this file first, settings.go says what can be asked for. json.go is the one form and folder.go the names of
// files; pretty.go is the other, which tree.go orders, draw.go and details.go
// draw, text.go makes harmless and terminal.go fits to what shows it.
package consoleexporter

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/servetrace/servetrace/pluginsdk"
)

var _ pluginsdk.NewExporter = New

// New builds the exporter from the variables that [EnvPatterns] names, or where
// they are not set from the part "exporter" of the plugin's document, whose other
// parts are not its business:
//
//	exporter:
//	  format: pretty   # as SERVE_CONSOLE_FORMAT
//	  output: stdout   # as SERVE_CONSOLE_OUTPUT
//
// A wrong value, and a folder that can not be made, give a
// [pluginsdk.ConfigError] that names the variable or the path in the document.
// It does not block. The exporter is safe for concurrent use.
func New(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	chosen, err := readSettings(s)
	if err != nil {
		return nil, err
	}
	if isFolder(chosen.output) {
		return toFolder(chosen, s.Context.Node)
	}
	if chosen.format == formatPretty {
		return toTerminal(s.Stdout, looker(s)), nil
	}
	return toWriter(s.Stdout), nil
}

// toWriter writes all spans to w.
func toWriter(w io.Writer) pluginsdk.ExportFunc {
	return func(ctx context.Context, batch *pluginsdk.Batch) error {
		return render(ctx, batch, func(pluginsdk.Span) (io.Writer, error) { return w, nil })
	}
}

// render writes each span of batch to where target says, in one Write, in the
// order in which they ended, which a batch does not keep between scopes. It
// stops at the first that can not be written, and when the host has given up.
func render(ctx context.Context, batch *pluginsdk.Batch, target func(pluginsdk.Span) (io.Writer, error)) error {
	var p printer
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
		if _, err := w.Write(p.span(span)); err != nil {
			return fmt.Errorf("write span: %w", err)
		}
	}
	return nil
}
