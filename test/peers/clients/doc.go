// Package clients has the tests of what others make of our service: clients
// that are traced by the real JavaScript libraries of OpenTelemetry and of
// Datadog call examples/hello, and what arrives at the real Collector, agent
// and Jaeger is one trace of both sides.
//
//  1. A peer of package peer is started, and hello, as its own process, with the
//     plugin for that peer (clients_test.go).
//  2. A script of folder node calls it, and prints which trace it made.
//  3. The spans that the peer has are held against that: whose parent is whose,
//     and that what the client said of the trace was kept.
//
// It has no code but tests. They skip what needs node where that is not at hand.
package clients
