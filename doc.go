// Package servetrace runs a service whose traces leave the process through exporter
// plugins. It is the composition root of the plugin host, the tracer and the server: it
// imports all three, starts them in that order and stops them in reverse. This comment
// is the map of the repository.
//
// The life of a service:
//
//  1. Main parses the program's flags and calls LoadConfigFile, which reads the
//     settings from the environment and the service file. A program that does more
//     than serve calls LoadConfigFile and Run itself.
//  2. Run validates the settings, makes the host, and starts the admin listener if it
//     is enabled (package admin). It makes the tracing provider around the host and
//     starts the host, which returns at once, because plugins start in the background.
//     It sets OpenTelemetry's globals, starts the server and logs a line with all that
//     runs. SIGHUP reloads the plugins, and the apps' settings in the service file.
//  3. On SIGTERM or SIGINT, or when its context ends, Run drains the server. Then it
//     shuts down the provider and with it the host, which sends the remaining spans
//     and stops the plugins. A second signal cuts both short. The admin listener ends
//     last.
//  4. Run restores the globals and returns.
//
// The way of one request through the packages:
//
//	serving     proxy, router and replica run the handler, and have
//	internal/   start and end their spans (names and keys: package semconv)
//	  spans     by the OpenTelemetry SDK of a provider of
//	tracing     which samples them and stamps the request's identity; a span
//	            that ends goes to
//	host        which encodes it (internal/otlpwire), batches it, and sends it to
//	            each plugin, a process of its own (internal/launch,
//	            internal/wire, proto/servetrace/plugin/v1); in it,
//	pluginsdk   runs processors and an exporter, such as plugins/console.
//
// The types that hold or view a span on that way, after the OpenTelemetry SDK's own
// (trace.Span until it ends, then sdktrace.ReadOnlySpan):
//
//	spans.Span        a span of a family until its end, around the SDK's
//	pipeline.shard    ended spans that wait to be encoded (host/internal/pipeline)
//	sdkspan.Encoder   the bytes of the open batch, by resource and scope
//	pipeline.Batch    the bytes of a sealed batch, with its references
//	pipeline.Item     a batch in one exporter's queue
//	pipeline.lease    gRPC's reference to a batch
//	wire.Outgoing, wire.Incoming   the bytes as messages of the codec
//	pluginsdk.Batch   a batch in the plugin, over
//	otlpwire.Request  which reads and edits the bytes
//	pluginsdk.Span    one span of it, around
//	otlpwire.Span     a view of its place in the request
//
// The host serves any Go program with an OpenTelemetry SDK, without this package and
// without serving: examples/any-program. A service: examples/hello. A plugin:
// plugins/console. The allowed imports are a table in internal/archtest, held by a
// test.
//
// This package serves no requests, makes no spans and does not talk to plugins itself.
// Package admin makes the status page and the metrics, and internal/servicefile parses
// the service file. This package starts the listener and finds the file.
//
// Open run.go first, then serving/server.go, in serving/internal httpproxy/proxy.go,
// httpproxy/exchange.go, router/deployment.go, router/router.go and router/replica.go,
// then internal/spans and tracing/provider.go. In host, read host.go,
// then pipeline.go, intake.go, encode.go, queue.go and lane.go of host/internal/pipeline,
// and supervise.go, life.go and sender.go of host/internal/supervise. In pluginsdk,
// read main.go, server.go and delivery.go. The last is plugins/console.
package servetrace
