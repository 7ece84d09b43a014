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
//	serving         proxy, router and replica run the handler. Each has a span.
//	internal/spans  starts and ends these spans, with the OpenTelemetry SDK of a
//	                provider. Their names and keys are in package semconv.
//	tracing         has the provider, which samples spans and stamps the identity
//	                of the request on them. Ended spans go to its processor.
//	host            is this processor. It encodes spans (internal/otlpwire), seals
//	                batches, and sends them to each plugin, a process of its own
//	                (internal/launch, internal/wire, proto/servetrace/plugin/v1).
//	pluginsdk       runs the processors and the exporter in the plugin's process,
//	                such as plugins/otlp, which sends the batch to the vendor.
//
// The list has the types that hold or view spans on that way. The SDK's own types are not
// in it: trace.Span until the span ends, then sdktrace.ReadOnlySpan. Three types stand
// for one span: spans.Span, pluginsdk.Span and otlpwire.Span.
//
//	spans.Span        a span of the server until its end, around a trace.Span
//	pipeline.shard    ended spans that wait to be encoded (host/internal/pipeline)
//	sdkspan.Encoder   the bytes of the open batch, by resource and scope
//	pipeline.batch    the bytes of a sealed batch, with its references
//	pipeline.Item     a batch in one exporter's queue
//	pipeline.lease    gRPC's reference to a batch
//	wire.Outgoing     the bytes as a message of the codec, in the host
//	wire.Incoming     the bytes as a message of the codec, in the plugin
//	pluginsdk.Batch   a batch in the plugin, around otlpwire.Request
//	otlpwire.Request  reads and edits the bytes
//	pluginsdk.Span    one span of a batch, around otlpwire.Span
//	otlpwire.Span     a view of the span's place in the request
//
// Two other ways have types of their own. The result of a processor plugin is in a
// pipeline.Answer until it is a batch. Spans that the relay takes by gRPC come as a
// wire.Lent, and a pipeline.consumer merges them into batches.
//
// An exporter adds the types of its vendor's library. plugins/otlp passes the bytes on as
// tracepb.ResourceSpans, without decoding them.
//
// The host works in any Go program with an OpenTelemetry SDK, without this package and
// without serving: examples/any-program. A service: examples/hello. A plugin:
// plugins/console. A table in internal/archtest lists the allowed imports, and a test
// checks them.
//
// A deployment may run in other processes. The router then sends a call by handle through
// serving/internal/callclient, and serving/internal/callserver gives the call to the
// router of that process (proto/servetrace/serve/v1).
//
// Programs in other languages send OTLP to the command servetrace relay (package relay),
// which passes the bytes to a host. The folder python has the package for Ray Serve and
// other Python programs, and the runner of exporter functions. internal/pywire reads its
// compact form of spans.
//
// This package serves no requests, makes no spans and does not talk to plugins itself.
// Package admin makes the status page and the metrics, and internal/servicefile parses
// the service file. This package starts the listener and finds the file.
//
// Open run.go first. Then the order is:
//
//	serving                     server.go
//	serving/internal/httpproxy  front.go proxy.go call.go response.go exchange.go
//	serving/internal/router     deployment.go router.go pool.go assignment.go
//	internal/spans              span.go proxyspan.go deploymentspan.go
//	tracing                     provider.go processors.go
//	host                        host.go
//	host/internal/pipeline      pipeline.go intake.go encode.go item.go queue.go lane.go
//	host/internal/supervise     the order of its package comment
//	internal/wire               codec.go
//	pluginsdk                   main.go run.go server.go export.go pipeline.go batch.go
//	plugins/otlp/otlpexporter   exporter.go http.go
package servetrace
