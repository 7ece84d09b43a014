// Package tracing makes the spans of a serving runtime: the provider with its
// sampler, limits and resource; the life of the span families (proxy, router,
// replica, and inside a replica batch and model load); trace context and
// baggage in and out; and the identity of a request, which every span inside it
// carries.
//
// The life of a Provider:
//
//  1. ConfigFromEnv reads the settings; Validate reports every fault at once.
//  2. NewProvider builds it around the given span processors (the host is one).
//     Without a processor, or disabled, it is off: no spans, and context is
//     still propagated.
//  3. For each request, Extract reads the context that came with it, and
//     StartProxy, StartRouter and StartReplica start the spans. Each gives a
//     small value with one End. The sampling decision falls once, at the first
//     span of a trace; what follows inherits it.
//     StartBatch and StartModelLoad do so for what a replica does for several
//     requests at once, or once for many.
//  4. Spans that user code starts from the context become children and are
//     stamped with the request's identity. Its propagator (Propagator) knows the
//     request too, so that libraries which trace a handler need no care.
//  5. Shutdown, once, shuts the processors down.
//
// The context is the only carrier: there is no stack of spans, nothing is
// attached to a goroutine, and nothing has to be detached.
//
// What it does not do: it does not export, queue or encode spans (a span
// processor does), it sets no OpenTelemetry globals (the root package does), it
// reads no request and writes no response.
//
// Open provider.go first, then request.go, then proxyspan.go.
package tracing
