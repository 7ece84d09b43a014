// Package tracing makes spans by the OpenTelemetry SDK, for a serving runtime and for
// user code inside of it: the provider with its sampler, limits and resource; trace
// context and baggage in and out; and a log handler that names request and trace.
//
// The life of a Provider:
//
//  1. ConfigFromEnv reads the settings; Validate reports every fault at once.
//  2. NewProvider builds it around the given span processors (the host is one).
//     Without a processor, or disabled, it is off: no spans, and context is
//     still propagated.
//  3. For each request, Extract reads the context that came with it. The sampling
//     decision falls once, at the first span of a trace; what follows inherits it.
//     The runtime's own spans come of internal/spans.
//  4. Every recording span inside a request, those of user code included, is stamped
//     with the request's identity when it starts. The propagator for user code
//     (Propagator) knows the request too, so that libraries which trace a handler need
//     no care.
//  5. Shutdown, once, shuts the processors down.
//
// The context is the only carrier: there is no stack of spans, nothing is attached to
// a goroutine, and nothing has to be detached.
//
// The package does not export, queue or encode spans (a span processor does), it sets
// no OpenTelemetry globals (the root package does), and it reads no request and writes
// no response. Open provider.go first, then consistentsampler.go.
package tracing
