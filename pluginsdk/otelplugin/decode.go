package otelplugin

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// decoder makes the SDK's spans of those of one batch. What it makes refers to
// nothing of the batch, so that a processor may keep it. Spans of a batch come
// grouped, so the last resource and scope are kept: all of a group share them.
type decoder struct {
	encoded    *otlpwire.Request // nil where the batch is no OTLP
	fields     otlpwire.Decoded  // of the span in hand
	resource   *resource.Resource
	ofResource pluginsdk.Resource
	scope      instrumentation.Scope
	ofScope    pluginsdk.Scope
	haveScope  bool
	scratch    []attribute.KeyValue
	attributes []attribute.KeyValue // room for more
}

// newDecoder reads b as it stands.
func newDecoder(b *pluginsdk.Batch) *decoder {
	encoded, err := otlpwire.Parse(b.Bytes())
	if err != nil { // then b has no spans to show either, and its error is the answer
		return &decoder{}
	}
	return &decoder{encoded: encoded}
}

// err is the final error for a batch that is malformed within a span. The spans
// were read up to there.
func (d *decoder) err() error {
	if d.encoded == nil || d.encoded.Err() == nil {
		return nil
	}
	return pluginsdk.Permanent(fmt.Errorf("malformed batch: %w", d.encoded.Err()))
}

// decodeAll gives the spans of b.
func decodeAll(b *pluginsdk.Batch) ([]sdktrace.ReadOnlySpan, error) {
	d := newDecoder(b)
	spans := make([]sdktrace.ReadOnlySpan, 0, b.Len())
	var room []recorded
	for span := range b.Spans() {
		if len(room) == 0 {
			room = make([]recorded, min(pageSpans, max(1, cap(spans)-len(spans))))
		}
		one := &room[0]
		room = room[1:]
		one.ReadOnlySpan = nothing
		d.fill(&one.stub, len(spans), span)
		spans = append(spans, one)
	}
	return spans, d.err()
}

// What is decoded lies in pages, of so many spans and attributes, which cost
// fewer allocations. Who keeps one span keeps its page.
const (
	pageSpans      = 32
	pageAttributes = 256
)

// stub gives all of the i-th span of the batch, s, that OTLP carries. It has no
// number of children.
func (d *decoder) stub(i int, s pluginsdk.Span) (stub tracetest.SpanStub) {
	d.fill(&stub, i, s)
	return stub
}

func (d *decoder) fill(stub *tracetest.SpanStub, i int, s pluginsdk.Span) {
	d.enter(s)
	f := &d.fields
	d.encoded.Span(i).Decode(f)
	own := spanContext(s, f)
	stub.Name = f.Name
	stub.SpanContext = own
	stub.Parent = parent(f, own)
	stub.SpanKind = trace.ValidateSpanKind(trace.SpanKind(f.Kind))
	stub.StartTime, stub.EndTime = unixTime(f.Start), unixTime(f.End)
	stub.Attributes = d.keep(f.Attributes)
	stub.Status = status(f)
	stub.DroppedAttributes, stub.DroppedEvents, stub.DroppedLinks = int(f.DroppedAttributes), int(f.DroppedEvents), int(f.DroppedLinks)
	stub.Resource = d.resource
	stub.InstrumentationScope = d.scope
	// Snapshot takes this one where a scope has no more than attributes.
	stub.InstrumentationLibrary = d.scope //nolint:staticcheck // deprecated for readers
	if f.Events > 0 {
		stub.Events = d.events(s.Events())
	}
	if f.Links > 0 {
		stub.Links = d.links(s.Links())
	}
}

// enter makes resource and scope those of s.
func (d *decoder) enter(s pluginsdk.Span) {
	if of := s.Resource(); d.resource == nil || of != d.ofResource {
		d.ofResource = of
		d.resource = resource.NewWithAttributes(of.SchemaURL(), slices.Collect(of.Attributes())...)
	}
	if of := s.Scope(); !d.haveScope || of != d.ofScope {
		d.ofScope, d.haveScope = of, true
		d.scope = instrumentation.Scope{
			Name: of.Name(), Version: of.Version(), SchemaURL: of.SchemaURL(),
			Attributes: attribute.NewSet(slices.Collect(of.Attributes())...),
		}
	}
}

// spanContext is that of s. A span whose sender left out OTLP's flags, as many
// did before they were in the protocol, counts as sampled: it was exported, and
// a batch processor would drop an unsampled one without a word.
func spanContext(s pluginsdk.Span, f *otlpwire.Decoded) trace.SpanContext {
	flags := trace.TraceFlags(f.Flags & 0xff)
	if f.Flags&flagRemoteKnown == 0 && flags == 0 {
		flags = trace.FlagsSampled
	}
	var state trace.TraceState
	if f.TraceState != "" {
		state = s.TraceState()
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: f.TraceID, SpanID: f.SpanID, TraceFlags: flags, TraceState: state,
	})
}

// parent is the context of the parent, the zero one for a root. OTLP carries its
// id and whether it is remote; flags and state are taken to be those of the
// span's own, as samplers leave them.
func parent(f *otlpwire.Decoded, own trace.SpanContext) trace.SpanContext {
	id := trace.SpanID(f.ParentID)
	if !id.IsValid() {
		return trace.SpanContext{}
	}
	return own.WithSpanID(id).WithRemote(f.Flags&flagRemote != 0)
}

// status is in the API's numbers, which are not OTLP's.
func status(f *otlpwire.Decoded) sdktrace.Status {
	const otlpOK, otlpError = 1, 2
	switch f.Code {
	case otlpOK:
		return sdktrace.Status{Code: codes.Ok, Description: f.Message}
	case otlpError:
		return sdktrace.Status{Code: codes.Error, Description: f.Message}
	}
	return sdktrace.Status{Code: codes.Unset, Description: f.Message}
}

// Whether the parent is remote, and whether that is known, in OTLP's flags.
const (
	flagRemoteKnown = 1 << 8
	flagRemote      = 1 << 9
)

// unixTime reads OTLP's nanoseconds; those beyond the year 2262 stay there.
func unixTime(nanos uint64) time.Time {
	return time.Unix(0, int64(min(nanos, math.MaxInt64))).UTC()
}

func (d *decoder) events(seq iter.Seq[pluginsdk.Event]) []sdktrace.Event {
	var all []sdktrace.Event
	for e := range seq {
		all = append(all, sdktrace.Event{
			Name: e.Name(), Time: e.Time(),
			Attributes:            d.collect(e.Attributes()),
			DroppedAttributeCount: e.DroppedAttributes(),
		})
	}
	return all
}

func (d *decoder) links(seq iter.Seq[pluginsdk.Link]) []sdktrace.Link {
	var all []sdktrace.Link
	for l := range seq {
		remote, _ := l.IsRemote()
		all = append(all, sdktrace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: l.TraceID(), SpanID: l.SpanID(), TraceFlags: l.TraceFlags(), TraceState: l.TraceState(),
				Remote: remote,
			}),
			Attributes:            d.collect(l.Attributes()),
			DroppedAttributeCount: l.DroppedAttributes(),
		})
	}
	return all
}

// collect gives what seq gives, as keep does.
func (d *decoder) collect(seq iter.Seq[attribute.KeyValue]) []attribute.KeyValue {
	d.scratch = slices.AppendSeq(d.scratch[:0], seq)
	return d.keep(d.scratch)
}

// keep copies all into a slice that is no longer than that; nil for nothing.
func (d *decoder) keep(all []attribute.KeyValue) []attribute.KeyValue {
	n := len(all)
	if n == 0 {
		return nil
	}
	if n > len(d.attributes) {
		d.attributes = make([]attribute.KeyValue, max(n, pageAttributes))
	}
	kept := d.attributes[:n:n]
	d.attributes = d.attributes[n:]
	copy(kept, all)
	return kept
}
