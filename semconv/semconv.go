// Package semconv has every span name and attribute key that the runtime and its processors
// use, as untyped string constants. So a plugin can map a key to a vendor's tag without
// linking the runtime or an OpenTelemetry SDK.
//
// Span names are Ray Serve's. The keys depend on a mode, which SERVE_TRACING_SEMCONV sets. The
// default mode "ray" has Ray's keys (keys.go). The mode "stable" has OpenTelemetry's current
// keys, and Serve's own keys with the prefix "serve." (stable.go). The mode "dup" has both.
// Keys marked "in every mode", and ResourceName, do not depend on the mode.
//
// The comment of each constant gives its type, its unit if it has one, its allowed
// values, and its spans. "Proxy", "router", "replica", "batch" and "model load" are the
// span families of names.go.
//
// The package builds no spans and holds no OpenTelemetry type. Open names.go first,
// then keys.go and stable.go.
package semconv
