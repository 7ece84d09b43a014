package archtest

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// importTable is the map of the repository: which packages of this module a
// package may import, in code that is not a test. A package without a row
// fails; a row may stand here before its package does.
//
// Dirs are relative to the module's root, as path.Match understands them; the
// first row that matches counts. "X/..." on the right stands for X and all
// below it, "public" for every package outside internal folders. A package may
// always import what lies below itself.
var importTable = []struct {
	dir string
	may []string
}{
	{dir: ".", may: []string{"host", "tracing", "serving", "admin", "internal/servicefile", "internal/stdio", "internal/logqueue", "internal/unread"}},
	{dir: "admin", may: []string{"host", "internal/total", "internal/printable", "internal/waterfall"}},
	{dir: "serving", may: []string{"tracing", "internal/spans/...", "semconv", "internal/spelling"}},
	// The two sides of a call between processes, and what they share.
	{dir: "serving/internal/callserver", may: []string{
		"internal/spans/...", "semconv", "internal/gen/servetrace/serve/v1", "serving/internal/router", "serving/internal/callwire", "serving/internal/cause",
		"serving/internal/inflight", "serving/internal/requestid",
	}},
	{dir: "serving/internal/callclient", may: []string{
		"tracing", "internal/spans/identity", "internal/gen/servetrace/serve/v1", "serving/internal/router", "serving/internal/callwire", "serving/internal/cause",
		"serving/internal/discovery",
	}},
	{dir: "serving/internal/callwire", may: []string{"internal/reread", "tracing", "internal/spans", "internal/gen/servetrace/serve/v1", "serving/internal/cause"}},
	{dir: "serving/internal/httpproxy", may: []string{
		"internal/spans/...", "semconv", "serving/internal/router", "serving/internal/accesslog", "serving/internal/cause", "serving/internal/inflight",
		"serving/internal/metrics", "serving/internal/requestid", "serving/internal/scope", "serving/internal/socket", "serving/internal/stall", "serving/internal/wsframe",
	}},
	// The generated code is of the service that the proxy answers itself.
	{dir: "serving/internal/grpcproxy", may: []string{
		"internal/spans/...", "semconv", "internal/gen/ray/serve", "serving/internal/router", "serving/internal/accesslog", "serving/internal/cause",
		"serving/internal/inflight", "serving/internal/metrics", "serving/internal/requestid",
	}},
	{dir: "serving/internal/router", may: []string{
		"tracing", "internal/spans/...", "semconv", "serving/internal/accesslog", "serving/internal/cause", "serving/internal/inflight", "serving/internal/metrics",
		"serving/internal/scope",
	}},
	{dir: "serving/internal/inflight", may: []string{"serving/internal/cause"}},
	{dir: "serving/internal/accesslog", may: []string{"tracing"}},
	{dir: "serving/internal/cause", may: []string{"tracing"}},
	{dir: "serving/internal/requestid"},
	{dir: "serving/internal/discovery"},
	{dir: "serving/internal/scope", may: []string{"tracing", "internal/spans/...", "serving/internal/metrics"}},
	{dir: "serving/internal/metrics"},
	// They run inside of handlers, of which serving knows nothing.
	{dir: "serving/batching", may: []string{"tracing", "internal/spans/...", "serving/internal/scope", "serving/internal/metrics"}},
	{dir: "serving/multiplexing", may: []string{"tracing", "internal/spans/...", "serving/internal/scope", "serving/internal/metrics"}},
	{dir: "serving/internal/socket", may: []string{"serving/internal/stall", "serving/internal/wsframe"}},
	{dir: "serving/internal/stall"},
	{dir: "serving/internal/wsframe"},
	// The identity stands apart from the span families, because the log handler, the
	// propagator and the stamp of package tracing read it.
	{dir: "tracing", may: []string{"semconv", "internal/spans/identity"}},
	{dir: "internal/spans", may: []string{"tracing", "semconv"}},
	{dir: "internal/spans/identity", may: []string{"semconv"}},
	{dir: "semconv"},
	{dir: "host", may: []string{
		"internal/total", "internal/launch", "internal/wire", "internal/settings", "internal/stdio", "internal/otlpwire/sdkspan", "internal/gen/...",
	}},
	// The supervisor sends the batches of the pipeline, which does not know it.
	{dir: "host/internal/supervise", may: []string{
		"host/internal/pipeline", "host/internal/failures", "host/internal/pluginlist", "host/internal/slowdisk",
		"internal/launch", "internal/stdio", "internal/wire", "internal/gen/...",
	}},
	{dir: "host/internal/pipeline", may: []string{"host/internal/failures", "host/internal/spool", "internal/wire", "internal/otlpwire", "internal/otlpwire/sdkspan"}},
	{dir: "host/internal/spool", may: []string{"host/internal/failures", "host/internal/slowdisk"}},
	{dir: "host/internal/failures", may: []string{"internal/total"}},
	{dir: "host/internal/pluginlist", may: []string{"host/internal/slowdisk", "internal/wire", "internal/spelling", "internal/yamlfile"}},
	{dir: "host/internal/slowdisk"},
	{dir: "relay", may: []string{"host", "admin", "internal/reread", "internal/localsocket", "internal/otlpjson", "internal/pywire", "internal/settings", "internal/wire"}},
	{dir: "internal/pywire", may: []string{"internal/otlpwire", "internal/otlpwire/field"}},
	{dir: "internal/launch", may: []string{"internal/wire", "internal/proctree", "internal/stdio", "internal/printable"}},
	{dir: "internal/proctree"},
	{dir: "internal/printable"},
	{dir: "internal/total"},
	{dir: "internal/progress"},
	{dir: "internal/stdio"},
	{dir: "internal/logqueue"},
	{dir: "internal/servicefile", may: []string{"internal/spelling", "internal/yamlfile"}},
	{dir: "internal/settings", may: []string{"internal/spelling"}},
	// A service and the relay warn alike. Package settings cannot: host imports it.
	{dir: "internal/unread", may: []string{"host", "internal/settings"}},
	{dir: "internal/spelling"},
	{dir: "internal/yamlfile"},
	{dir: "internal/wire", may: []string{"internal/gen/..."}},
	{dir: "internal/gen/servetrace/plugin/v1"},
	{dir: "internal/gen/servetrace/serve/v1"},
	{dir: "internal/gen/ray/serve"},
	{dir: "internal/otlpwire"},
	// The half that knows the SDK's spans stands apart, because pluginsdk links
	// internal/otlpwire and must not link the SDK.
	{dir: "internal/otlpwire/sdkspan", may: []string{"internal/otlpwire", "internal/otlpwire/field"}},
	{dir: "internal/otlpwire/field"},
	{dir: "internal/localsocket"},
	{dir: "internal/reread"},
	{dir: "internal/otlpjson"},
	{dir: "internal/waterfall", may: []string{"internal/otlpwire", "internal/stdio", "semconv"}},
	{dir: "pluginsdk", may: []string{"internal/wire", "internal/localsocket", "internal/proctree", "internal/otlpwire", "internal/yamlfile", "internal/gen/..."}},
	{dir: "pluginsdk/otelplugin", may: []string{"pluginsdk", "internal/otlpwire"}},
	{dir: "pluginsdk/processors", may: []string{"pluginsdk", "semconv"}},
	{dir: "pluginsdk/plugintest", may: []string{
		"pluginsdk", "internal/launch", "internal/otlpwire", "internal/wire", "internal/gen/...",
	}},
	{dir: "test/testplugin", may: []string{"pluginsdk"}},
	{dir: "test/recorded", may: []string{"tracing"}},
	{dir: "test/spancorpus"},
	{dir: "test/golden"},
	{dir: "test/servingtest"},
	{dir: "internal/archtest"},
	// One of its two modes is OTLP, to the agent.
	{dir: "plugins/datadog/datadogexporter", may: []string{"pluginsdk", "pluginsdk/processors", "plugins/otlp/otlpexporter"}},
	// Drawing gives it no power over the host that a third party lacks. The command line
	// and the status page draw alike.
	{dir: "plugins/console/consoleexporter", may: []string{"pluginsdk", "pluginsdk/processors", "semconv", "internal/waterfall"}},
	{dir: "plugins/*/*exporter", may: []string{"pluginsdk", "pluginsdk/processors", "semconv"}},
	{dir: "plugins/*", may: []string{"pluginsdk", "pluginsdk/processors"}},
	{dir: "cmd/servetrace", may: []string{
		".", "deploy/helm", "host", "admin", "relay", "pluginsdk/...", "tracing", "serving", "semconv", "internal/total", "internal/launch", "internal/printable", "internal/progress", "internal/wire", "internal/yamlfile", "internal/servicefile", "internal/settings",
		"internal/unread", "internal/spelling", "internal/logqueue", "internal/otlpjson", "internal/otlpwire/...", "internal/waterfall",
	}},
	{dir: "deploy/helm"},
	{dir: "cmd/servetrace-plugins", may: []string{"pluginsdk", "pluginsdk/processors", "plugins/..."}},
	{dir: "examples/*", may: []string{"public"}},
	{dir: "examples/grpc/translatev1"},
	// It plays two of its plugins, and runs everything else as an operator does.
	{dir: "test/hazard"},
	{dir: "test/hazards", may: []string{"internal/progress", "test/hazard"}},
	{dir: "test/size"},
	{dir: "test/spans"},  // a comment, and tests
	{dir: "test/mixed"},  // the same
	{dir: "test/remote"}, // the same
	{dir: "test/ray"},    // the same
	{dir: "test/seeds"},  // the same
	{dir: "test/chaos", may: []string{"pluginsdk", "semconv", "internal/progress", "internal/total"}},
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, p := range loadModule(t) {
		if !p.hasCode() {
			continue
		}
		row := rowOf(t, p.dir)
		if row < 0 {
			t.Errorf("%s: no row in importTable: say there what it may import, and why in the design", p.dir)
			continue
		}
		for _, importPath := range p.imports(false) {
			if dir, ours := internalDir(importPath); ours && !allowed(p.dir, dir, importTable[row].may) {
				t.Errorf("%s imports %s: its row allows only [%s]", p.dir, dir, strings.Join(importTable[row].may, " "))
			}
		}
	}
}

// rowOf returns the index of the first row for dir, or -1.
func rowOf(tb testing.TB, dir string) int {
	tb.Helper()
	for i, row := range importTable {
		match, err := path.Match(row.dir, dir)
		if err != nil {
			tb.Fatalf("row %q of importTable: %v", row.dir, err)
		}
		if match {
			return i
		}
	}
	return -1
}

// allowed reports whether the package in from may import the package in dir.
func allowed(from, dir string, may []string) bool {
	if from != "." && strings.HasPrefix(dir, from+"/") {
		return true
	}
	return slices.ContainsFunc(may, func(entry string) bool {
		if entry == "public" {
			return !strings.HasPrefix(dir, "internal/") && !strings.Contains(dir, "/internal/")
		}
		if parent, tree := strings.CutSuffix(entry, "/..."); tree {
			return within(dir, parent)
		}
		return dir == entry
	})
}

// within reports whether a path is parent or below it.
func within(name, parent string) bool {
	return name == parent || strings.HasPrefix(name, parent+"/")
}

// TestAllowed tests rules of the table that the present tree does not break.
func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		from, dir string
		may       []string
		want      bool
	}{
		{"host", "internal/wire", []string{"internal/wire"}, true},
		{"host", "internal/wire/x", []string{"internal/wire"}, false},
		{"host", "internal/gen/a/v1", []string{"internal/gen/..."}, true},
		{"host", "internal/generator", []string{"internal/gen/..."}, false},
		{"host", "serving", nil, false},
		{"plugins/console", "plugins/console/consoleexporter", nil, true},
		{"plugins/console", "plugins/otlp/otlpexporter", nil, false},
		{".", "tracing", nil, false},
		{"examples/hello", ".", []string{"public"}, true},
		{"examples/hello", "serving", []string{"public"}, true},
		{"examples/hello", "internal/wire", []string{"public"}, false},
		{"examples/hello", "host/internal/x", []string{"public"}, false},
	} {
		if got := allowed(c.from, c.dir, c.may); got != c.want {
			t.Errorf("allowed(%q, %q, %q) = %v, want %v", c.from, c.dir, c.may, got, c.want)
		}
	}
}

// closureRules forbid imports to a package and to everything of this module
// that it imports, directly or not, in code that is not a test.
var closureRules = []struct {
	dir string
	// not are import paths, each with all below it.
	not []string
	why string
}{
	{
		dir: "pluginsdk",
		not: []string{
			"go.opentelemetry.io/otel/sdk", "github.com/hashicorp/go-plugin", "github.com/prometheus", modulePath + "/serving",
		},
		why: "a plugin is small: it links neither the SDK nor go-plugin, and knows no runtime",
	},
	{
		dir: "host",
		not: []string{modulePath + "/serving", modulePath + "/tracing", modulePath + "/admin", "github.com/prometheus"},
		why: "the host serves any Go program with an OpenTelemetry SDK, also one without a status page",
	},
	{
		dir: "tracing",
		not: []string{modulePath + "/host", "github.com/hashicorp/go-plugin", "google.golang.org/grpc"},
		why: "tracing and host know each other only through sdktrace.SpanProcessor",
	},
}

func TestClosuresStayFree(t *testing.T) {
	packages := map[string]goPackage{}
	for _, p := range loadModule(t) {
		packages[p.dir] = p
	}
	for _, rule := range closureRules {
		if _, there := packages[rule.dir]; !there {
			t.Errorf("closure rule for %q matches no package", rule.dir)
			continue
		}
		for dir, trail := range closure(packages, rule.dir) {
			for _, importPath := range packages[dir].imports(false) {
				for _, not := range rule.not {
					if within(importPath, not) {
						t.Errorf("%s imports %s (%s): %s", strings.Join(trail, " -> "), importPath, rule.dir, rule.why)
					}
				}
			}
		}
	}
}

// closure returns each package of the module that start imports, directly or not,
// including start, with the path of imports to it.
func closure(packages map[string]goPackage, start string) map[string][]string {
	trails := map[string][]string{start: {start}}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		for _, importPath := range packages[queue[0]].imports(false) {
			dir, ours := internalDir(importPath)
			if _, seen := trails[dir]; !ours || seen {
				continue
			}
			trails[dir] = append(slices.Clone(trails[queue[0]]), dir)
			queue = append(queue, dir)
		}
	}
	return trails
}

// keeperRules name the only packages that may import something.
var keeperRules = []struct {
	// imported is an import path, with all below it.
	imported string
	// by are packages, each with all below it; tests count where tests is set.
	by    []string
	tests bool
	why   string
}{
	{
		// The test plugin serves as a stock go-plugin program does, for launch to
		// prove that it takes one.
		imported: "github.com/hashicorp/go-plugin", by: []string{"internal/launch", "test/testplugin"},
		why: "internal/launch is the only user of go-plugin's client side",
	},
	{
		imported: "github.com/DataDog", by: []string{"plugins/datadog/datadogexporter"},
		why: "only who asks for Datadog links what is Datadog's",
	},
	{
		// test/servingtest reads the metrics of serving for tests.
		imported: "github.com/prometheus", by: []string{"admin", "serving", "test/servingtest"},
		why: "the metrics show the host's delivery accounting and the counts of serving, each in one place",
	},
	{
		// The OTLP exporter reads the codes of back ends, and gives those of HTTP
		// one for the delivery accounting. Package pluginsdk decides which are final. The gRPC proxy
		// gives codes to clients, and so do the relay and the examples' services.
		imported: "google.golang.org/grpc/codes", by: []string{"internal/wire", "internal/gen", "plugins/otlp", "relay", "serving", "examples/grpc", "examples/instrumented"},
		why: "gRPC codes of the plugins' contract are known in internal/wire, in one table",
	},
	{
		imported: modulePath + "/internal/archtest", tests: true,
		why: "it has nothing to give",
	},
	{
		imported: modulePath + "/test/testplugin", by: []string{"test/testplugin"},
		why: "it is for tests",
	},
	{
		imported: modulePath + "/test/spancorpus", by: []string{"test/spancorpus"},
		why: "it is for tests",
	},
}

func TestImportedByKeepersOnly(t *testing.T) {
	for _, p := range loadModule(t) {
		for _, rule := range keeperRules {
			if slices.ContainsFunc(rule.by, func(keeper string) bool { return within(p.dir, keeper) }) {
				continue
			}
			for _, importPath := range p.imports(rule.tests) {
				if within(importPath, rule.imported) {
					t.Errorf("%s imports %s: %s", p.dir, importPath, rule.why)
				}
			}
		}
	}
}

// TestServingIsAboveHostAndSDK also reads tests: a test of host or pluginsdk
// that needs the runtime belongs to the root package or to an example.
func TestServingIsAboveHostAndSDK(t *testing.T) {
	for _, p := range loadModule(t) {
		if !within(p.dir, "host") && !within(p.dir, "pluginsdk") {
			continue
		}
		for _, importPath := range p.imports(true) {
			if dir, ours := internalDir(importPath); ours && within(dir, "serving") {
				t.Errorf("%s imports %s, tests included: host and pluginsdk never know serving", p.dir, dir)
			}
		}
	}
}
