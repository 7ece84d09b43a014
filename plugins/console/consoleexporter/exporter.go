// Package consoleexporter writes spans as JSON, in the form of OpenTelemetry's
// console exporter for Python, which Ray Serve's tracing guide shows. It is the
// exporter of the console plugin, and can be that of a plugin with processors
// of its own:
//
//	pluginsdk.Main(pluginsdk.Spec{
//		Name:       "my-console",
//		Env:        []string{consoleexporter.EnvPattern},
//		Processors: []pluginsdk.NewProcessor{redact},
//		Exporter:   consoleexporter.New,
//	})
//
// The life of an exporter:
//
//  1. [New] reads the settings, and makes the folder if there is one.
//  2. Export renders each span and hands it on in one Write: to the host's
//     standard output, to its standard error, or to the file of the component
//     that the span is from. When it returns nil all of the batch is written.
//  3. There is nothing to shut down: files are open only while a batch is
//     written, so they can be moved away at any time.
//
// A batch of which a part could not be written is retried whole, so a span may
// stand twice. Files grow until someone takes them away: the package rotates
// nothing, and syncs nothing to disk.
//
// Open this file first; json.go is the form, folder.go the names of files.
package consoleexporter

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/pluginsdk"
)

// The variables that [New] reads.
const (
	// EnvPattern covers those of the plugin itself; [EnvPatterns] has all.
	EnvPattern = "SERVE_CONSOLE_*"
	// EnvFormat is the form: json, which is the default and the only one.
	EnvFormat = "SERVE_CONSOLE_FORMAT"
	// EnvOutput says where spans go: stdout (the default), stderr, or a folder,
	// as a path with a slash in it, or a dot.
	EnvOutput = "SERVE_CONSOLE_OUTPUT"
)

// EnvPatterns gives the variables that [New] reads, for pluginsdk.Spec.Env: its
// own, and those by which terminals are told about. The slice is the caller's,
// to append to.
func EnvPatterns() []string { return []string{EnvPattern, "NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS"} }

var _ pluginsdk.NewExporter = New

// New builds the exporter from the variables above. A wrong value, and a
// folder that can not be made, give a pluginsdk.ConfigError that names the
// variable. It does not block. The exporter is safe for concurrent use.
func New(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	if format := s.Getenv(EnvFormat); format != "" && format != "json" {
		return nil, &pluginsdk.ConfigError{Path: EnvFormat, Err: fmt.Errorf("%q is not known: want json", format)}
	}
	switch output := s.Getenv(EnvOutput); {
	case output == "" || output == "stdout":
		return toWriter(s.Stdout), nil
	case output == "stderr":
		return toWriter(s.Stderr), nil
	case output == "." || strings.Contains(output, "/"):
		return toFolder(output, s.Context.Node)
	default:
		return nil, &pluginsdk.ConfigError{Path: EnvOutput, Err: fmt.Errorf(
			"%q is not known: want stdout, stderr, or a folder as a path with a slash, such as ./%[1]s", output)}
	}
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
