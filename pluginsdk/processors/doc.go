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
//  1. A config is filled, by Go code or from the document. Its Validate names
//     all faults at once.
//  2. The constructor compiles globs and regular expressions, once.
//  3. Process sees each batch. Spans are looked at as bytes, fields of them and
//     no more; one that needs no change is neither decoded nor copied. Calls
//     may overlap, so nothing is kept but compiled rules and spare memory.
//  4. Edits are recorded on the batch and applied when it is encoded, those of
//     all processors at once, except that attributes and redact read the bytes
//     and so encode what processors before them have edited. Put filter and
//     sample first: they make the work of the others less.
//
// None has anything to release. They deliver nothing, keep no spans from one
// batch to the next (so no rule can look at a whole trace) and count nothing:
// the host books dropped spans as filtered, under the processor's name. Batches
// that are malformed end with a final error, from the processor that met the
// fault or from the SDK after it.
//
// Open configured.go first, then sample.go, the shortest; redact.go is the
// largest, and its promise the strictest.
package processors
