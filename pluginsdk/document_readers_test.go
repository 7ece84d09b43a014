package pluginsdk_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// reads is a processor that decodes the keys of T, and does nothing.
func reads[T any](name string) pluginsdk.NewProcessor {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
		var v T
		if err := s.DecodeConfig(&v); err != nil {
			return nil, err
		}
		return pluginsdk.ProcessorFunc(name, func(context.Context, *pluginsdk.Batch) error { return nil })(ctx, s)
	}
}

// The constructors of a plugin share its configuration. A key that no constructor reads
// is refused, because a list of processors must not be ignored.
func TestDocumentIsShared(t *testing.T) {
	type ratio struct{ Ratio float64 }
	type rest struct {
		Team  string
		Other map[string]any `yaml:",inline"`
	}
	spec := func(processors ...pluginsdk.NewProcessor) pluginsdk.Spec {
		return pluginsdk.Spec{Name: "shares", Processors: processors, Exporter: func(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), nil
		}}
	}
	a, b := reads[struct{ Exporter struct{ Format string } }]("a"), reads[ratio]("b")
	for _, c := range []struct {
		name     string
		spec     pluginsdk.Spec
		document string
		want     []string // "path: text"
	}{
		{"each its own", spec(a, b), "exporter: {format: x}\nratio: 1", nil},
		{"nobody's", spec(a, b), "ratio: 1\nraito: 2\n", []string{`raito: line 2: unknown key "raito", want one of exporter, ratio`}},
		{"nobody's, reserved and empty", spec(b), "ratio: 1\nprocessors: []\nexporter:\n", nil},
		{"nobody's and empty", spec(a), "redact: {}\nmore:\n", []string{ // {} may be meant as a processor with its defaults
			`redact: line 1: unknown key "redact", want one of exporter`, `more: line 2: unknown key "more", want one of exporter`}},
		{"wrong in one", spec(a, b), "ratio: much\nexporter: {form: x}", []string{
			`exporter.form: line 2: unknown key "form", want one of format`, `ratio: line 1: "much", want a number`}},
		{"no YAML, told once", spec(a, b), "a: b: c", []string{
			": line 1: not YAML: mapping values are not allowed in this context: look at the indentation, and put a value with a colon and a space in quotes"}},
		{"no mapping", spec(b), "[ratio]", []string{": line 1: a list, want a mapping of ratio"}},
		{"nobody reads any", spec(), "ratio: 1", []string{": the plugin reads no configuration, so the configuration has no effect: remove it"}},
		{"nobody reads any, and it is empty", spec(), "# nothing\n", nil},
		{"one takes all", spec(b, reads[rest]("c")), "ratio: 1\nwhatever: 2", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := startRun(t, c.spec)
			answer, err := r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{Config: []byte(c.document)})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range answer.GetDiagnostics() {
				got = append(got, d.GetPath()+": "+d.GetText())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
		})
	}
}

// The host counts by names, in a trailer "NAME=COUNT".
func TestNamesOfProcessors(t *testing.T) {
	first := func(name, drop string) pluginsdk.NewProcessor {
		return pluginsdk.EachSpan(name, func(s pluginsdk.Span) error {
			if s.Name() == drop {
				s.Drop()
			}
			return nil
		})
	}
	exporter := func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
		return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), nil
	}
	r := startRun(t, pluginsdk.Spec{
		Name:       "names",
		Processors: []pluginsdk.NewProcessor{first("drop", "a"), first("drop", "b"), first("drop-2", "c"), first("drop", "d")},
		Exporter:   exporter,
	})
	r.configure(t, nil)
	var trailer metadata.MD
	if _, err := r.traces.Export(t.Context(), named("a", "b", "c", "d", "e"), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	want := []string{"drop=1", "drop-2=1", "drop-2-2=1", "drop-3=1"}
	if diff := cmp.Diff(want, trailer.Get(wire.MetaFiltered)); diff != "" {
		t.Errorf("filtered (-want +got):\n%s", diff)
	}

	r = startRun(t, pluginsdk.Spec{
		Name:       "names",
		Processors: []pluginsdk.NewProcessor{first("status=ok", ""), first("drop secrets", "")},
		Exporter:   exporter,
	})
	answer, err := r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range answer.GetDiagnostics() {
		got = append(got, d.GetText())
	}
	const advice = " has a character that the delivery accounting cannot have: use letters, digits, dots, dashes and underscores"
	if diff := cmp.Diff([]string{`the processor name "status=ok"` + advice, `the processor name "drop secrets"` + advice}, got); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
}
