package otlpexporter

import "runtime/debug"

// userAgent is the User-Agent of all requests: exporter, version and language, as the
// specification requires:
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/#user-agent
var userAgent = "servetrace-otlp-exporter/" + version() + " (Go)"

// version returns the module's version in this binary, or "unknown".
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
