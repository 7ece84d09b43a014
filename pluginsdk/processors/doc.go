// Package processors holds ready-made span processors for plugins: raycontext
// puts Ray's identity on spans, attributes edits them, redact takes secrets
// out, filter drops spans, and sample keeps a share of the traces.
//
// Each is configured in Go, as a value among pluginsdk.Spec.Processors, or by
// the operator, under "processors" of the plugin's document, for which
// [Configured] stands in the Spec:
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
//  1. A config is filled, by Go code or from the plugin's configuration. Its
//     Validate reports all errors at once.
//  2. The constructor compiles globs and regular expressions, once.
//  3. Process sees each batch, through the public API of package pluginsdk alone.
//     Calls may overlap: a processor keeps only its compiled rules.
//  4. Edits are recorded on the batch, and later processors see them. They are
//     applied when the batch is encoded. Put filter and sample first, because
//     they leave less work for the others, and redact last.
//
// No processor has anything to release. Processors deliver nothing, keep no spans
// from one batch to the next (so no rule can look at a whole trace) and count
// nothing: the host counts dropped spans as filtered, under the processor's name.
// Malformed batches end with a final error from the SDK.
//
// Open configured.go first, then sample.go, the shortest.
package processors
