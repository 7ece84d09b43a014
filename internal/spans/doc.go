// Package spans makes the span families of the serving runtime, which are Ray Serve's:
// proxy, router and replica, and inside a replica batch and model load. It defines
// their names, kinds, attributes, statuses and events.
//
// The life of a span:
//
//  1. StartProxy, StartRouter, StartReplica, StartBatch or StartModelLoad starts it with
//     the OpenTelemetry SDK, with all known attributes, as a child of the context's span.
//     It returns a Span, a small value. The returned context carries the Request (package
//     identity).
//  2. In an unsampled trace only the proxy span is started, and it does not record. All
//     Spans of such a trace are zero, and their methods do nothing.
//  3. EndProxy, EndRouter, EndReplica or EndWork adds the final attributes, the event of
//     a failure and the status, and ends the span.
//
// The package does not sample, propagate or stamp identities; package tracing does.
// Open span.go first, then proxyspan.go and deploymentspan.go.
package spans
