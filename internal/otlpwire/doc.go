// Package otlpwire reads, edits, counts and splits the bytes of an OTLP
// ExportTraceServiceRequest without decoding it to objects, and writes OTLP messages. No
// other package does so, except that package sdkspan encodes the SDK's spans with this
// package's Writer. This package links no OpenTelemetry SDK, so that a plugin need not
// link it.
//
// The life of a Request:
//
//  1. Parse walks the three outer levels (ResourceSpans, ScopeSpans, Span) and records
//     the place of each span. It does not read inside spans.
//  2. A reader asks a view, such as a Span, for a field or an attribute. Each read walks
//     the message and decodes nothing else.
//  3. An edit is recorded. Later reads return the edited state.
//  4. AppendTo writes the request with its edits in one pass. Messages without edits are
//     copied as they arrived, unknown fields included. AppendPatch writes the same
//     result as a patch: the bytes that are inserted and the places of the kept bytes.
//     A plugin sends the patch to the host, which calls ApplyPatch and CheckPatched.
//
// A Request validates only the fields that are read: a span that is malformed inside is
// passed on unchanged. Check validates all known fields. The package sends nothing and
// runs no span processors. OTLP's messages: https://opentelemetry.io/docs/specs/otlp/.
//
// Open request.go first, then view.go and span.go.
package otlpwire
