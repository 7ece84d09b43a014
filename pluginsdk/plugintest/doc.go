// Package plugintest tests exporter plugins: a whole one inside a Go test, a
// processor alone, and any binary, in any language, against every rule of the
// contract between host and plugin (proto/servetrace/plugin/v1/plugin.proto).
package plugintest
