// Package autoexport lets OpenTelemetry's package of the same name,
// go.opentelemetry.io/contrib/exporters/autoexport, export spans through plugins. A
// program imports it for its side effect:
//
//	import _ "github.com/servetrace/servetrace/contrib/autoexport"
//
// Then OTEL_TRACES_EXPORTER=servetrace selects the plugins that
// SERVE_TRACING_EXPORTER_PLUGIN lists:
//
//  1. The import registers Name at autoexport.
//  2. autoexport.NewSpanExporter calls NewSpanExporter, which starts a host.Host. The
//     plugins start in the background.
//  3. The program's span processor calls ExportSpans, which gives the spans to the Host.
//  4. The provider's Shutdown calls Shutdown, which sends the remaining spans and stops
//     the plugins.
//
// A program that builds its own provider needs no autoexport: a host.Host is a span
// processor. The package is a module of its own, because autoexport depends on the
// exporters of all signals. Open this file; example is a program.
package autoexport

import (
	"context"
	"errors"
	"os"
	"strings"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/host"
)

// Name is the value of OTEL_TRACES_EXPORTER that selects plugins.
const Name = "servetrace"

func init() { autoexport.RegisterSpanExporter(Name, NewSpanExporter) }

// NewSpanExporter returns an [Exporter] with the settings of the environment, as
// host.FromEnv reads them. It returns at once; the plugins start in the background. Each
// call starts plugins of its own. A wrong setting is an error, and so is an empty list of
// plugins, unless OTEL_SDK_DISABLED is true. ctx is not used.
func NewSpanExporter(context.Context) (sdktrace.SpanExporter, error) {
	h, err := host.FromEnv()
	if err != nil {
		return nil, err
	}
	disabled := os.Getenv("OTEL_SDK_DISABLED") //nolint:forbidigo // host.FromEnv reads the environment, too
	if !h.Enabled() && !strings.EqualFold(disabled, "true") {
		return nil, errors.New("OTEL_TRACES_EXPORTER=" + Name + " needs the list of plugins: set " + host.EnvPlugins + "=console, or another plugin")
	}
	return &Exporter{host: h}, nil
}

// Exporter is a SpanExporter in front of a host.Host. It is safe for concurrent use.
type Exporter struct{ host *host.Host }

var _ sdktrace.SpanExporter = (*Exporter)(nil)

// ExportSpans gives the spans to the Host, which delivers them in the background and
// counts each loss. It never blocks, also if a plugin fails, so that a batch processor
// drops no spans meanwhile. It returns nil; after Shutdown the Host refuses the spans.
func (e *Exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, span := range spans {
		e.host.OnEnd(span)
	}
	return nil
}

// ForceFlush delivers all spans that ExportSpans has got. It blocks until the plugins have
// answered, or ctx ends; then the error has the number of remaining spans. The provider's
// ForceFlush only reaches ExportSpans, because a SpanExporter has no ForceFlush. So a
// program that needs delivered spans before it ends calls the provider's ForceFlush, and
// then this method.
func (e *Exporter) ForceFlush(ctx context.Context) error { return e.host.ForceFlush(ctx) }

// Shutdown delivers the remaining spans and stops the plugins. It returns at the end of
// ctx or after SERVE_TRACING_STOP_TIMEOUT, whichever is first. The error has the number
// of lost spans for each plugin. A second call returns the same error.
func (e *Exporter) Shutdown(ctx context.Context) error { return e.host.Shutdown(ctx) }

// Stats returns the accounting of all spans: see host.Host.Stats.
func (e *Exporter) Stats() host.Stats { return e.host.Stats() }
