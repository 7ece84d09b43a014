package otelplugin

import (
	"iter"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// decoder makes the SDK's spans of those of one batch. What it makes refers to
// nothing of the batch, so that a processor may keep it. Spans of a batch come
// grouped, so the last resource and scope are kept: all of a group share them.
type decoder struct {
	resource   *resource.Resource
	ofResource pluginsdk.Resource
	scope      instrumentation.Scope
	ofScope    pluginsdk.Scope
	haveScope  bool
	scratch    []attribute.KeyValue
}

// decodeAll gives the spans of b.
func decodeAll(b *pluginsdk.Batch) []sdktrace.ReadOnlySpan {
	spans := make([]sdktrace.ReadOnlySpan, 0, b.Len())
	var d decoder
	for span := range b.Spans() {
		spans = append(spans, d.stub(span).Snapshot())
	}
	return spans
}

// stub gives all of a span that OTLP carries. It has no number of children.
func (d *decoder) stub(s pluginsdk.Span) tracetest.SpanStub {
	d.enter(s)
	own := spanContext(s)
	code, description := s.Status()
	return tracetest.SpanStub{
		Name:                 s.Name(),
		SpanContext:          own,
		Parent:               parent(s, own),
		SpanKind:             trace.ValidateSpanKind(s.Kind()),
		StartTime:            s.StartTime(),
		EndTime:              s.EndTime(),
		Attributes:           d.collect(s.Attributes()),
		Events:               d.events(s.Events()),
		Links:                d.links(s.Links()),
		Status:               sdktrace.Status{Code: code, Description: description},
		DroppedAttributes:    s.DroppedAttributes(),
		DroppedEvents:        s.DroppedEvents(),
		DroppedLinks:         s.DroppedLinks(),
		Resource:             d.resource,
		InstrumentationScope: d.scope,
		// Snapshot takes this one where a scope has no more than attributes.
		InstrumentationLibrary: d.scope, //nolint:staticcheck // deprecated for readers
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
func spanContext(s pluginsdk.Span) trace.SpanContext {
	flags := s.TraceFlags()
	if _, known := s.ParentIsRemote(); !known && flags == 0 {
		flags = trace.FlagsSampled
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: s.TraceID(), SpanID: s.SpanID(), TraceFlags: flags, TraceState: s.TraceState(),
	})
}

// parent is the context of the parent of s, the zero one for a root. OTLP
// carries its id and whether it is remote; flags and state are taken to be
// those of s, as samplers leave them.
func parent(s pluginsdk.Span, own trace.SpanContext) trace.SpanContext {
	id := s.ParentID()
	if !id.IsValid() {
		return trace.SpanContext{}
	}
	remote, _ := s.ParentIsRemote()
	return own.WithSpanID(id).WithRemote(remote)
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

// collect gives what seq gives, in a slice that is no longer than that; nil for
// nothing.
func (d *decoder) collect(seq iter.Seq[attribute.KeyValue]) []attribute.KeyValue {
	d.scratch = slices.AppendSeq(d.scratch[:0], seq)
	if len(d.scratch) == 0 {
		return nil
	}
	return slices.Clone(d.scratch)
}
