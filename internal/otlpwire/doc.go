// Package otlpwire reads, edits, counts, splits and merges the bytes of an
// OTLP ExportTraceServiceRequest without decoding it into objects. The encoder
// that makes such bytes from the SDK's spans is its neighbour sdkspan: this
// package links no OpenTelemetry SDK, so that a plugin does not either.
//
// The life of a Request:
//
//  1. Parse walks the three outer levels (ResourceSpans, ScopeSpans, Span) and
//     notes where each span lies. No span is looked into.
//  2. A reader asks a Span for a field or an attribute. Each question walks the
//     span's bytes; nothing that was not asked for is decoded.
//  3. An edit is recorded. Reads that come after it see it.
//  4. AppendTo writes the request with its edits in one pass. What was not
//     edited is copied as it arrived, fields unknown to this package included;
//     a request without edits gives back its bytes.
//
// It does not validate what it is not asked for (a span's inside may be
// malformed and is then passed on as it is), it sends nothing, and it knows no
// span processors. OTLP's messages: https://opentelemetry.io/docs/specs/otlp/.
//
// Open request.go first, then span.go.
package otlpwire
