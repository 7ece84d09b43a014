package recipe

import "slices"

// Versions that no file of this module pins.
const (
	builderVersion      = "v0.161.0"
	telemetrygenVersion = "v0.161.0"
	grpcurlVersion      = "v1.9.4"
	conformanceVersion  = "v1.0.7" // and in connect/go.mod
	kosokuVersion       = "0.1.0"
)

// All lists the recipes in the order that they are built in, one after
// another: each takes all cores.
func All() []Recipe {
	return slices.Concat(backEnds(), suites(), slowest())
}

// backEnds lists back ends, load generators and clients.
func backEnds() []Recipe {
	return []Recipe{
		{
			// The builder writes the main package and its go.mod; we compile, so
			// that the flags are ours.
			Name:  "otelcol",
			Files: []string{"otelcol/builder.yaml"},
			Commands: []Command{
				{Dir: "{work}", Args: []string{
					"go", "run", "go.opentelemetry.io/collector/cmd/builder@" + builderVersion,
					"--config", "{module}/otelcol/builder.yaml", "--skip-compilation",
				}},
				goBuild("{work}/src", "otelcol", "."),
			},
		},
		{
			// A module of its own, so that its dependencies stay out of this one.
			Name:     "ddagent",
			Files:    []string{"ddagent/*.go", "ddagent/go.mod", "ddagent/go.sum"},
			Commands: []Command{goBuild("{module}/ddagent", "ddagent", ".")},
		},
		{
			Name:     "telemetrygen",
			Commands: []Command{goInstall("github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen@" + telemetrygenVersion)},
		},
		{
			// The packages for the scripts of folder node. Install scripts do not run, and
			// optional packages are for features that they lack.
			Name:  "node",
			Files: []string{"node/package.json", "node/package-lock.json"},
			Commands: []Command{
				{Dir: "{out}", Args: []string{"cp", "{module}/node/package.json", "{module}/node/package-lock.json", "."}},
				{Dir: "{out}", Args: []string{"npm", "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"}},
			},
			Needs:    []string{"node", "npm"},
			Optional: true,
		},
		{
			// The packages of browsers, and a web socket client of another make.
			Name:  "web",
			Files: []string{"web/package.json", "web/package-lock.json"},
			Commands: []Command{
				{Dir: "{out}", Args: []string{"cp", "{module}/web/package.json", "{module}/web/package-lock.json", "."}},
				{Dir: "{out}", Args: []string{"npm", "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"}},
			},
			Needs:    []string{"node", "npm"},
			Optional: true,
		},
	}
}

// suites lists the conformance suites, and grpcurl.
func suites() []Recipe {
	return []Recipe{
		{
			// Its module pins the versions that its tag, which is older than modules, does not.
			Name:     "h2spec",
			Files:    []string{"h2spec/go.mod", "h2spec/go.sum"},
			Commands: []Command{goBuild("{module}/h2spec", "h2spec", "github.com/summerwind/h2spec/cmd/h2spec")},
		},
		{
			Name:     "grpcurl",
			Commands: []Command{goInstall("github.com/fullstorydev/grpcurl/cmd/grpcurl@" + grpcurlVersion)},
		},
		{
			// Connect's conformance suite. The test builds the server under test
			// from folder connect; its modules are fetched here.
			Name:  "connectconformance",
			Files: []string{"connect/go.mod", "connect/go.sum"},
			Commands: []Command{
				goInstall("connectrpc.com/conformance/cmd/connectconformance@" + conformanceVersion),
				{Dir: "{module}/connect", Args: []string{"go", "build", "-o", "{work}/server", "."}},
			},
		},
		{
			// Autobahn's web socket cases with a runner for Python 3: Autobahn's
			// own needs Python 2. A wheel in a plain folder, because a virtual
			// environment cannot be moved.
			Name: "kosoku",
			Commands: []Command{{Dir: "{out}", Args: []string{
				"python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
				"--only-binary", ":all:", "--no-deps", "--no-compile", "--target", "{out}", "kosoku==" + kosokuVersion,
			}}},
			Needs:    []string{"python3"},
			Optional: true,
		},
	}
}

// slowest lists the recipe that takes longest.
func slowest() []Recipe {
	return []Recipe{
		{
			// Jaeger 2, which is released as command jaeger of the module's version 1. The
			// recipe's module has Jaeger's dependencies, with the checksums of Jaeger's own
			// go.sum: not all of them can be looked up.
			Name:     "jaeger",
			Files:    []string{"jaeger/go.mod", "jaeger/go.sum"},
			Commands: []Command{goBuild("{module}/jaeger", "jaeger", "github.com/jaegertracing/jaeger/cmd/jaeger")},
			Optional: true,
		},
	}
}

// goBuild compiles the package of a module in dir, by its go.sum and without any go.work
// around it.
func goBuild(dir, name, pkg string) Command {
	return Command{Dir: dir, Args: []string{
		"go", "build", "-trimpath", "-ldflags=-s -w", "-o", "{out}/" + name, pkg,
	}}
}

// goInstall compiles a package of a released module, as that module's go.mod
// says.
func goInstall(pkg string) Command {
	return Command{Dir: "{work}", Args: []string{"go", "install", "-trimpath", "-ldflags=-s -w", pkg}}
}
