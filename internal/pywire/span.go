package pywire

import (
	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// batch reads a batch and writes it as fields of ExportTraceServiceRequest, a ResourceSpans for
// each group.
func (c *Converter) batch(r *reader) {
	if !c.record(r, "batch", 2) {
		return
	}
	if r.uint() != version {
		c.fail("batch", errVersion)
		return
	}
	c.list("batch", r.skip(), func(r *reader) {
		end := c.w.Len()
		if c.record(r, "resource", 3) {
			attributes, schema, scopes := r.skip(), r.text(), r.skip()
			text(&c.w, field.ResourceSpansSchemaURL, schema)
			c.list("resource", scopes, c.scope)
			head := c.w.Len()
			c.attributes(field.ResourceAttributes, attributes, 1)
			c.w.Message(field.ResourceSpansResource, head)
		}
		c.w.Message(field.RequestResourceSpans, end)
	})
}

func (c *Converter) scope(r *reader) {
	if !c.record(r, "scope", 5) {
		return
	}
	name, version, schema, attributes, spans := r.text(), r.text(), r.text(), r.skip(), r.skip()
	end := c.w.Len()
	text(&c.w, field.ScopeSpansSchemaURL, schema)
	c.list("scope", spans, c.span)
	head := c.w.Len()
	c.attributes(field.ScopeAttributes, attributes, 1)
	text(&c.w, field.ScopeVersion, version)
	text(&c.w, field.ScopeName, name)
	c.w.Message(field.ScopeSpansScope, head)
	c.w.Message(field.ResourceSpansScopeSpans, end)
}

func (c *Converter) span(r *reader) {
	if !c.record(r, "span", 17) {
		return
	}
	trace, span, parent, flags, state, name := r.bytes(), r.bytes(), r.bytes(), r.uint32(), r.text(), r.text()
	kind, start, ended, attributes := r.uint(), r.uint(), r.uint(), r.skip()
	code, message, events, links := r.uint(), r.text(), r.skip(), r.skip()
	droppedAttributes, droppedEvents, droppedLinks := r.uint32(), r.uint32(), r.uint32()
	if !c.ok(r, "span") {
		return
	}
	w := &c.w
	end := w.Len()
	w.Fixed32(field.SpanFlags, uint32(flags)) //nolint:gosec // checked by the reader
	status := w.Len()
	w.Uint(field.StatusCode, code)
	text(w, field.StatusMessage, message)
	w.Message(field.SpanStatus, status)
	w.Uint(field.SpanDroppedLinks, droppedLinks)
	c.list("links", links, c.link)
	w.Uint(field.SpanDroppedEvents, droppedEvents)
	c.list("events", events, c.event)
	w.Uint(field.SpanDroppedAttributes, droppedAttributes)
	c.attributes(field.SpanAttributes, attributes, 1)
	w.Fixed64(field.SpanEnd, ended)
	w.Fixed64(field.SpanStart, start)
	w.Uint(field.SpanKind, kind)
	text(w, field.SpanName, name)
	content(w, field.SpanParentID, parent)
	text(w, field.SpanTraceState, state)
	content(w, field.SpanSpanID, span)
	content(w, field.SpanTraceID, trace)
	w.Message(field.ScopeSpansSpans, end)
}

func (c *Converter) event(r *reader) {
	if !c.record(r, "event", 4) {
		return
	}
	time, name, attributes, dropped := r.uint(), r.text(), r.skip(), r.uint32()
	if !c.ok(r, "event") {
		return
	}
	end := c.w.Len()
	c.w.Uint(field.EventDroppedAttributes, dropped)
	c.attributes(field.EventAttributes, attributes, 1)
	text(&c.w, field.EventName, name)
	c.w.Fixed64(field.EventTime, time)
	c.w.Message(field.SpanEvents, end)
}

func (c *Converter) link(r *reader) {
	if !c.record(r, "link", 6) {
		return
	}
	trace, span, state, flags, attributes, dropped := r.bytes(), r.bytes(), r.text(), r.uint32(), r.skip(), r.uint32()
	if !c.ok(r, "link") {
		return
	}
	end := c.w.Len()
	c.w.Fixed32(field.LinkFlags, uint32(flags)) //nolint:gosec // checked by the reader
	c.w.Uint(field.LinkDroppedAttributes, dropped)
	c.attributes(field.LinkAttributes, attributes, 1)
	text(&c.w, field.LinkTraceState, state)
	content(&c.w, field.LinkSpanID, span)
	content(&c.w, field.LinkTraceID, trace)
	c.w.Message(field.SpanLinks, end)
}
