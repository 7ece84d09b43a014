package sdkspan

import (
	"math"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// appendSpan writes s as a field of ScopeSpans. Fields are written in reverse order.
func appendSpan(w *otlpwire.Writer, s sdktrace.ReadOnlySpan) {
	end := w.Len()
	sc, parent := s.SpanContext(), s.Parent()
	w.Fixed32(field.SpanFlags, flags(sc.TraceFlags(), parent.IsRemote()))
	appendStatus(w, s.Status())
	w.Uint(field.SpanDroppedLinks, count(s.DroppedLinks()))
	appendLinks(w, s.Links())
	w.Uint(field.SpanDroppedEvents, count(s.DroppedEvents()))
	appendEvents(w, s.Events())
	w.Uint(field.SpanDroppedAttributes, count(s.DroppedAttributes()))
	w.KeyValues(field.SpanAttributes, s.Attributes())
	w.Fixed64(field.SpanEnd, otlpwire.UnixNano(s.EndTime()))
	w.Fixed64(field.SpanStart, otlpwire.UnixNano(s.StartTime()))
	w.Uint(field.SpanKind, kind(s.SpanKind()))
	w.Text(field.SpanName, s.Name())
	if id := parent.SpanID(); id.IsValid() {
		w.Content(field.SpanParentID, id[:])
	}
	w.Text(field.SpanTraceState, sc.TraceState().String())
	spanID, traceID := sc.SpanID(), sc.TraceID()
	w.Content(field.SpanSpanID, spanID[:])
	w.Content(field.SpanTraceID, traceID[:])
	w.Message(field.ScopeSpansSpans, end)
}

// appendStatus writes the status even if it is empty, as the SDK's exporter does.
func appendStatus(w *otlpwire.Writer, s sdktrace.Status) {
	end := w.Len()
	w.Uint(field.StatusCode, uint64(otlpwire.StatusNumber(s.Code)))
	w.Text(field.StatusMessage, s.Description)
	w.Message(field.SpanStatus, end)
}

func appendEvents(w *otlpwire.Writer, events []sdktrace.Event) {
	for i := len(events) - 1; i >= 0; i-- {
		e := &events[i]
		end := w.Len()
		w.Uint(field.EventDroppedAttributes, count(e.DroppedAttributeCount))
		w.KeyValues(field.EventAttributes, e.Attributes)
		w.Text(field.EventName, e.Name)
		w.Fixed64(field.EventTime, otlpwire.UnixNano(e.Time))
		w.Message(field.SpanEvents, end)
	}
}

func appendLinks(w *otlpwire.Writer, links []sdktrace.Link) {
	for i := len(links) - 1; i >= 0; i-- {
		l := &links[i]
		end := w.Len()
		w.Fixed32(field.LinkFlags, flags(l.SpanContext.TraceFlags(), l.SpanContext.IsRemote()))
		w.Uint(field.LinkDroppedAttributes, count(l.DroppedAttributeCount))
		w.KeyValues(field.LinkAttributes, l.Attributes)
		w.Text(field.LinkTraceState, l.SpanContext.TraceState().String())
		spanID, traceID := l.SpanContext.SpanID(), l.SpanContext.TraceID()
		w.Content(field.LinkSpanID, spanID[:])
		w.Content(field.LinkTraceID, traceID[:])
		w.Message(field.SpanLinks, end)
	}
}

// flags returns OTLP's flags of a span or a link. remote reports whether the parent of the span,
// or the target of the link, is remote. See SpanFlags in
// https://github.com/open-telemetry/opentelemetry-proto.
func flags(tf trace.TraceFlags, remote bool) uint32 {
	f := uint32(tf) | otlpwire.FlagRemoteKnown
	if remote {
		f |= otlpwire.FlagRemote
	}
	return f
}

// kind returns OTLP's number of a kind of span. It is the number in OpenTelemetry's API, or 0 if
// OTLP has no such kind.
func kind(k trace.SpanKind) uint64 {
	if k < trace.SpanKindInternal || k > trace.SpanKindConsumer {
		return 0
	}
	return uint64(k)
}

// count returns n as OTLP's fields for counts hold it: at least 0, and at most 32 bits.
func count(n int) uint64 { return min(uint64(max(0, n)), math.MaxUint32) }
