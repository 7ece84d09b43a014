// Package host finds, starts, supervises and feeds exporter plugins. To the rest of a
// program a Host is one sdktrace.SpanProcessor: register it with a tracer provider, and
// the spans that end leave the process through every plugin that
// SERVE_TRACING_EXPORTER_PLUGIN names.
//
// The life of a Host:
//
//  1. ConfigFromEnv reads the settings. New checks them and the list of plugins.
//     Nothing runs yet.
//  2. Start returns at once. Each plugin is launched in the background, described and
//     configured. After a crash or a failed start it is started again, with backoff, for
//     as long as the Host lives. If another program has started a plugin, the Host
//     attaches to its socket, and neither configures nor ends it.
//  3. OnEnd puts a sampled span on a sharded list and returns: it never blocks and does
//     not allocate. The encoder soon converts the spans to OTLP bytes and seals them
//     into batches. Each plugin has a queue of references to the batches. Consume and
//     Deliver take spans of other programs, as OTLP bytes.
//  4. The sender of each plugin sends its batches, up to four at a time, until the
//     plugin answers that they were delivered or refused for good, or they are too old.
//  5. Reload reads the folders of the list anew, and starts a new process beside each
//     old process. The old process goes on if the new process fails.
//  6. Shutdown refuses further spans, sends the rest, ends the plugins and counts the
//     spans that could not be sent. It returns by its deadline.
//
// With Config.SpoolDir, each batch is in a file until every exporter is done with it
// (internal/spool). The next Host sends the batches that an ended process has left
// there.
//
// Nothing is lost silently: Stats returns the delivery accounting, one ledger per
// exporter, which balances to the span at any moment. Memory is bounded by one setting
// (Config.QueueBytes): at the bound, the exporter that holds most loses its oldest
// batch. A span is refused for lack of memory only if the encoder cannot keep up.
//
// The package serves no requests, and does not sample spans or propagate contexts. It
// sets no global variable of OpenTelemetry.
//
// Inspect applies the settings to each plugin without a running Host, and returns the
// results.
//
// internal/pipeline has the way of the spans: intake, encoder, queues with their
// accounting, and the bound on memory. internal/supervise has the life of each plugin.
// internal/failures keeps the last failures of an exporter, and internal/pluginlist
// reads the operator's list.
//
// Open host.go first, then internal/pipeline for the way of a span, and
// internal/supervise for the life of a plugin.
package host
