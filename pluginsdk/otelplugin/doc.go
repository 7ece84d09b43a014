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
// Here rayServe is a sdktrace.SpanProcessor. Prefer the exporter without its batch
// processor, so that the host gets the back end's answer directly, with the other
// processors before it:
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
//  1. Its spans are decoded one by one into the SDK's spans, with all fields of OTLP.
//     They do not refer to the batch, so processors may keep them.
//  2. OnStart of all processors is called, in order. The span shows its final id,
//     attributes, events, links, status and name. Its end time is zero, and it is
//     recording. Writes have the same effect as in the service, where the recorded
//     values came later; see below.
//  3. Under [Processors] the additions become edits of the batch.
//  4. OnEnd of all processors is called, in order, with the result. From here on, writes
//     to the span of OnStart do nothing.
//  5. The spans form chunks of 256, or fewer if the queue of the SDK's batch processor is
//     smaller. After each chunk, ForceFlush of all processors is called twice: the second
//     call waits for errors of a processor's own goroutine. Errors are collected,
//     including errors reported to otel.Handle meanwhile.
//  6. The worst error is the answer for the chunk. A retryable error ends the batch at
//     once. A final error or partial success is counted, and the next chunk follows.
//
// The effects of writes in OnStart:
//
//   - SetAttributes adds attributes with new keys. Recorded keys keep their values. Among
//     processors, the later one wins.
//   - AddEvent, RecordError and AddLink append to the recorded entries. The default time
//     of an event is the span's start.
//   - SetName replaces the name, although the service may have set the recorded name
//     after the start.
//   - SetStatus follows the SDK's order, Ok over Error over Unset. The recorded status
//     wins over an equal one.
//   - End does nothing, and TracerProvider returns a provider that makes no spans. The
//     SDK's limits on attributes do not apply.
//
// Differences from a tracer provider in the service:
//
//   - The context of OnStart is the batch's context and ends with it. It has the
//     SpanContext of the span's parent, but no baggage, no values of the request, and no
//     writable parent. A processor that copies baggage finds none; set attributes in the
//     service instead. The parent is assumed to have the trace flags and the tracestate of
//     its child, because OTLP does not contain them.
//   - OnStart and OnEnd are called together, after the span has ended in the service.
//     Children often come before their parents. So a processor cannot measure the time
//     between them or count running spans. The time of OnStart is not the span's start.
//   - Only sampled spans arrive. Their flags are restored. If a sender omits OTLP's flags,
//     its spans count as sampled.
//   - The number of children (ReadOnlySpan.ChildSpanCount) is 0. OTLP does not distinguish
//     all array types: an array with members of the same kind becomes a slice of that
//     kind, and an empty array becomes an attribute.SLICE.
//
// A processor that batches by itself does not report the result of each span. This is
// guaranteed:
//
//   - A chunk fits the queue of sdktrace.NewBatchSpanProcessor and is flushed before the
//     processor delivers it by itself, so ForceFlush returns the exporter's error. If the
//     deadline passes during a flush, the next batch starts with a flush, so that the
//     queue has space for its spans.
//   - An error reported to otel.Handle while a batch is processed counts as an error of
//     that batch, whatever its origin: spans may be sent twice, but are not lost. A handler
//     that the author has set before still gets all errors.
//
// This is not guaranteed:
//
//   - A batch processor wrapped in another processor may have a queue of less than 256
//     spans, which silently drops the rest.
//   - Spans count as delivered if a processor ignores errors, or filters spans before a
//     batch processor.
//   - If the author sets an error handler after the first constructor here has run, that
//     handler gets the errors.
//   - After a deadline, the spans in a processor may still be delivered, and again with
//     the batch.
//
// So delivery is at least once, as always, but duplicates are more frequent than with an
// [Exporter]. Prefer the exporter inside a batch processor.
//
// Open exporter.go first, then processors.go and replay.go. decode.go converts OTLP to the
// SDK's spans, recorded.go is such a span, and live.go is the span for OnStart.
package otelplugin
