// Package guide tests the examples of the tracing guide
// (docs/how-to/migrate-from-ray-serve.md) against real back ends: the programs of bin/, as
// `make build` builds them, send the spans of real services to a real Collector and a real
// Datadog agent.
//
//  1. A test starts the peer (package peer), and a service with one of the example plugins
//     (package hellotest), with the address of the peer in variables.
//  2. It sends a request, and reads the spans at the peer.
//  3. It ends the service, whose last line has the ledgers.
//
// The examples have tests of their own, with back ends of the tests. This package has only
// tests that such a back end could get wrong. Open collector_test.go first, then
// agent_test.go.
package guide
