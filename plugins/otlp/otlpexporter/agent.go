package otlpexporter

import "runtime/debug"

// userAgent is what back ends are told of who calls: exporter, version and
// language, as the specification wants:
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/#user-agent
var userAgent = "servetrace-otlp-exporter/" + version() + " (Go)"

// version is that of the module, as the Go tool linked it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == "github.com/servetrace/servetrace" && m.Version != "" {
			return m.Version
		}
	}
	return "unknown"
}
