// Package processors provides span processors for plugins: raycontext puts Ray's
// identity on spans, attributes edits attributes, redact replaces secrets, filter drops
// spans, and sample keeps a share of the traces.
//
// A processor is configured in Go, as a value in pluginsdk.Spec.Processors, or by the
// operator, under "processors" in the plugin's configuration, if the Spec contains
// [Configured]:
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
//  1. Go code or the plugin's configuration fills a config. Its Validate returns all
//     errors at once.
//  2. The constructor compiles globs and regular expressions, once.
//  3. Process sees each batch, through the public API of package pluginsdk alone. Calls
//     may overlap, because a processor has no state except its compiled rules.
//  4. Edits are recorded on the batch, and later processors see them. They are
//     applied when the batch is encoded. Put filter and sample first, because
//     they leave less work for the others, and redact last.
//
// Processors have nothing to release. They deliver nothing and keep no spans between
// batches, so no rule can examine a whole trace. The host counts dropped spans as
// filtered, under the processor's name. The SDK answers a malformed batch with a final
// error.
//
// Open configured.go first, then sample.go, the shortest.
package processors
