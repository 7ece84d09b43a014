package pluginsdk_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
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

// The constructors of a plugin share its document, and what nobody reads is
// refused: a list of processors must not go unheard.
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
		{"nobody's and empty", spec(a), "ratio:\nprocessors: []\nmore: {}\n", nil},
		{"wrong in one", spec(a, b), "ratio: much\nexporter: {form: x}", []string{
			`exporter.form: line 2: unknown key "form", want one of format`, `ratio: line 1: "much", want a number`}},
		{"no YAML, told once", spec(a, b), "a: b: c", []string{
			": no YAML: mapping values are not allowed in this context: look at the indentation, and put a value with a colon and a space in quotes"}},
		{"no mapping", spec(b), "[ratio]", []string{": line 1: a list, want a mapping of ratio"}},
		{"nobody reads any", spec(), "ratio: 1", []string{": the plugin reads no configuration document, so this one has no effect: remove it"}},
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
	named := func(name string) pluginsdk.NewProcessor {
		return pluginsdk.EachSpan(name, func(pluginsdk.Span) error { return nil })
	}
	r := startRun(t, pluginsdk.Spec{
		Name:       "names",
		Processors: []pluginsdk.NewProcessor{named("ok"), named("ok"), named("status=ok"), named("drop secrets")},
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), nil
		},
	})
	answer, err := r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range answer.GetDiagnostics() {
		got = append(got, d.GetText())
	}
	const advice = " has a character that the books can not have: use letters, digits, dots, dashes and underscores"
	want := []string{
		`two processors are named "ok": give one another name, for the host counts by it`,
		`the processor name "status=ok"` + advice,
		`the processor name "drop secrets"` + advice,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
}
