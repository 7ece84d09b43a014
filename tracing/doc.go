// Package tracing configures the OpenTelemetry SDK for a serving runtime and for user
// code inside of it. It holds the provider with its sampler, limits and resource, and the
// propagation of trace context and baggage. It also has a log handler that adds the
// request and trace ids.
//
// The life of a Provider:
//
//  1. ConfigFromEnv reads the settings; Validate returns all errors at once.
//  2. NewProvider builds it around the given span processors (the host is a
//     processor). If there is no processor, or tracing is disabled, it is off: it
//     makes no spans, and still propagates context.
//  3. For each request, Extract reads the inbound context. The first span of a trace
//     makes the sampling decision; all other spans inherit it. The runtime's own spans
//     come from internal/spans.
//  4. Every recording span inside a request, including spans of user code, is stamped
//     with the request's identity when it starts. The propagator for user code
//     (Propagator) knows the request, too, so that libraries that trace a handler need
//     no configuration.
//  5. Shutdown, called once, shuts the processors down.
//
// The context is the only carrier: there is no stack of spans, nothing is attached to a
// goroutine, and nothing has to be detached.
//
// The package does not export, queue or encode spans (a span processor does). It does
// not set OpenTelemetry's globals (the root package does). It reads no requests and
// writes no responses. Open provider.go first, then consistentsampler.go.
package tracing
