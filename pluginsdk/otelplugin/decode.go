package otelplugin

import (
	"fmt"
	"iter"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// decoder converts the spans of a batch to spans of OpenTelemetry's SDK. The results are
// copies, so processors may keep them. The spans of a batch are grouped by resource and
// scope, so the decoder converts each resource and scope only once.
type decoder struct {
	encoded    *otlpwire.Request // the batch; nil if it is not valid OTLP
	fields     otlpwire.Decoded  // the fields of the current span
	resource   *resource.Resource
	ofResource pluginsdk.Resource
	scope      instrumentation.Scope
	ofScope    pluginsdk.Scope
	haveScope  bool
	scratch    []attribute.KeyValue
	attributes []attribute.KeyValue // the unused part of the array from which keep takes memory
}

func newDecoder(b *pluginsdk.Batch) *decoder {
	encoded, err := otlpwire.Parse(b.Bytes())
	if err != nil { // the iteration over b is empty then, and the SDK answers with its error
		return &decoder{}
	}
	return &decoder{encoded: encoded}
}

// err returns a final error if a span of the batch was malformed. All spans before the
// malformed span have been decoded.
func (d *decoder) err() error {
	if d.encoded == nil || d.encoded.Err() == nil {
		return nil
	}
	return pluginsdk.Permanent(fmt.Errorf("malformed batch: %w", d.encoded.Err()))
}

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

// Decoded spans and attributes are allocated in arrays of these sizes, to save
// allocations. If a processor keeps a span, its whole array stays in memory.
const (
	pageSpans      = 32
	pageAttributes = 256
)

// stub returns the SDK's form of s, the span with index i in the batch. It has all fields
// of OTLP. OTLP has no number of children, so that is 0.
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
	stub.StartTime, stub.EndTime = otlpwire.UnixTime(f.Start), otlpwire.UnixTime(f.End)
	stub.Attributes = d.keep(f.Attributes)
	stub.Status = sdktrace.Status{Code: otlpwire.StatusCode(f.Code), Description: f.Message}
	stub.DroppedAttributes, stub.DroppedEvents, stub.DroppedLinks = int(f.DroppedAttributes), int(f.DroppedEvents), int(f.DroppedLinks)
	stub.Resource = d.resource
	stub.InstrumentationScope = d.scope
	// SpanStub.Snapshot returns this field as the scope if the scope has no name, version
	// and URL.
	stub.InstrumentationLibrary = d.scope //nolint:staticcheck // deprecated for readers
	if f.Events > 0 {
		stub.Events = d.events(s.Events())
	}
	if f.Links > 0 {
		stub.Links = d.links(s.Links())
	}
}

// enter converts the resource and the scope of the span, unless the previous span had the
// same.
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

// spanContext returns the span context of s. If the sender omits OTLP's flags, as old
// SDKs do, the span counts as sampled: it was exported, and the SDK's batch processor
// would silently drop an unsampled span.
func spanContext(s pluginsdk.Span, f *otlpwire.Decoded) trace.SpanContext {
	flags := trace.TraceFlags(f.Flags & 0xff)
	if f.Flags&otlpwire.FlagRemoteKnown == 0 && flags == 0 {
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

// parent returns the span context of the parent, or zero for a root span. OTLP has only
// the parent's id, and whether it is remote. parent takes flags and trace state from the
// span itself, because a child usually has the same.
func parent(f *otlpwire.Decoded, own trace.SpanContext) trace.SpanContext {
	id := trace.SpanID(f.ParentID)
	if !id.IsValid() {
		return trace.SpanContext{}
	}
	return own.WithSpanID(id).WithRemote(f.Flags&otlpwire.FlagRemote != 0)
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

// collect returns the attributes of seq as a slice.
func (d *decoder) collect(seq iter.Seq[attribute.KeyValue]) []attribute.KeyValue {
	d.scratch = slices.AppendSeq(d.scratch[:0], seq)
	return d.keep(d.scratch)
}

// keep returns a copy of the attributes without spare capacity, or nil if there are none.
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
