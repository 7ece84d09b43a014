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

	"github.com/servetrace/servetrace/pluginsdk"
)

// Plugin is a whole plugin that runs inside a test, made by [Run]. Safe for
// concurrent use.
type Plugin struct {
	inner    *inner
	session  *session
	warnings []Diagnostic
	numbers  numbering
}

// Diagnostic is a remark of a plugin on its configuration.
type Diagnostic struct {
	// Error: the plugin cannot work with the configuration. Else it is a
	// warning.
	Error bool
	// Path is a variable's name, or a path in the document. Empty: the whole.
	Path string
	// Text says what is wrong.
	Text string
}

// Run runs a plugin as its main would, but in this process: real handshake,
// socket and gRPC, configured with [WithEnv], [WithConfig] and [WithContext]
// as by a host. It is ready when Run returns, and it has ended, drained as on
// SIGTERM, when the test has. A plugin that does not become ready fails the test
// at once; use [Diagnose] for one that must not.
//
// The process's environment is not changed: what the plugin declares it reads
// by Setup.Getenv.
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

// Diagnose configures a plugin as [Run] does and gives all that it says to its
// configuration, in its order. The plugin has ended when Diagnose returns. One
// that does not answer fails the test at once.
func Diagnose(tb testing.TB, spec pluginsdk.Spec, opts ...Option) []Diagnostic {
	tb.Helper()
	p, err := start(tb, spec, opts)
	if err != nil {
		tb.Fatalf("configure plugin %q: %v", spec.Name, err)
	}
	p.session.close()
	return p.warnings
}

// start starts a plugin and configures it. It ends with the test.
func start(tb testing.TB, spec pluginsdk.Spec, opts []Option) (*Plugin, error) {
	tb.Helper()
	settings := newSettings(opts)
	in, err := startInner(spec, how{})
	if err != nil {
		return nil, err
	}
	p := &Plugin{inner: in, session: &session{settings: settings, plugin: in}}
	tb.Cleanup(p.session.close)
	ctx := tb.Context()
	if err := p.session.awaitHandshake(ctx); err != nil {
		return nil, err
	}
	if err := p.session.connect(); err != nil {
		return nil, err
	}
	described, err := p.session.describe(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := p.session.configure(ctx, settings.request(described.GetEnvPatterns()))
	if err != nil {
		return nil, fmt.Errorf("configure: %w", err)
	}
	for _, d := range reply.GetDiagnostics() {
		p.warnings = append(p.warnings, Diagnostic{Error: isError(d), Path: d.GetPath(), Text: d.GetText()})
	}
	return p, nil
}

// Warnings are what the plugin said to its configuration.
func (p *Plugin) Warnings() []Diagnostic { return p.warnings }

// Export sends a batch as a host does and gives the plugin's answer. The error
// says that there was none, or that the request cannot be encoded; a batch
// that the plugin refuses is an answer. It blocks until the plugin answers, ctx
// ends or the patience of [WithPatience] is over.
func (p *Plugin) Export(ctx context.Context, request *coltracepb.ExportTraceServiceRequest) (Answer, error) {
	data, err := proto.Marshal(request)
	if err != nil {
		return Answer{}, fmt.Errorf("encode the request: %w", err)
	}
	b := p.numbers.of(request)
	b.data = data
	return p.session.export(ctx, b)
}

// Spans are what the exporter was given so far: all batches in the order in
// which they came, as the processors have left them. They are the caller's.
// Batches that were refused by a processor are not among them; those that the
// exporter refused are.
func (p *Plugin) Spans() []*tracepb.ResourceSpans {
	var all []*tracepb.ResourceSpans
	for _, encoded := range p.inner.tap.seen() {
		var data tracepb.TracesData
		if proto.Unmarshal(encoded, &data) == nil { // else the exporter was given bytes that are no spans
			all = append(all, data.GetResourceSpans()...)
		}
	}
	return all
}

// Flush asks the plugin to deliver what it holds back, and returns when it has.
func (p *Plugin) Flush(ctx context.Context) error {
	reply, err := p.session.flush(ctx)
	if err == nil && reply.GetSpansLeft() > 0 {
		err = fmt.Errorf("%d spans are left", reply.GetSpansLeft())
	}
	return err
}

// Shutdown ends the plugin as a host does: Shutdown, then the end of standard
// input. It gives the first error of both, and returns when Run of pluginsdk
// has.
func (p *Plugin) Shutdown(ctx context.Context) error {
	_, err := p.session.shutdown(ctx)
	p.inner.closeStdin()
	if waited := p.session.awaitEnd(ctx, p.session.patience); waited != nil {
		return errors.Join(err, waited)
	}
	return errors.Join(err, p.inner.exit())
}

// Stdout is what the plugin has printed on Setup.Stdout so far.
func (p *Plugin) Stdout() string { return string(p.inner.stdout.bytes()) }

// Log is the plugin's log so far: lines of JSON in the form of hclog.
func (p *Plugin) Log() string { return strings.ToValidUTF8(string(p.inner.log.bytes()), "\uFFFD") }
