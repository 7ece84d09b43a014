// Package clients tests our service with clients of others: clients that are traced by the
// real JavaScript libraries of OpenTelemetry and of Datadog call examples/hello, and the
// real Collector, agent and Jaeger get one trace of both sides.
//
//  1. A peer of package peer is started, and hello, as its own process, with the
//     plugin for that peer (clients_test.go).
//  2. A script of folder node calls it, and prints the trace that it made.
//  3. The spans of the peer are compared with it: the parents, and the values that the
//     client set in the trace's context.
//
// It has no code but tests. Tests that need node are skipped without it.
package clients
