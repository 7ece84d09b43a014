// Package peer starts the real back ends to which the plugins send, and reads the data
// that has arrived there.
//
//  1. `make peers` builds them (package recipe). A test whose peer is missing is
//     skipped, or fails if the variable CI is true.
//  2. StartCollector, StartDatadogAgent and StartJaeger start a process on free ports of
//     the loopback, and return when it takes spans.
//  3. The test sends to HTTP, GRPC or URL. Spans and WaitSpans read the file of the
//     peer, exact to the field.
//  4. Stop and Restart are an outage: ports and file stay the same.
//  5. The process ends with the test. If the test failed, its log is shown. If the
//     process of the test is killed, the kernel kills the peer with it (on Linux).
//
// A peer has an environment of its own, so that variables for a plugin do not reach it.
// All methods must be called by the goroutine of the test, because they end it if
// something cannot go on, unless their comment allows concurrent use.
//
// The package builds nothing and knows no plugin. Open collector.go first.
package peer
