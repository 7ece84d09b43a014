package pluginsdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// dropper drops the spans of one name, and records its shutdown.
type dropper struct {
	drops, name string
	out         io.Writer
}

func (d *dropper) Name() string { return d.name }

func (d *dropper) Process(_ context.Context, b *pluginsdk.Batch) error {
	for span := range b.Spans() {
		switch span.Name() {
		case d.drops:
			span.Drop()
		case "fail in " + d.drops:
			return errors.New("cannot")
		}
	}
	return nil
}

func (d *dropper) Shutdown(context.Context) error {
	_, err := io.WriteString(d.out, d.drops+" ends\n")
	return err
}

// chainSpec is a Spec of chains; a part without a name is named by its place.
func chainSpec(out io.Writer) pluginsdk.Spec {
	one := func(drops, name string) pluginsdk.Processor { return &dropper{drops, name, out} }
	made := func(p pluginsdk.Processor) pluginsdk.NewProcessor {
		return func(context.Context, pluginsdk.Setup) (pluginsdk.Processor, error) { return p, nil }
	}
	return pluginsdk.Spec{
		Name: "chains",
		Processors: []pluginsdk.NewProcessor{
			made(pluginsdk.Chain{}),
			made(pluginsdk.Chain{
				one("a", "first"), one("b", ""),
				pluginsdk.Chain{one("c", "inner"), pluginsdk.Chain(nil), one("d", "")},
			}),
			made(one("e", "")),
		},
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
				for span := range b.Spans() {
					fmt.Fprintln(out, "got", span.Name())
				}
				return nil
			}), nil
		},
	}
}

func TestChainIsUnfolded(t *testing.T) {
	out := &output{}
	r := startRun(t, chainSpec(out))
	r.configure(t, nil)
	for _, c := range []struct {
		spans    []string
		filtered []string
		message  string
	}{
		{[]string{"a", "b", "c", "d", "e", "a", "left"}, []string{"first=2", "processor-2.2=1", "inner=1", "processor-2.3.3=1", "processor-3=1"}, ""},
		{[]string{"a", "c"}, []string{"first=1", "inner=1"}, ""},
		{[]string{"a", "fail in d"}, nil, `processor "processor-2.3.3": cannot`},
	} {
		var trailer metadata.MD
		_, err := coltracepb.NewTraceServiceClient(r.conn).Export(t.Context(), named(c.spans...), grpc.Trailer(&trailer))
		if d := cmp.Diff(c.filtered, trailer.Get(wire.MetaFiltered)); d != "" {
			t.Errorf("%q: filtered (-want +got):\n%s", c.spans, d)
		}
		if c.message == "" && err != nil || c.message != "" && (err == nil || !strings.HasSuffix(err.Error(), c.message)) {
			t.Errorf("%q: error is %v, want %q", c.spans, err, c.message)
		}
	}
	r.end()
	if got, want := out.String(), "got left\ne ends\nd ends\nc ends\nb ends\na ends\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

func TestChainWithANilPartIsRefused(t *testing.T) {
	out := &output{}
	spec := chainSpec(out)
	spec.Processors = append(spec.Processors, func(context.Context, pluginsdk.Setup) (pluginsdk.Processor, error) {
		return pluginsdk.Chain{nil, &dropper{"f", "", out}, pluginsdk.Chain{nil}}, nil
	})
	r := startRun(t, spec)
	answer, err := r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, d := range answer.GetDiagnostics() {
		texts = append(texts, d.GetText())
	}
	want := []string{"processor 4: part 4.1 of a chain is nil", "processor 4: part 4.3.1 of a chain is nil"}
	if d := cmp.Diff(want, texts); d != "" {
		t.Errorf("diagnostics (-want +got):\n%s", d)
	}
	if got := out.String(); !strings.HasPrefix(got, "f ends\ne ends\n") {
		t.Errorf("what was built is not released: %q", got)
	}
}

// TestChainByItself tests the methods of a Chain that is not unfolded.
func TestChainByItself(t *testing.T) {
	out := &output{}
	one := func(drops string) pluginsdk.Processor { return &dropper{drops, "", out} }
	for _, c := range []struct {
		spans []string
		left  int
		want  string
	}{
		{[]string{"a", "b", "left"}, 1, ""},
		{[]string{"a", "fail in b"}, 1, "cannot"},
		{[]string{"a"}, 0, ""},
	} {
		seen := 0
		chain := pluginsdk.Chain{one("a"), one("b"), processorFunc(func(*pluginsdk.Batch) { seen++ })}
		batch := pluginsdk.NewBatch(encode(t, named(c.spans...)))
		err := chain.Process(t.Context(), batch)
		if got := fmt.Sprint(err); got != c.want && (err != nil || c.want != "") {
			t.Errorf("%q: error is %v, want %q", c.spans, err, c.want)
		}
		if reached := c.left > 0 && c.want == ""; batch.Len() != c.left || (seen == 1) != reached {
			t.Errorf("%q: %d spans left, want %d; the last part was called %d times", c.spans, batch.Len(), c.left, seen)
		}
	}
	if err := (pluginsdk.Chain{one("a"), processorFunc(nil), one("b")}).Shutdown(t.Context()); err != nil || out.String() != "b ends\na ends\n" {
		t.Errorf("Shutdown: %v, said %q", err, out)
	}
	malformed := pluginsdk.NewBatch([]byte{0x0a, 0x7f})
	if err := (pluginsdk.Chain{one("a")}).Process(t.Context(), malformed); err == nil || !strings.HasPrefix(err.Error(), "malformed batch: ") {
		t.Errorf("malformed batch: %v", err)
	}
}

// processorFunc is a processor without a name.
type processorFunc func(*pluginsdk.Batch)

func (f processorFunc) Process(_ context.Context, b *pluginsdk.Batch) error {
	f(b)
	return nil
}
