// Package otelplugin brings unchanged parts of OpenTelemetry's SDK into a
// plugin: a SpanExporter, a client of OTLP, and SpanProcessors.
//
//   - [Exporter] makes a sdktrace.SpanExporter the plugin's exporter.
//   - [Client] does the same with an otlptrace.Client.
//   - [Processors] makes sdktrace.SpanProcessors a processor of the plugin.
//   - [Pipeline] makes a whole list of them the plugin's exporter.
//
// Where Ray Serve takes a Python function that returns a list of span
// processors,
//
//	def span_processors() -> list[SpanProcessor]:
//	    return [RayServeSpanProcessor(), BatchSpanProcessor(OTLPSpanExporter())]
//
// a plugin is
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
// where rayServe is a sdktrace.SpanProcessor. Better, because nothing stands
// between the host and the back end's answer, is the exporter in its place, with
// the other processors before it:
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
//  1. Its spans are decoded, one after another, into the SDK's, with everything
//     that OTLP carries. Nothing of the batch is referred to: processors may
//     keep them.
//  2. OnStart of all processors, in order. The span's id, attributes, events,
//     links, status and name can be read as they were in the end. Its end time
//     is zero and it is recording, and what processors write sticks as it
//     would have in the service, where the recorded values came later; see
//     below.
//  3. Under [Processors] the additions become edits of the batch.
//  4. OnEnd of all processors, in order, with the result. From here on writes
//     to the span of OnStart do nothing.
//  5. After each 256 spans, or as many as the queue of the SDK's batch
//     processor takes, ForceFlush of all processors, twice: only the second
//     waits for what a processor's own goroutine has still to report. Errors are
//     gathered, also those reported to otel.Handle meanwhile.
//  6. The worst is the answer for these spans: an error that calls for sending
//     again ends the batch at once; one that is final, or partial success, is
//     counted, and the next spans follow.
//
// What a processor writes in OnStart:
//
//   - SetAttributes: a key that the span has keeps its recorded value; any other
//     is added. Among processors the later counts.
//   - AddEvent, RecordError and AddLink add, behind those recorded. An event
//     without a time gets the span's start.
//   - SetName counts. Whether the service named the span at its start, which
//     OnStart overrides, or later, is not known.
//   - SetStatus goes by the SDK's order, Ok over Error over Unset, and the
//     recorded status over an equal one.
//   - End does nothing, and TracerProvider gives one that makes no spans. The
//     SDK's limits on attributes do not apply.
//
// What is not there:
//
//   - No live context. OnStart gets that of the batch, which ends with it, with
//     the SpanContext of the span's parent and nothing else: no baggage (a
//     processor that copies baggage runs, and finds none: let the service set
//     attributes), no values of the request, no parent that could be written to.
//     That the parent has the trace flags and the tracestate of its child is an
//     assumption: OTLP does not carry them.
//   - OnStart and OnEnd come at the same moment, after the span has ended in
//     the service, children before their parents as often as not. What measures
//     time between them, or counts spans that run, sees nothing of use. A clock
//     read in OnStart is not the span's start.
//   - Only sampled spans come. Their flags are restored; where a sender leaves
//     OTLP's flags out they count as sampled.
//   - The number of children (ReadOnlySpan.ChildSpanCount) is 0. An array whose
//     members are of one kind is a slice of that kind, and an empty array is an
//     attribute.SLICE, whatever they were: OTLP does not tell.
//
// A processor that batches by itself can be fed and flushed, but not asked what
// became of each span. What is promised:
//
//   - A piece fits the queue of sdktrace.NewBatchSpanProcessor, and is flushed
//     before that delivers by itself, so that ForceFlush returns the exporter's
//     error. Where the deadline came before the end of a flush, the next batch
//     begins with one, so that its spans find room.
//   - What is reported to otel.Handle while a batch is under way counts as an
//     error of that batch, whoever reported it: better twice than never. A
//     handler that the author had set before goes on to get everything.
//
// What is not:
//
//   - A processor that hides another from us may have a queue of less than 256
//     spans, which drops the rest without a word.
//   - One that swallows errors, or filters in front of a batch processor, has
//     delivered, for all we can see.
//   - A handler that the author sets after the first construction here gets the
//     errors in our place.
//   - After a deadline, what the processor holds may still be delivered, and
//     again with the batch.
//
// At least once, then, as everywhere, but more often twice than with an
// [Exporter]. A batch processor is made of an exporter: bring that.
//
// Open exporter.go first, then processors.go and replay.go; decode.go is the way
// from OTLP to the SDK's spans, recorded.go such a span, live.go the span that OnStart is given.
package otelplugin
