package pluginsdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/pluginsdk"
)

// diary records the calls of a plugin's parts, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, ", ")
}

// part is a processor and an exporter that writes a diary.
type part struct {
	name  string
	diary *diary
}

func (p *part) Name() string { return p.name }

func (p *part) Process(context.Context, *pluginsdk.Batch) error {
	p.diary.note("process " + p.name)
	return nil
}

func (p *part) Export(context.Context, *pluginsdk.Batch) error {
	p.diary.note("export " + p.name)
	return nil
}

func (p *part) Shutdown(context.Context) error {
	p.diary.note("shut down " + p.name)
	if p.name == "b" {
		return errors.New("stuck")
	}
	return nil
}

func (d *diary) processor(name string, fault error) pluginsdk.NewProcessor {
	return func(context.Context, pluginsdk.Setup) (pluginsdk.Processor, error) {
		d.note("make " + name)
		return &part{name, d}, fault
	}
}

func (d *diary) exporter(fault error) pluginsdk.NewExporter {
	return func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
		d.note("make exporter")
		return &part{"exporter", d}, fault
	}
}

func TestPartsAreUsedInOrderAndClosedInReverse(t *testing.T) {
	d := &diary{}
	r := startRun(t, pluginsdk.Spec{
		Name:       "parts",
		Processors: []pluginsdk.NewProcessor{d.processor("a", nil), d.processor("b", nil)},
		Exporter:   d.exporter(nil),
	})
	r.configure(t, nil)
	if _, err := r.traces.Export(t.Context(), named("x")); err != nil {
		t.Fatal(err)
	}
	r.terminate()
	if err, want := r.wait(), `shut down processor "b": stuck`; err == nil || err.Error() != want {
		t.Errorf("end: %v, want %s", err, want)
	}
	want := "make a, make b, make exporter, process a, process b, export exporter, " +
		"shut down exporter, shut down b, shut down a"
	if got := d.String(); got != want {
		t.Errorf("diary is %s\nwant %s", got, want)
	}
}

func TestEveryConstructorRunsAndWhatIsBuiltIsReleased(t *testing.T) {
	d := &diary{}
	r := startRun(t, pluginsdk.Spec{
		Name: "parts",
		Processors: []pluginsdk.NewProcessor{
			d.processor("a", nil),
			d.processor("c", &pluginsdk.ConfigError{Path: "C", Err: errors.New("is odd")}),
		},
		Exporter: d.exporter(errors.New("no key")),
	})
	answer, err := r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := []*pluginv1.Diagnostic{
		{Severity: pluginv1.Severity_SEVERITY_ERROR, Path: "C", Text: "is odd"},
		{Severity: pluginv1.Severity_SEVERITY_ERROR, Text: "no key"},
	}
	if diff := cmp.Diff(want, answer.GetDiagnostics(), protocmp.Transform()); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
	if got, want := d.String(), "make a, make c, make exporter, shut down a"; got != want {
		t.Errorf("diary is %s\nwant %s", got, want)
	}
}

// noCausesError is an error that has several causes in principle.
type noCausesError struct{}

func (noCausesError) Error() string   { return "settings are odd" }
func (noCausesError) Unwrap() []error { return nil }

func TestConstructorsErrorIsShownWhole(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	for _, test := range []struct {
		fault error
		want  []string
	}{
		{errors.Join(a, b), []string{"a", "b"}},
		{errors.Join(a, fmt.Errorf("c: %w", b)), []string{"a", "c: b"}},
		{fmt.Errorf("read ca.pem: %w: %w", a, b), []string{"read ca.pem: a: b"}},
		{fmt.Errorf("read ca.pem: %w", errors.Join(a, b)), []string{"read ca.pem: a\nb"}},
		{errors.New("no folder \xe4\xf6"), []string{"no folder \uFFFD"}},
		{noCausesError{}, []string{"settings are odd"}},
	} {
		d := &diary{}
		r := startRun(t, pluginsdk.Spec{Name: "parts", Exporter: d.exporter(test.fault)})
		answer, err := r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, diagnostic := range answer.GetDiagnostics() {
			got = append(got, diagnostic.GetText())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v: diagnostics (-want +got):\n%s", test.fault, diff)
		}
	}
}

// TestEndWhileConstructing ends the plugin before its exporter is built: it is
// released all the same.
func TestEndWhileConstructing(t *testing.T) {
	d := &diary{}
	entered, release := make(chan struct{}), make(chan struct{})
	slow := func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		close(entered)
		<-release
		return d.exporter(nil)(ctx, s)
	}
	r := startRun(t, pluginsdk.Spec{Name: "slow", Exporter: slow})
	answers := make(chan error, 1)
	go func() {
		_, err := r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{})
		answers <- err
	}()
	<-entered
	r.terminate()
	r.stderr.await(t, "plugin stops")
	close(release)
	if err := receive(t, answers, "the answer to Configure"); err != nil {
		t.Errorf("Configure: %v", err)
	}
	if err := r.wait(); err != nil {
		t.Errorf("end: %v", err)
	}
	if got, want := d.String(), "make exporter, shut down exporter"; got != want {
		t.Errorf("diary is %s\nwant %s", got, want)
	}
}
