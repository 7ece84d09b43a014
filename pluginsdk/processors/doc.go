// Package processors provides span processors for plugins: raycontext adds Ray's ids to
// spans, attributes edits attributes, redact replaces secrets, filter drops spans, and
// sample keeps a share of the traces.
//
// A plugin's author configures a processor in Go, as a value in
// pluginsdk.Spec.Processors. If the Spec contains [Configured], the operator can add
// processors under "processors" in the plugin's configuration:
//
//	processors:
//	  - filter: {drop: [{name: "GET /health*"}]}
//	  - raycontext: {}
//	  - attributes: {actions: [{key: team, action: upsert, value: search}]}
//	  - redact: {}
//	exporter: {}
//
// The life of a processor:
//
//  1. Go code or the plugin's configuration sets the fields of a config, such as
//     [FilterConfig]. Its method Validate returns all errors at once.
//  2. The constructor compiles globs and regular expressions, once.
//  3. Process gets each batch. It uses only the public API of package pluginsdk. Several
//     calls may run at the same time, because a processor has no state except its
//     compiled rules.
//  4. Edits are recorded in the batch, and later processors see them. They are applied
//     when the batch is encoded. Put filter and sample first, so that the later
//     processors have fewer spans to edit, and redact last.
//
// These processors have nothing to release. They keep no spans between batches, so no
// rule can examine a whole trace. The host counts dropped spans as filtered, under the
// processor's name. The SDK answers a malformed batch with a final error.
//
// Open configured.go first, then sample.go, the shortest processor.
package processors
