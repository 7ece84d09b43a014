package shapes

import (
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// rewriting is the name by which this test binary is a plugin: the stock
// exporter behind a processor that writes everything anew, as it is.
const rewriting = "rewriting"

var rewritingSpec = pluginsdk.Spec{
	Name:       rewriting,
	Env:        otlpexporter.EnvPatterns(),
	Processors: []pluginsdk.NewProcessor{pluginsdk.EachSpan("rewrite", rewrite)},
	Exporter:   otlpexporter.New,
}

// rewrite decodes and sets all values that can be set, so that nothing of the span, its
// scope and its resource is copied from the input.
func rewrite(s pluginsdk.Span) error {
	s.SetName(s.Name())
	s.SetStatus(s.Status())
	setAgain(s)
	for e := range s.Events() {
		e.SetName(e.Name())
		setAgain(e)
	}
	for l := range s.Links() {
		setAgain(l)
	}
	setAgain(s.Resource())
	setAgain(s.Scope())
	return nil
}

// setAgain sets each attribute to its own value. It leaves out a key that is there twice,
// because setting it would remove one.
func setAgain(owner interface {
	Attributes() iter.Seq[attribute.KeyValue]
	SetAttributes(kvs ...attribute.KeyValue)
},
) {
	times := map[attribute.Key]int{}
	kvs := slices.Collect(owner.Attributes())
	for _, kv := range kvs {
		times[kv.Key]++
	}
	for _, kv := range kvs {
		if times[kv.Key] == 1 {
			owner.SetAttributes(kv)
		}
	}
}

// rewritingPlugin gives the path of the plugin.
func rewritingPlugin(tb testing.TB) string {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), rewriting)
	if err := os.Symlink(exe, path); err != nil {
		tb.Fatal(err)
	}
	return path
}
