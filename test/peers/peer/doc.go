// Package peer starts the real back ends that the plugins send to, and reads
// what has arrived there.
//
//  1. `make peers` has built them (package recipe); a test whose peer is not
//     there is skipped, or fails where the variable CI is true.
//  2. StartCollector, StartDatadogAgent, StartJaeger start a process on free
//     ports of the loopback, and return when it takes spans.
//  3. The test sends to HTTP, GRPC or URL, and reads with Spans and WaitSpans
//     what the peer has written to its file, exact to the field.
//  4. Stop and Restart play an outage: ports and file stay the same.
//  5. When the test ends, so does the process, and if the test failed its log
//     is shown. When the test's process is killed, the kernel kills the peer
//     with it (on Linux).
//
// A peer gets an environment of its own, so that variables which a test sets
// for a plugin do not reach it. All methods must be called by the goroutine
// that runs the test, because they end it where something cannot go on, unless
// they say that they are safe for concurrent use.
//
// It builds nothing and knows no plugin. Open collector.go first.
package peer
