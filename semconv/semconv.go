// Package semconv holds every span name and attribute key that servetrace
// and its processors emit, as untyped string constants, so that a plugin can map a key to a
// vendor's tag without linking the runtime or an OpenTelemetry SDK.
//
// Span names are Ray Serve's in every mode. Keys are so in the mode "ray" of
// SERVE_TRACING_SEMCONV, which is the default (keys.go); "stable" has
// OpenTelemetry's of today, and Serve's own below "serve." (stable.go); "dup"
// has both. In every mode there are the keys that are marked so, and
// ResourceName.
//
// Each constant says its type, its unit where it has one, its allowed values,
// and the spans that carry it; "proxy", "router", "replica", "batch" and "model
// load" are the span families of names.go.
//
// The package builds no spans and holds no OpenTelemetry type. Open names.go
// first, then keys.go and stable.go.
package semconv
