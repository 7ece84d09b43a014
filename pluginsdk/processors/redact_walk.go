package processors

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/pluginsdk"
)

// redactWalk is one walk over the bytes of a batch. It looks at every field,
// the edits are made on the batch's views. It is kept for the memory it has.
type redactWalk struct {
	rules *redactRules
	views views
	keys  map[string]keyClass // of keys met before, in this batch or earlier
	spans int                 // met so far

	owner  owner    // whose attributes are being looked at
	edits  int      // of its attributes
	edited []string // their keys
	reason string   // why a span was dropped, the first time in the batch
}

// keyClass says what becomes of an attribute by its key.
type keyClass uint8

const (
	keyPlain   keyClass = iota // its value is looked at
	keyBlocked                 // its value is taken out
	keyWeak                    // its value is taken out if it looks like a secret too, and looked at if not
	keyIgnored                 // its value stays
	keyRemoved                 // the key itself can not stay
)

// An owner has attributes.
type owner struct {
	kind  ownerKind
	span  int  // its number, or that of one of the resource's or scope's spans
	child int  // number of the event or link
	none  bool // a resource or scope without spans, which can not be edited
}

type ownerKind uint8

const (
	ownerSpan ownerKind = iota
	ownerResource
	ownerScope
	ownerEvent
	ownerLink
)

// maxAttributeEdits bounds the edits of one owner, for each costs a walk over
// all of its attributes.
const maxAttributeEdits = 1024

// dropError says that spans must be dropped, for something in them can neither be
// checked nor edited.
type dropError struct{ reason string }

func (e dropError) Error() string { return e.reason }

// The reasons are values, so that a batch of such spans costs nothing for them.
var (
	errUnknown error = dropError{"a field that OTLP does not define"}
	errFixed   error = dropError{"something to redact in an id, a trace state, a schema URL or a scope's name"}
	errTooMany error = dropError{fmt.Sprintf("more than %d attributes to redact on one span, event, link, resource or scope", maxAttributeEdits)}
	errNone    error = dropError{"an attribute to redact"}
)

func newRedactWalk(rules *redactRules) *redactWalk {
	return &redactWalk{rules: rules, keys: map[string]keyClass{}}
}

// reset readies w for another batch, or lets go of the last one.
func (w *redactWalk) reset(b *pluginsdk.Batch) {
	w.views.reset(b)
	w.own(owner{})
	w.spans, w.reason = 0, ""
}

// drop drops spans, where err asks for that; other errors it gives back.
func (w *redactWalk) drop(err error, from, to int) error {
	if err == nil {
		return nil
	}
	why, ok := err.(dropError) //nolint:errorlint // made here, and never wrapped
	if !ok {
		return err
	}
	if from == to {
		return pluginsdk.Permanent(fmt.Errorf("batch has %s where no span is: it can not be redacted", why.reason))
	}
	for i := from; i < to; i++ {
		w.views.span(i).Drop()
	}
	if w.reason == "" {
		w.reason = why.reason
	}
	return nil
}

func (w *redactWalk) request(raw []byte) error {
	f := fieldsOf(raw)
	for f.next() {
		var err error
		if f.is(fieldResourceSpans) {
			err = w.resourceSpans(f.content)
		} else {
			err = w.drop(w.unknown(&f), 0, 0)
		}
		if err != nil {
			return err
		}
	}
	return malformed("batch", f.err)
}

// resourceSpans looks at the spans first: then it is known which they are.
func (w *redactWalk) resourceSpans(raw []byte) error {
	first := w.spans
	f := fieldsOf(raw)
	for f.next() {
		if f.is(fieldScopeSpans) {
			if err := w.scopeSpans(f.content); err != nil {
				return err
			}
		}
	}
	if f.err != nil {
		return malformed("resource", f.err)
	}
	w.own(owner{kind: ownerResource, span: first, none: first == w.spans})
	return w.drop(w.aroundScopes(raw), first, w.spans)
}

// aroundScopes looks at all of a ResourceSpans but its scopes.
func (w *redactWalk) aroundScopes(raw []byte) error {
	f := fieldsOf(raw)
	for f.next() {
		var err error
		switch {
		case f.is(fieldResource):
			err = w.resource(f.content)
		case f.is(fieldScopeSpans):
		case f.is(fieldSchemaURL):
			err = w.fixed(f.content)
		default:
			err = w.unknown(&f)
		}
		if err != nil {
			return err
		}
	}
	return nil // f has no fault: it was walked before
}

func (w *redactWalk) resource(raw []byte) error {
	f := fieldsOf(raw)
	for f.next() {
		var err error
		switch {
		case f.is(fieldResourceAttributes):
			err = w.attribute(f.content)
		case f.is(fieldResourceEntities): // keys and a schema URL
			err = w.opaque(f.content)
		case f.isNumber(fieldResourceDroppedAttributes, protowire.VarintType):
		default:
			err = w.unknown(&f)
		}
		if err != nil {
			return err
		}
	}
	return malformed("resource", f.err)
}

func (w *redactWalk) scopeSpans(raw []byte) error {
	first := w.spans
	f := fieldsOf(raw)
	for f.next() {
		if !f.is(fieldSpan) {
			continue
		}
		w.spans++
		if err := w.drop(w.span(f.content, w.spans-1), w.spans-1, w.spans); err != nil {
			return err
		}
	}
	if f.err != nil {
		return malformed("scope", f.err)
	}
	w.own(owner{kind: ownerScope, span: first, none: first == w.spans})
	return w.drop(w.aroundSpans(raw), first, w.spans)
}

// aroundSpans looks at all of a ScopeSpans but its spans.
func (w *redactWalk) aroundSpans(raw []byte) error {
	f := fieldsOf(raw)
	for f.next() {
		var err error
		switch {
		case f.is(fieldScope):
			err = w.scope(f.content)
		case f.is(fieldSpan):
		case f.is(fieldSchemaURL):
			err = w.fixed(f.content)
		default:
			err = w.unknown(&f)
		}
		if err != nil {
			return err
		}
	}
	return nil // as in aroundScopes
}

func (w *redactWalk) scope(raw []byte) error {
	f := fieldsOf(raw)
	for f.next() {
		var err error
		switch {
		case f.is(fieldScopeAttributes):
			err = w.attribute(f.content)
		case f.is(fieldScopeName), f.is(fieldScopeVersion):
			err = w.fixed(f.content)
		case f.isNumber(fieldScopeDroppedAttributes, protowire.VarintType):
		default:
			err = w.unknown(&f)
		}
		if err != nil {
			return err
		}
	}
	return malformed("scope", f.err)
}

// texts notes how often a text field was met, for a message that has it twice
// hides all but the last from those who read it by protobuf's rules.
type texts struct {
	last  []byte
	times int
	dirty bool
}

func (w *redactWalk) met(t *texts, text []byte) {
	t.last = text
	t.times++
	t.dirty = t.dirty || t.times > 1 || !w.rules.clean(text)
}

// span looks at all of a span. Its number is i.
func (w *redactWalk) span(raw []byte, i int) error {
	w.own(owner{kind: ownerSpan, span: i})
	var name, message texts
	f := fieldsOf(raw)
	for f.next() {
		var err error
		switch {
		case f.is(fieldSpanAttributes):
			err = w.attribute(f.content)
		case f.is(fieldSpanName):
			w.met(&name, f.content)
		case f.is(fieldSpanStatus):
			err = w.status(f.content, &message)
		case f.is(fieldSpanEvents), f.is(fieldSpanLinks): // below
		case f.is(fieldSpanTraceID):
			err = w.id(f.content, traceIDBytes)
		case f.is(fieldSpanSpanID), f.is(fieldSpanParentID):
			err = w.id(f.content, spanIDBytes)
		case f.is(fieldSpanTraceState):
			err = w.fixed(f.content)
		case f.isNumber(fieldSpanStart, protowire.Fixed64Type), f.isNumber(fieldSpanEnd, protowire.Fixed64Type),
			f.isNumber(fieldSpanFlags, protowire.Fixed32Type), f.isNumber(fieldSpanKind, protowire.VarintType),
			f.isNumber(fieldSpanDroppedAttributes, protowire.VarintType),
			f.isNumber(fieldSpanDroppedEvents, protowire.VarintType),
			f.isNumber(fieldSpanDroppedLinks, protowire.VarintType):
		default:
			err = w.unknown(&f)
		}
		if err != nil {
			return err
		}
	}
	if f.err != nil {
		return malformed("span", f.err)
	}
	if name.dirty {
		w.views.span(i).SetName(w.rules.redactText(name.last))
	}
	if message.dirty {
		span := w.views.span(i)
		code, _ := span.Status()
		span.SetStatus(code, w.rules.redactText(message.last))
	}
	return w.children(raw, i)
}

const (
	traceIDBytes = 16
	spanIDBytes  = 8
)

// status may come in pieces, which are one.
func (w *redactWalk) status(raw []byte, message *texts) error {
	f := fieldsOf(raw)
	for f.next() {
		var err error
		switch {
		case f.is(fieldStatusMessage):
			w.met(message, f.content)
		case f.isNumber(fieldStatusCode, protowire.VarintType):
		default:
			err = w.unknown(&f)
		}
		if err != nil {
			return err
		}
	}
	return malformed("status", f.err)
}

// children looks at a span's events and links.
func (w *redactWalk) children(raw []byte, span int) error {
	events, links := 0, 0
	f := fieldsOf(raw)
	for f.next() {
		var err error
		switch {
		case f.is(fieldSpanEvents):
			err = w.event(f.content, span, events)
			events++
		case f.is(fieldSpanLinks):
			err = w.link(f.content, span, links)
			links++
		}
		if err != nil {
			return err
		}
	}
	return nil // as in aroundScopes
}

func (w *redactWalk) event(raw []byte, span, i int) error {
	w.own(owner{kind: ownerEvent, span: span, child: i})
	var name texts
	f := fieldsOf(raw)
	for f.next() {
		var err error
		switch {
		case f.is(fieldEventAttributes):
			err = w.attribute(f.content)
		case f.is(fieldEventName):
			w.met(&name, f.content)
		case f.isNumber(fieldEventTime, protowire.Fixed64Type),
			f.isNumber(fieldEventDroppedAttributes, protowire.VarintType):
		default:
			err = w.unknown(&f)
		}
		if err != nil {
			return err
		}
	}
	if name.dirty {
		w.views.event(span, i).SetName(w.rules.redactText(name.last))
	}
	return malformed("event", f.err)
}

func (w *redactWalk) link(raw []byte, span, i int) error {
	w.own(owner{kind: ownerLink, span: span, child: i})
	f := fieldsOf(raw)
	for f.next() {
		var err error
		switch {
		case f.is(fieldLinkAttributes):
			err = w.attribute(f.content)
		case f.is(fieldLinkTraceID):
			err = w.id(f.content, traceIDBytes)
		case f.is(fieldLinkSpanID):
			err = w.id(f.content, spanIDBytes)
		case f.is(fieldLinkTraceState):
			err = w.fixed(f.content)
		case f.isNumber(fieldLinkFlags, protowire.Fixed32Type),
			f.isNumber(fieldLinkDroppedAttributes, protowire.VarintType):
		default:
			err = w.unknown(&f)
		}
		if err != nil {
			return err
		}
	}
	return malformed("link", f.err)
}

// fixed looks at a text that can not be edited.
func (w *redactWalk) fixed(text []byte) error {
	if !w.rules.clean(text) {
		return errFixed
	}
	return nil
}

// opaque looks at bytes that can not be edited and may hold texts.
func (w *redactWalk) opaque(raw []byte) error {
	if len(raw) > w.rules.maxBytes || w.foundWithin(raw, 1) {
		return errFixed
	}
	return nil
}

// foundWithin tells whether a secret is in bytes that may be a text, a message,
// or several messages deep. In a message each text is looked at by itself too:
// its length in front of it may be a letter, and hide that it begins there.
func (w *redactWalk) foundWithin(raw []byte, depth int) bool {
	if depth > w.rules.maxDepth || w.rules.found(raw) {
		return true
	}
	for f := fieldsOf(raw); f.next(); {
		if f.typ == protowire.BytesType && w.foundWithin(f.content, depth+1) {
			return true
		}
	}
	return false
}

// id looks at an id: one of the right length is no text.
func (w *redactWalk) id(raw []byte, length int) error {
	if len(raw) == length {
		return nil
	}
	return w.opaque(raw)
}

// unknown looks at a field that OTLP did not define when this was written, or
// not with that type.
func (w *redactWalk) unknown(f *fields) error {
	if !w.rules.keepUnknown {
		return errUnknown
	}
	switch f.typ {
	case protowire.BytesType:
		return w.opaque(f.content)
	case protowire.VarintType, protowire.Fixed64Type:
		if !w.rules.cleanInt(int64(f.bits)) {
			return errFixed
		}
		return nil
	case protowire.Fixed32Type:
		return nil
	default: // a group, the content of which is not looked at
		return errUnknown
	}
}
