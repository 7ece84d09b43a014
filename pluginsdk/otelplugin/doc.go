// Package otelplugin runs unchanged parts of OpenTelemetry's SDK in a plugin: a
// SpanExporter, an OTLP client, and SpanProcessors.
//
//   - [Exporter] makes a sdktrace.SpanExporter the plugin's exporter.
//   - [Client] makes an otlptrace.Client the plugin's exporter.
//   - [Processors] makes sdktrace.SpanProcessors a processor of the plugin.
//   - [Pipeline] makes a list of sdktrace.SpanProcessors the plugin's exporter.
//
// In Ray Serve, a Python function returns a list of span processors:
//
//	def span_processors() -> list[SpanProcessor]:
//	    return [RayServeSpanProcessor(), BatchSpanProcessor(OTLPSpanExporter())]
//
// The corresponding plugin is:
//
//	func main() {
//		pluginsdk.Main(pluginsdk.Spec{
//			Name:     "ray-otlp",
//			Env:      []string{"OTEL_EXPORTER_OTLP_*"},
//			Limits:   pluginsdk.Limits{MaxConcurrency: 1},
//			Exporter: otelplugin.Pipeline(spanProcessors),
//		})
//	}
//
//	func spanProcessors(ctx context.Context, _ pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
//		exporter, err := otlptracehttp.New(ctx)
//		if err != nil {
//			return nil, err
//		}
//		return []sdktrace.SpanProcessor{rayServe{}, sdktrace.NewBatchSpanProcessor(exporter)}, nil
//	}
//
// Here rayServe is a sdktrace.SpanProcessor. It is better to use the exporter without its
// batch processor, because then the host gets the back end's answer directly. The other
// span processors come before it:
//
//	func main() {
//		pluginsdk.Main(pluginsdk.Spec{
//			Name:       "ray-otlp",
//			Env:        []string{"OTEL_EXPORTER_OTLP_*"},
//			Processors: []pluginsdk.NewProcessor{otelplugin.Processors(spanProcessors)},
//			Exporter:   otelplugin.Client(otlpClient),
//		})
//	}
//
//	func spanProcessors(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
//		return []sdktrace.SpanProcessor{rayServe{}}, nil
//	}
//
//	func otlpClient(context.Context, pluginsdk.Setup) (otelplugin.TraceClient, error) {
//		return otlptracehttp.NewClient(), nil
//	}
//
// The life of a batch with span processors:
//
//  1. Its spans are decoded one by one into spans of OpenTelemetry's SDK, with all fields
//     of OTLP. Processors may keep the decoded spans, which are copies.
//  2. OnStart of all processors is called, in order. The span shows its final id,
//     attributes, events, links, status and name. Its end time is zero, and it is
//     recording. Writes have about the effect that they would have in the service, where
//     OnStart comes before the recorded values; see below.
//  3. Under [Processors], everything that OnStart has added becomes an edit of the batch.
//  4. OnEnd of all processors is called, in order, with the resulting span. From then on,
//     writes to the span of OnStart do nothing.
//  5. After each chunk of 256 spans, ForceFlush of all processors is called twice. A
//     chunk is smaller if the queue of the SDK's batch processor is smaller. The second
//     call waits for errors of a processor's own goroutine. All errors are collected,
//     also errors reported to otel.Handle meanwhile.
//  6. The worst error is the result of the chunk. If it is retryable, the batch ends, and
//     the host sends the whole batch again. After a final error or a partial success, its
//     spans count as rejected, and the next chunk follows.
//
// The effects of writes in OnStart:
//
//   - SetAttributes adds attributes with new keys. Attributes that the service has
//     recorded keep their values. If several processors set the same key, the last value
//     counts.
//   - AddEvent, RecordError and AddLink append to the events and links that the service
//     has recorded. The default time of an event is the span's start.
//   - SetName replaces the name, even if the service has set the recorded name after the
//     start of the span.
//   - SetStatus follows the order of the SDK: Ok replaces Error, and Error replaces
//     Unset. It does not replace a recorded status with the same code.
//   - End does nothing, and TracerProvider returns a provider that makes no spans. The
//     SDK's limits on attributes do not apply.
//
// Differences from a tracer provider in the service:
//
//   - The context of OnStart is the context of the batch, and ends with the batch. It has
//     the SpanContext of the span's parent, but no baggage, no values of the request, and
//     no parent span that can be edited. A processor that copies baggage finds none; set
//     attributes in the service instead. The parent is assumed to have the trace flags
//     and the tracestate of its child, because OTLP does not contain them.
//   - OnStart and OnEnd are called together, after the span has ended in the service.
//     Children often come before their parents. So a processor cannot measure the time
//     between them or count running spans. The time of OnStart is not the span's start.
//   - Only sampled spans arrive, with their trace flags. If a sender omits OTLP's flags,
//     its spans count as sampled.
//   - The number of children (ReadOnlySpan.ChildSpanCount) is 0. OTLP does not distinguish
//     all array types: an array with members of the same kind becomes a slice of that
//     kind, and an empty array becomes an attribute.SLICE.
//
// A span processor with its own batches does not report the result of each span. So
// [Pipeline] cannot know it for certain. This is guaranteed:
//
//   - A chunk fits the queue of sdktrace.NewBatchSpanProcessor, and is flushed before the
//     processor delivers it by itself. So ForceFlush returns the exporter's error. If the
//     deadline passes during a flush, the next batch starts with a flush, so that the
//     queue has space for its spans.
//   - An error reported to otel.Handle while a batch is processed counts as an error of
//     that batch, even if it has another origin. So spans may be sent twice, but are not
//     lost. An error handler that the plugin's author has set before still gets all
//     errors.
//
// This is not guaranteed:
//
//   - A batch processor inside of another processor may have a queue for less than 256
//     spans, which silently drops further spans.
//   - Spans count as delivered if a processor ignores errors, or filters spans before a
//     batch processor.
//   - If the plugin's author sets an error handler after the first constructor of this
//     package has run, that handler gets the errors, and batches do not.
//   - After a deadline, a processor may still deliver the spans in its queue, and they
//     are delivered again with the repeated batch.
//
// So spans are delivered at least once, but more often twice than with an [Exporter]. If
// possible, use the span exporter without the batch processor.
//
// Open exporter.go first, then processors.go and replay.go. decode.go converts OTLP to
// the SDK's spans. recorded.go is the span for OnEnd and for exporters, live.go the span
// for OnStart.
package otelplugin
