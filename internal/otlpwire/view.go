package otlpwire

import (
	"iter"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// View is the common part of Span, Resource, Scope, Event and Link: a message with
// attributes. A read returns the state after all earlier edits of the message, through this or
// another view. It returns zero for an absent field. Each read walks through the message.
type View struct {
	r  *Request
	of owner
}

// An owner identifies a message that can be edited.
type owner struct {
	kind kind
	i    int32 // index of the message's entry; for an event or a link, index of the span's entry
	at   int32 // offset of an event or a link in the request; for an added event or link, see addedChild.of; otherwise 0
}

// Attribute returns the value of a key, and reports whether the message has the key. If the key
// occurs several times, the last value counts. The value does not refer to the request.
func (v View) Attribute(key string) (attribute.Value, bool) {
	if e := edited(v, key); e != nil {
		return v.r.decodeKeyValue(e.content(v.r)).Value, !e.deleted()
	}
	p := v.part()
	i := v.r.search(v.of, p, key).last
	if i < 0 {
		return attribute.Value{}, false
	}
	return v.r.value(v.r.valueAt(p, i), maxDepth), true
}

// Attributes returns the attributes in order. Added attributes come last. If a key occurs several
// times, all its attributes are returned. Edits are allowed during the iteration.
func (v View) Attributes() iter.Seq[attribute.KeyValue] {
	return func(yield func(attribute.KeyValue) bool) {
		c := v.part().fields()
		for c.next() {
			if !c.is(forms[v.of.kind].attributes) {
				continue
			}
			key, value := v.r.keyValue(c.here())
			if e := edited(v, key.raw); e != nil {
				if !e.replaces(&c) {
					continue
				}
				_, value = v.r.keyValue(e.content(v.r))
			}
			if !yield(attribute.KeyValue{Key: attribute.Key(v.r.intern(key.raw)), Value: v.r.value(value, maxDepth)}) {
				return
			}
		}
		v.r.note(c.err())
		if list := v.r.editOf(v.of); list != nil {
			for i := list.first; i != 0; i = v.r.attrEdits[i-1].next {
				if e := &v.r.attrEdits[i-1]; e.isAdded() && !yield(v.r.decodeKeyValue(e.content(v.r))) {
					return
				}
			}
		}
	}
}

// DroppedAttributes returns the number of attributes that the sender left out because
// of its limits.
func (v View) DroppedAttributes() uint32 { return v.count(forms[v.of.kind].dropped) }

// Name returns the name of a span, an event or a scope. A resource and a link have no name, for
// which it returns "".
func (v View) Name() string {
	if e := v.r.editOf(v.of); e != nil && e.named {
		return e.name
	}
	return v.r.intern(v.bytes(forms[v.of.kind].name))
}

// SetAttribute replaces the attribute with this key, or adds an attribute at the end. If the key
// occurs several times, only one attribute with this key remains. As in every edit, U+FFFD
// replaces bytes of a text that are not valid UTF-8.
func (v View) SetAttribute(kv attribute.KeyValue) {
	kv.Key = attribute.Key(valid(string(kv.Key)))
	start, end := v.r.encode(kv)
	if e := edited(v, string(kv.Key)); e != nil {
		e.start, e.end = start, end
		return
	}
	v.record(attrEdit{key: string(kv.Key), start: start, end: end, at: v.r.firstOffset(v, string(kv.Key))})
}

// DeleteAttribute removes every attribute with this key. If the message has no such attribute, no
// edit is recorded.
func (v View) DeleteAttribute(key string) {
	if e := edited(v, key); e != nil {
		e.start, e.end = 0, 0
	} else if at := v.r.firstOffset(v, key); at >= 0 {
		v.record(attrEdit{key: key, at: at})
	}
}

// SetName replaces the name of a span or an event.
func (v View) SetName(name string) {
	e := v.r.touch(v.of)
	e.named, e.name = true, valid(name)
}

// part returns the content of the message as it is in the request, or as it was added, without
// later edits.
func (v View) part() part {
	switch v.of.kind {
	case ofResource, ofScope:
		return v.r.own(v.of)
	case ofSpan:
		return v.r.entryPart(v.of)
	}
	if i := int(v.of.at) - len(v.r.raw); i >= len(v.r.added) { // Release has removed the added event or link
		return part{}
	} else if i >= 0 {
		return part{raw: v.r.added[i].content(v.r)}
	}
	c := cursor{part: part{v.r.raw, 0}, pos: int(v.of.at)}
	c.next()
	return c.here()
}

// entryPart returns the content of a span, a ResourceSpans or a ScopeSpans.
func (r *Request) entryPart(o owner) part {
	e := &r.entries[o.kind][o.i]
	return part{r.raw[e.start:e.end:e.end], int(e.start)}
}

// mergedMessage is the resource or the scope of an entry. If it is encoded in several pieces, they
// are joined.
type mergedMessage struct {
	known int32 // 1 + index of the entry; 0 if none is known
	part  part
}

// ownMessage is the field number of the resource in a ResourceSpans and of the scope in
// a ScopeSpans.
const ownMessage = field.ResourceSpansResource

// own returns the resource in a ResourceSpans, or the scope in a ScopeSpans. It keeps the last
// result of each kind, because callers ask for the resource and the scope of every span, and a
// search walks through all fields of the entry.
func (r *Request) own(o owner) part {
	m := &r.merged[o.kind]
	if m.known != o.i+1 {
		m.known, m.part = o.i+1, r.message(r.entryPart(o), ownMessage)
	}
	return m.part
}

// bytes returns the content of the last field with this number, or nil.
func (v View) bytes(num uint32) []byte { return v.r.lastBytes(v.part(), num) }

// count returns the number in a field of VarintType, or 0 if the message lacks the field.
func (v View) count(num uint32) uint32 { return uint32(v.number(num, protowire.VarintType)) }

func (v View) number(num uint32, typ protowire.Type) uint64 {
	return v.r.lastNumber(v.part(), num, typ)
}

// lastBytes returns the content of the last field of p with this number, or nil.
func (r *Request) lastBytes(p part, num uint32) []byte {
	var found []byte
	c := p.fields()
	for c.next() {
		if c.is(num) {
			found = c.content()
		}
	}
	r.note(c.err())
	return found
}

// lastNumber returns the value of the last field of p with this number and type, or 0 if there
// is none.
func (r *Request) lastNumber(p part, num uint32, typ protowire.Type) uint64 {
	var found uint64
	c := p.fields()
	for c.next() {
		if c.num == num && c.typ == typ {
			found = c.bits
		}
	}
	r.note(c.err())
	return found
}

// without returns a copy of p without the fields for which match returns true. If p is malformed,
// the bytes after the fault are copied, too.
func (r *Request) without(p part, match func(cursor) bool) []byte {
	var kept []byte
	c := p.fields()
	for c.next() {
		if !match(c) {
			kept = append(kept, c.raw[c.start:c.pos]...)
		}
	}
	r.note(c.err())
	return append(kept, c.raw[c.pos:]...)
}

// message returns the content of the message in field num of p. If the message is encoded in
// several pieces, they are joined.
func (r *Request) message(p part, num uint32) part {
	var found part
	c := p.fields()
	for c.next() {
		if c.is(num) {
			found = found.join(c.here())
		}
	}
	r.note(c.err())
	return found
}
