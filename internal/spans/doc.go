// Package spans makes the span families of the serving runtime, which are Ray
// Serve's: proxy, router and replica, and inside a replica batch and model load. It
// knows their names, kinds, attributes, statuses and events.
//
// The life of a span:
//
//  1. StartProxy, StartRouter, StartReplica, StartBatch or StartModelLoad starts it by
//     the OpenTelemetry SDK, with all attributes that are known, under the span of the
//     context, and returns a small value. It carries the Request (package identity)
//     in the context.
//  2. Inside a trace that is not sampled only the proxy's span is started, which does
//     not record; the others' values are then zero, and their methods do nothing.
//  3. End adds the attributes that are known by then, the event of a failure and the
//     status, and ends it.
//
// It samples nothing, propagates nothing and stamps no identity: package tracing does.
// Open tracer.go first, then proxyspan.go.
package spans
