package archtest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// namedModules are the modules that the product is built on by its promise: go.mod
// requires each directly, the package in by imports it outside tests, and the
// binary links that package by default.
var namedModules = []struct{ module, by, binary string }{
	{"github.com/hashicorp/go-plugin", "internal/launch", "examples/hello"},
	{"google.golang.org/grpc", "internal/launch", "examples/hello"},
	{"go.opentelemetry.io/otel", "tracing", "examples/hello"},
	{"go.opentelemetry.io/otel/sdk", "tracing", "examples/hello"},
	{"go.opentelemetry.io/otel/sdk", "host", "examples/hello"},
	{"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp", "plugins/otlp/otlpexporter", "plugins/otlp"},
	{"github.com/DataDog/dd-trace-go/v2", "plugins/datadog/datadogexporter", "plugins/datadog"},
}

// TestNamedModulesAreLinked holds the table.
func TestNamedModulesAreLinked(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	direct := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 { // an indirect one has a comment
			direct[fields[0]] = true
		}
	}
	packages := map[string]goPackage{}
	for _, p := range loadModule(t) {
		packages[p.dir] = p
	}
	for _, named := range namedModules {
		if !direct[named.module] {
			t.Errorf("go.mod does not require %s directly", named.module)
		}
		if !slices.ContainsFunc(packages[named.by].imports(false), func(name string) bool { return within(name, named.module) }) {
			t.Errorf("%s does not import %s outside tests", named.by, named.module)
		}
		linked := closure(packages, named.binary)
		if _, ok := linked[named.by]; !ok {
			t.Errorf("%s does not link %s, but %v", named.binary, named.by, slices.Sorted(maps.Keys(linked)))
		}
	}
}
