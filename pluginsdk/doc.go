// Package pluginsdk is imported by the author of a plugin. A plugin is a program that a
// servetrace host starts, feeds with finished spans, and restarts if it fails. An
// exporter plugin delivers the spans; a processor plugin edits them before all exporters.
// This package does everything except the plugin's own work on spans: it handles the
// handshake, the server, signals, logs and the exit.
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
// Build it, and name it in the environment of the service:
//
//	go build -o names . && SERVE_TRACING_EXPORTER_PLUGIN=./names my-service
//
// A Spec with Processors and no Exporter is a processor plugin:
//
//	pluginsdk.Main(pluginsdk.Spec{Name: "tenant", Processors: []pluginsdk.NewProcessor{
//		pluginsdk.EachSpan("tenant", func(span pluginsdk.Span) error {
//			span.SetAttributes(attribute.String("tenant", "blue"))
//			return nil
//		}),
//	}})
//
//	SERVE_TRACING_PROCESSOR_PLUGIN=./tenant SERVE_TRACING_EXPORTER_PLUGIN=otlp my-service
//
// The life of a plugin:
//
//  1. [Main] checks that a host started it; otherwise it prints a usage text. It opens a
//     socket in the host's private folder and prints the handshake. From then on,
//     os.Stdout is the log, so a stray print cannot disturb the host.
//  2. The host asks for the [Spec].
//  3. The host sends the variables that the Spec declares and the operator's
//     configuration. Now the constructors run: first those of the processors, in order,
//     and then the exporter's. The host shows their errors to the operator.
//  4. For each batch the processors run in order, then the exporter. The exporter's error
//     is the answer to the host: nil means delivered. After [Permanent] the host gives
//     the batch up. After any other error it sends the batch again later. Several batches
//     may be in progress at the same time.
//  5. On SIGTERM, or at the host's request, calls in flight finish. Then [Flusher.Flush],
//     [Exporter.Shutdown] and [Stopper.Shutdown] are called. All this takes at most 10 s.
//     SIGINT is ignored, because a terminal sends it to host and plugin alike, and the
//     host decides.
//  6. The process exits. It also exits within about a second after the host has ended,
//     which it notices by the end of standard input or by a new parent process.
//
// With --listen, a user starts a plugin by hand, for example under a debugger. It
// configures itself and serves all hosts that connect, until it receives SIGINT or
// SIGTERM.
//
// A plugin keeps no queue: the host holds a batch until it is answered, retries it and
// counts the losses. The package links no OpenTelemetry SDK, starts no spans of its own,
// reads no configuration files and opens no ports.
//
// Open spec.go first (declarations and interfaces), then batch.go and span.go (the data).
// main.go, run.go and plugin.go implement the life above. A batch takes the way through
// server.go (traceService), export.go, admission.go and pipeline.go.
package pluginsdk
