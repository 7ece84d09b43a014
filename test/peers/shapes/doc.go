// Package shapes tests that spans of every shape which OpenTelemetry's SDK can
// make reach real back ends as they are: through a host.Host and a plugin
// process to the OpenTelemetry Collector, and to the Datadog agent.
//
//  1. The corpus: thousands of spans, most of them made by the SDK's own tracer
//     provider, the rest as the SDK's types allow. The same seed gives the same
//     spans, and a test holds that nothing is missing among them.
//  2. For OTLP the measure is the SDK's own exporter, otlptracehttp, in this
//     process behind the SDK's own batch processor: what it delivers to a
//     Collector, the plugin must deliver too, field by field.
//  3. For Datadog the measure is what the agent makes of the same spans when they
//     come from the SDK's exporter to its OTLP receiver; and, where Datadog's own
//     protocol says more or otherwise, the spans themselves.
//
// It has no code but tests. Open corpus_test.go first, then compare_test.go,
// otlp_test.go, datadog_test.go and native_test.go.
package shapes
