// Package host finds, starts, supervises and feeds exporter plugins. To
// everyone else a Host is one sdktrace.SpanProcessor: register it with a tracer
// provider, and spans that end leave the process through every plugin named by
// SERVE_TRACING_EXPORTER_PLUGIN.
//
// The life of a Host:
//
//  1. ConfigFromEnv reads the settings, New checks them and the list of
//     plugins, and makes an exporter for each entry. Nothing runs yet.
//  2. Start returns at once. Each exporter launches its plugin in the
//     background, asks it what it is and configures it; when a plugin crashes
//     or can not start it is started again, with backoff, for as long as the
//     Host lives. A plugin that somebody else has started is attached to at its
//     socket instead, and neither configured nor ended.
//  3. OnEnd puts a sampled span on a sharded list and returns: it never
//     blocks, allocates nothing and wakes nobody, but for a threshold or a
//     timer. A drain worker encodes the spans to OTLP bytes soon after and
//     seals them into batches; each exporter has a queue of references to them.
//  4. Each exporter sends its batches, up to four at a time, until the plugin
//     answers that they were delivered, or that they never will be, or they
//     are too old.
//  5. Reload reads the folders of the list anew, and puts a new process beside
//     each old one, which goes on if the new one is no good.
//  6. Shutdown refuses further spans, sends what is left, ends the plugins and
//     counts what could not be sent. It returns by its deadline.
//
// Nothing is lost silently: Stats gives the books, one ledger per exporter,
// and they balance to the span at any moment. Memory is bounded by one setting
// (Config.QueueBytes): at the bound the exporter that holds most loses its
// oldest batch, and only when the worker can not keep up is a span refused.
//
// The package does not serve, sample or propagate; it knows nothing of
// requests. It sets no global of OpenTelemetry's.
//
// Inspect says what a Host would make of the settings, without one.
//
// Open host.go first, then intake.go (OnEnd), drain.go (encoding), memory.go
// (the bound), exporter.go and queue.go (what waits, and its ledger), sender.go
// (one connection), outage.go (a back end that is away) and suspect.go (what a crash leaves). The plugin's life is
// supervise.go (start, serve, and again), life.go (one process), state.go,
// breaker.go, pulse.go (health), upgrade.go and reload.go; plan.go says how it
// is started, attached to and asked, crash.go what is told of its end, and
// stats.go gives the books.
package host
