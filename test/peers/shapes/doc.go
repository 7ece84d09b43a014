// Package shapes tests that spans of every shape that OpenTelemetry's SDK can make reach
// real back ends unchanged: through a host.Host and a plugin process to the OpenTelemetry
// Collector, and to the Datadog agent.
//
//  1. The corpus has thousands of spans, most of them from the SDK's own tracer provider,
//     the rest within the limits of the SDK's types. The same seed makes the same spans,
//     and a test checks that the corpus is complete.
//  2. For OTLP the reference is the SDK's own exporter, otlptracehttp, in this process
//     behind the SDK's own batch processor. The plugin must deliver the same to a
//     Collector, field by field.
//  3. For Datadog the reference is the output of the agent for the same spans from the
//     SDK's exporter to its OTLP receiver. If Datadog's own protocol has more or other
//     values, the reference is the spans themselves.
//
// It has no code but tests. Open corpus_test.go first, then compare_test.go,
// otlp_test.go, datadog_test.go and native_test.go.
package shapes
