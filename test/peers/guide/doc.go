// Package guide tests the examples of the tracing guide (docs/how-to/migrate-from-ray-serve.md) against
// real back ends: the programs of bin/, as `make build` builds them, send the
// spans of real services to a real Collector and a real Datadog agent.
//
//  1. A test starts the peer (package peer), and a service with one of the
//     example plugins (package hellotest), told by variables where the peer is.
//  2. It sends a request, and reads at the peer what has arrived.
//  3. It ends the service, whose last line has the books.
//
// The examples have tests of their own, with back ends of the test's making;
// here is only what such a back end could get wrong. It has no code but tests.
// Open collector_test.go first, then agent_test.go.
package guide
