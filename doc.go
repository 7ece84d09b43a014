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
//     It sets OpenTelemetry's globals, starts the server and logs a line that
//     describes the service. SIGHUP reloads the plugins, and the apps' settings in the service file.
//  3. On SIGTERM or SIGINT, or when its context ends, Run drains the server and restores
//     the globals. Then it shuts down the provider and with it the host, which sends the
//     remaining spans and stops the plugins. A second signal cuts both short. The admin
//     listener ends last.
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
// The next list has the types that hold or view spans on this way, in their order. It
// omits the types of OpenTelemetry's SDK: a span is a trace.Span until it ends, and then a
// sdktrace.ReadOnlySpan. Three types of the list stand for a single span: spans.Span,
// pluginsdk.Span and otlpwire.Span.
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
// Some spans take other ways. A processor plugin returns edited spans, and a
// pipeline.Answer holds them until they are a batch again. The relay takes spans from
// other programs: its gRPC listener gets them as a wire.Lent, and a pipeline.consumer
// merges them into batches.
//
// An exporter adds the types of its vendor's library. plugins/otlp passes the bytes on as
// tracepb.ResourceSpans, without decoding them.
//
// The host works in any Go program with an OpenTelemetry SDK, without this package and
// without serving. examples/any-program is such a program, examples/hello is a service,
// and plugins/console is a plugin. A test in internal/archtest compares all imports with a
// table of the allowed imports.
//
// A deployment may run in other processes (proto/servetrace/serve/v1). A call by handle then
// goes through serving/internal/callclient to the other process, in which
// serving/internal/callserver passes the call to the router.
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
// Two lists show an order to read the code. The first list takes an hour. It shows one
// request, from the proxy to the vendor's library, in the order of the calls. In each file,
// read the types and functions that the list names, from the top to the bottom. The rest of
// a file has other cases, such as failures, other protocols and the stop. Begin with the
// method start in run.go of this package. The spans follow after the handler, because proxy,
// router and replica all start and end spans in the same way.
//
//	serving/server.go                       buildFronts
//	serving/internal/httpproxy/proxy.go     proxy ServeHTTP answer serve dispatch
//	serving/internal/httpproxy/exchange.go  exchange prepare await conclude
//	serving/internal/router/deployment.go   Deployment Assign
//	serving/internal/router/router.go       router acquire acquireSince takeFreeLocked
//	serving/internal/router/replica.go      Call
//	serving/internal/router/assignment.go   Assignment Start Run runWithSpan invoke
//	serving/internal/httpproxy/call.go      Describe Invoke End
//	internal/spans/span.go                  Tracer Span start
//	internal/spans/proxyspan.go             ProxyStart StartProxy EndProxy
//	tracing/propagation.go                  Extract
//	tracing/provider.go                     Provider NewProvider
//	tracing/processors.go                   stamp ownedProcessor
//	host/host.go                            Host Start OnEnd
//	host/internal/pipeline/intake.go        intake shard add notify
//	host/internal/pipeline/encode.go        encoder run cycleLocked sealLocked
//	host/internal/pipeline/pipeline.go      enqueue
//	host/internal/pipeline/item.go          Item
//	host/internal/pipeline/queue.go         Queue putLocked nextLocked deliveredLocked
//	host/internal/pipeline/lane.go          Lane Take Settle
//	host/internal/supervise/sender.go       sender run send settle
//	internal/wire/codec.go                  Outgoing Incoming Marshal Unmarshal
//	pluginsdk/export.go                     export call answerOf
//	pluginsdk/pipeline.go                   pipeline run
//	pluginsdk/batch.go                      Batch Undecoded
//	plugins/otlp/otlpexporter/exporter.go   call Export
//	plugins/otlp/otlpexporter/http.go       transport RoundTrip
//
// The second list has whole files. They show what the first list leaves out: responses, the
// life of replicas, calls by handle and between processes, batches of requests, models, the
// bytes of spans, and the life of a plugin on both sides.
//
//	serving/internal/httpproxy  response.go exchange.go
//	serving/internal/router     pool.go replica.go replicaset.go replicalife.go
//	serving                     handle.go function.go carry.go serve.go
//	serving/internal/router     peer.go accept.go
//	serving/internal/callclient call.go
//	serving/internal/callserver call.go
//	serving/batching            batcher.go queue.go run.go
//	serving/multiplexing        models.go cache.go
//	internal/spans              deploymentspan.go
//	internal/otlpwire           request.go span.go writer.go
//	internal/otlpwire/sdkspan   encoder.go
//	host/internal/pipeline      pipeline.go memory.go ledger.go
//	host/internal/supervise     plugin.go starts.go life.go connect.go health.go crash.go upgrade.go
//	internal/launch             launch.go
//	pluginsdk                   main.go run.go plugin.go server.go
package servetrace
