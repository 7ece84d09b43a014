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

// Plugin is a whole plugin that runs inside a test, started by [Run]. It is safe for
// concurrent use.
type Plugin struct {
	running
	warnings []Diagnostic
	numbers  *numbering
}

// Diagnostic is a remark of a plugin on its configuration.
type Diagnostic struct {
	// Error reports that the plugin cannot work with the configuration. Otherwise the
	// diagnostic is a warning.
	Error bool
	// Path is a variable's name, or a path in the configuration. It is empty if the
	// diagnostic is about the whole configuration.
	Path string
	// Text describes the fault.
	Text string
}

// Run starts a plugin as its main would, but in this process, with a real handshake,
// socket and gRPC. It configures the plugin with [WithEnv], [WithConfig] and
// [WithContext], as a host does. The plugin is ready when Run returns. At the end of the
// test, Run drains and ends the plugin, as on SIGTERM. If the plugin does not become
// ready, the test fails at once; use [Diagnose] to test a refused configuration.
//
// Run does not change the process's environment. The plugin reads the variables that
// it declares by Setup.Getenv.
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

// Diagnose configures a plugin as [Run] does and returns its diagnostics in order. The
// plugin has ended when Diagnose returns. If the plugin does not answer, the test fails
// at once.
func Diagnose(tb testing.TB, spec pluginsdk.Spec, opts ...Option) []Diagnostic {
	tb.Helper()
	p, err := start(tb, spec, opts)
	if err != nil {
		tb.Fatalf("configure plugin %q: %v", spec.Name, err)
	}
	p.close()
	return p.warnings
}

// start starts a plugin and configures it. The plugin ends with the test.
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

// Export sends a batch as a host does and returns the plugin's answer, which may be a
// refusal. A processor plugin gets the batch by Process, and [Plugin.Spans] has the
// result. Export blocks until the plugin answers, ctx ends or the patience of
// [WithPatience] is over. It returns an error if there was no answer, or if the request
// cannot be encoded.
func (p *Plugin) Export(ctx context.Context, request *coltracepb.ExportTraceServiceRequest) (Answer, error) {
	return p.session.export(ctx, p.numbers.of(request))
}

// Spans returns the spans of all batches that reached the exporter so far, in order, as
// the processors have left them. For a processor plugin, it returns the spans of all
// results of the plugin. The caller owns the result. It includes batches that the
// exporter refused, but not batches that a processor refused.
func (p *Plugin) Spans() []*tracepb.ResourceSpans {
	var all []*tracepb.ResourceSpans
	batches, _ := p.arrived()
	for _, encoded := range batches {
		var data tracepb.TracesData
		if proto.Unmarshal(encoded, &data) == nil { // otherwise the exporter got bytes that are not valid
			all = append(all, data.GetResourceSpans()...)
		}
	}
	return all
}

// Flush asks the plugin to deliver its buffered spans, and blocks until it has answered.
// It returns an error if spans are left.
func (p *Plugin) Flush(ctx context.Context) error {
	return noneLeft(p.session.flush(ctx))
}

// Shutdown ends the plugin as a host does, by Shutdown and the end of standard input. It
// blocks until the plugin has ended, ctx ends or the patience of [WithPatience] is over.
// It joins the errors of Shutdown and of pluginsdk.Run.
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

// Log returns the plugin's log so far: lines of JSON in the form of hclog.
func (p *Plugin) Log() string { return strings.ToValidUTF8(p.plugin.inner.log.String(), "\uFFFD") }
