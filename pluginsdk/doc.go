// Package pluginsdk is what the author of an exporter plugin imports. A plugin
// is a program of its own that a servetrace host starts, feeds with finished
// spans and restarts if it fails; this package is everything about it that is
// not the delivery of spans: handshake, server, signals, logs, exit.
//
// The smallest plugin prints the name of each span:
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//
//		"github.com/servetrace/servetrace/pluginsdk"
//	)
//
//	func main() { pluginsdk.Main(pluginsdk.Spec{Name: "names", Exporter: newNames}) }
//
//	func newNames(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
//		return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
//			for span := range b.Spans() {
//				fmt.Fprintln(s.Stdout, span.Name())
//			}
//			return nil
//		}), nil
//	}
//
// Build it, and name it where the service starts:
//
//	go build -o names . && SERVE_TRACING_EXPORTER_PLUGIN=./names my-service
//
// The life of a plugin:
//
//  1. [Main] checks that a host started it (else it says kindly what it is),
//     opens a socket in the host's private folder and prints the handshake.
//     From here on os.Stdout is the log: stray prints do no harm.
//  2. The host asks what the plugin is: the [Spec].
//  3. The host sends the variables that the Spec declares and the operator's
//     configuration. Now the constructors run, in order, the [Exporter]'s last.
//     An error from one is shown to the operator.
//  4. For each batch the processors run in order, then the exporter. The
//     answer to the host is the exporter's: nil means delivered, [Permanent]
//     means never again, anything else means later. Batches overlap.
//  5. On SIGTERM, or when the host says so, calls in flight finish, and
//     [Flusher.Flush], [Exporter.Shutdown] and [Stopper.Shutdown] follow, all
//     within a bound. SIGINT is ignored: a terminal sends it to host and plugin
//     alike, and the host decides.
//  6. The process exits. It also does so, within a second, when the host is
//     gone: standard input ends or the parent changes.
//
// With --listen a plugin is run by hand, under a debugger say: it configures
// itself and serves whatever hosts attach, until it is told to end.
//
// A plugin keeps no queue: the host holds a batch until it is answered, retries
// it and counts what is lost. The package links no OpenTelemetry SDK, starts no
// spans of its own, reads no configuration files and opens no ports.
//
// Open spec.go first (what an author declares and implements), then batch.go
// and span.go (what arrives); main.go and run.go are the life above.
package pluginsdk
