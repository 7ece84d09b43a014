package plugintest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/pluginsdk"
)

// Plugin is a plugin that runs inside a test. [Run] starts it. It is safe for concurrent
// use.
type Plugin struct {
	running
	warnings []Diagnostic
	numbers  *numbering
}

// Diagnostic is an error or a warning of a plugin about its configuration.
type Diagnostic struct {
	// Error is true if the plugin cannot work with the configuration, and false for a
	// warning.
	Error bool
	// Path is a variable's name, or a path in the configuration. It is empty if the
	// diagnostic is about the whole configuration.
	Path string
	// Text describes the mistake in the configuration.
	Text string
}

// Run starts a plugin in the test's process, with a real handshake, socket and gRPC
// server. As a host does, it configures the plugin, with the options [WithEnv],
// [WithConfig] and [WithContext]. When Run returns, the plugin takes batches. At the end
// of the test, the plugin finishes its calls and is shut down, as after SIGTERM. If the
// plugin does not start, or refuses its configuration, the test fails at once. To test a
// refused configuration, use [Diagnose].
//
// Run does not change the process's environment, so the plugin must read its variables by
// Setup.Getenv.
func Run(tb testing.TB, spec pluginsdk.Spec, opts ...Option) *Plugin {
	tb.Helper()
	p, err := start(tb, spec, opts)
	if err != nil {
		tb.Fatalf("run plugin %q: %v", spec.Name, err)
	}
	for _, d := range p.warnings {
		if d.Error {
			tb.Fatalf("run plugin %q: configuration refused: %s: %s", spec.Name, d.Path, d.Text)
		}
	}
	return p
}

// Diagnose starts and configures a plugin as [Run] does, and returns its errors and
// warnings about the configuration, in order. The plugin has ended when Diagnose returns.
// If the plugin does not answer, the test fails at once.
func Diagnose(tb testing.TB, spec pluginsdk.Spec, opts ...Option) []Diagnostic {
	tb.Helper()
	p, err := start(tb, spec, opts)
	if err != nil {
		tb.Fatalf("configure plugin %q: %v", spec.Name, err)
	}
	p.close()
	return p.warnings
}

// start starts a plugin in this process and configures it. The plugin is ended at the end
// of the test.
func start(tb testing.TB, spec pluginsdk.Spec, opts []Option) (*Plugin, error) {
	tb.Helper()
	settings, ctx := newSettings(opts), tb.Context()
	started, err := InProcess(spec).start(asHost)
	if err != nil {
		return nil, err
	}
	p := &Plugin{running: running{plugin: started}, numbers: newNumbering()}
	tb.Cleanup(p.close)
	if err := p.connect(ctx, settings, &observations{}); err != nil {
		return nil, err
	}
	described, err := p.session.describe(ctx)
	if err != nil {
		return nil, err
	}
	p.session.processes = described.GetKind() == pluginv1.Kind_KIND_PROCESSOR
	reply, err := p.session.configure(ctx, settings.request(described.GetEnvPatterns()))
	if err != nil {
		return nil, fmt.Errorf("configure: %w", err)
	}
	for _, d := range reply.GetDiagnostics() {
		p.warnings = append(p.warnings, Diagnostic{Error: isError(d), Path: d.GetPath(), Text: d.GetText()})
	}
	return p, nil
}

// Warnings returns the plugin's warnings about its configuration.
func (p *Plugin) Warnings() []Diagnostic { return p.warnings }

// Export sends a batch as a host does, and returns the plugin's answer, which may be an
// error code. A processor plugin gets the batch by Process, and [Plugin.Spans] returns
// the result. Export blocks until the plugin answers, ctx ends or the time of
// [WithPatience] has passed. It returns an error if there is no answer, or if the request
// cannot be encoded.
func (p *Plugin) Export(ctx context.Context, request *coltracepb.ExportTraceServiceRequest) (Answer, error) {
	return p.session.export(ctx, p.numbers.of(request))
}

// Spans returns the spans of all batches that have reached the exporter so far, in order,
// with the edits of the plugin's processors. It includes batches that the exporter
// refused. For a processor plugin, it returns the spans of all batches that the plugin
// has returned. The caller owns the result.
func (p *Plugin) Spans() []*tracepb.ResourceSpans {
	var all []*tracepb.ResourceSpans
	batches, _ := p.arrived()
	for _, encoded := range batches {
		var data tracepb.TracesData
		if proto.Unmarshal(encoded, &data) == nil { // the test may have sent bytes that are not valid
			all = append(all, data.GetResourceSpans()...)
		}
	}
	return all
}

// Flush asks the plugin to deliver its buffered spans, and blocks until it has answered
// or ctx ends. It returns an error if spans are left.
func (p *Plugin) Flush(ctx context.Context) error {
	return noneLeft(p.session.flush(ctx))
}

// Shutdown ends the plugin as a host does, by the call Shutdown and the end of standard
// input. It blocks until the plugin has ended, ctx ends or the time of [WithPatience] has
// passed. It joins the error of the call and the error of pluginsdk.Run.
func (p *Plugin) Shutdown(ctx context.Context) error {
	_, err := p.session.shutdown(ctx)
	p.plugin.CloseStdin()
	if late := p.plugin.awaitEnd(ctx, p.session.settings.patience); late != nil {
		return errors.Join(err, late)
	}
	return errors.Join(err, p.plugin.exit())
}

// Stdout returns the text that the plugin has printed on Setup.Stdout so far.
func (p *Plugin) Stdout() string { return p.plugin.inner.stdout.String() }

// Log returns the plugin's log so far: lines of JSON with the field names of hclog.
func (p *Plugin) Log() string { return strings.ToValidUTF8(p.plugin.inner.log.String(), "\uFFFD") }
