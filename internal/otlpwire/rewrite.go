package otlpwire

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// AppendTo appends the request with its edits to dst and returns the longer slice. It omits a
// ResourceSpans or ScopeSpans if all its spans were dropped. It copies malformed bytes
// unchanged. dst must not overlap the bytes that Parse got. The Request can be read and edited
// afterwards.
func (r *Request) AppendTo(dst []byte) []byte {
	if !r.Edited() {
		return append(dst, r.raw...)
	}
	w := rewriter{r: r, dst: slices.Grow(dst, len(r.raw)+r.editedBytes())}
	w.container(part{r.raw, 0}, ofResource, 0, 0)
	return w.dst
}

// editedBytes returns an estimate of the number of bytes that the edits add to the request.
func (r *Request) editedBytes() int {
	const head = 3 // usual size of the tag and the length of an added field
	return len(r.encoded) + head*(len(r.attrEdits)+len(r.added)+len(r.edits))
}

// rewriter writes a request with its edits. It walks through the messages in the same order as
// Parse, so that it finds their entries by counting. If it makes a patch, dst gets only the bytes
// that are not copied from the request, and kept gets the ranges of the copied bytes.
type rewriter struct {
	r     *Request
	dst   []byte
	patch bool
	kept  keptRanges
}

// copy writes the bytes b. at is their offset in the request, if they are a part of the request.
func (w *rewriter) copy(b []byte, at int) {
	if !w.patch || !w.kept.add(w.r.raw, b, at, len(w.dst)) {
		w.dst = append(w.dst, b...)
	}
}

// A copier walks through the fields of one message, and copies the fields that are not omitted.
type copier struct {
	cursor
	w   *rewriter
	run int // offset of the first field that is not copied yet
}

func (w *rewriter) copier(p part) copier { return copier{cursor: p.fields(), w: w} }

// omit copies the fields before the current field, and leaves out the current field.
func (c *copier) omit() {
	c.w.copy(c.raw[c.run:c.start], c.base+c.run)
	c.run = c.pos
}

// flush copies the fields that next has read and that are not copied yet.
func (c *copier) flush() {
	c.w.copy(c.raw[c.run:c.pos], c.base+c.run)
	c.run = c.pos
}

// rest copies the remaining bytes of the message unchanged. There are some only after a fault,
// which rest records.
func (c *copier) rest() {
	c.w.copy(c.raw[c.run:], c.base+c.run)
	c.w.r.note(c.err())
}

// container writes the content p of a message that contains messages of kind k, with their
// edits. next is the index of the entry of the first of these messages. container omits fields
// with the number omitted.
func (w *rewriter) container(p part, k kind, next int32, omitted uint32) {
	c := w.copier(p)
	for c.next() {
		switch {
		case c.is(forms[k].field):
			w.entry(&c, owner{kind: k, i: next})
			next++
		case c.is(omitted):
			c.omit()
		}
	}
	c.flush()
	c.rest()
}

// entry writes the entry o, at which the copier is, with its edits.
func (w *rewriter) entry(c *copier, o owner) {
	entry := &w.r.entries[o.kind][o.i]
	if !entry.touched {
		return
	}
	c.omit()
	if w.r.isEmptied(o) {
		return
	}
	p, e := c.here(), w.r.editAt(entry.edit)
	at := w.open(forms[o.kind].field, len(p.raw))
	switch {
	case o.kind == ofSpan:
		w.fields(p, ofSpan, e)
	case e == nil:
		w.container(p, o.kind+1, entry.first, 0)
	default:
		// A resource or a scope may be encoded in several pieces. If it is edited, the pieces
		// are joined and written before the other fields.
		own := w.r.message(p, ownMessage)
		inner := w.open(ownMessage, len(own.raw))
		w.fields(own, o.kind, e)
		w.close(inner)
		w.container(p, o.kind+1, entry.first, ownMessage)
	}
	w.close(at)
}

// fields writes the fields of a message of kind k with its edits. Attributes, events and links
// that the message had keep their places. The fields that an edit adds, and a changed name or
// status, come after all other fields.
func (w *rewriter) fields(p part, k kind, e *edit) {
	// This is faster than the walk below. It is not used after a fault, because added fields
	// must then precede the malformed bytes.
	if e.onlyAdds() && w.r.err == nil {
		w.copy(p.raw, p.base)
		w.addAttributes(k, e)
		return
	}
	c := w.copier(p)
	for c.next() {
		switch {
		case e.first != 0 && c.is(forms[k].attributes):
			w.attribute(&c, e)
		case e.named && c.is(forms[k].name), e.statused && c.is(field.SpanStatus):
			c.omit()
		case e.inside && k == ofSpan && c.is(field.SpanEvents):
			w.child(&c, ofEvent)
		case e.inside && k == ofSpan && c.is(field.SpanLinks):
			w.child(&c, ofLink)
		}
	}
	c.flush()
	w.addAttributes(k, e)
	for i := e.firstAdded; i != 0; i = w.r.added[i-1].next {
		a := &w.r.added[i-1]
		w.message(a.of.kind, part{raw: a.content(w.r)}, w.r.editOf(a.of))
	}
	tail := w.r.emptyWriter()
	if e.statused {
		w.status(tail, p, e)
	}
	if e.named {
		tail.Text(int(forms[k].name), e.name)
	}
	w.dst = append(w.dst, tail.Bytes()...)
	c.rest()
}

// child writes the event or the link at which the copier is, if it is edited.
func (w *rewriter) child(c *copier, k kind) {
	if e := w.r.editOf(owner{kind: k, at: int32(c.at())}); e != nil {
		c.omit()
		w.message(k, c.here(), e)
	}
}

// message writes an event or a link with its edit e, which may be nil.
func (w *rewriter) message(k kind, p part, e *edit) {
	at := w.open(forms[k].field, len(p.raw))
	if e == nil {
		w.copy(p.raw, p.base)
	} else {
		w.fields(p, k, e)
	}
	w.close(at)
}

// attribute replaces or omits the attribute at which the copier is, if an edit changes its key.
func (w *rewriter) attribute(c *copier, e *edit) {
	key, _ := w.r.keyValue(c.here())
	edited := editIn(w.r, e, key.raw)
	if edited == nil {
		return
	}
	c.omit()
	if edited.replaces(&c.cursor) {
		w.dst = appendField(w.dst, c.num, edited.content(w.r).raw)
	}
}

// addAttributes writes the attributes that the edit e adds to a message of kind k.
func (w *rewriter) addAttributes(k kind, e *edit) {
	for i := e.first; i != 0; i = w.r.attrEdits[i-1].next {
		if a := &w.r.attrEdits[i-1]; a.isAdded() {
			w.dst = appendField(w.dst, forms[k].attributes, a.content(w.r).raw)
		}
	}
}

// status writes the new status of a span. It keeps the unknown fields of the old status.
func (w *rewriter) status(tail *Writer, span part, e *edit) {
	end := tail.Len()
	tail.Uint(field.StatusCode, uint64(e.code))
	tail.Text(field.StatusMessage, e.message)
	old := w.r.message(span, field.SpanStatus)
	tail.Raw(w.r.without(old, func(c cursor) bool { return c.is(field.StatusMessage) || c.isVarint(field.StatusCode) }))
	tail.Message(field.SpanStatus, end)
}

// A mark is the place of a message in rewriter.dst. The length of the message is not written yet.
type mark struct {
	at           int // offset of the content in dst
	width        int // number of bytes before the content that are reserved for the length
	ranges, kept int // number of kept ranges, and of their bytes, before the content
}

// open writes the tag of a message and reserves bytes for its length. It reserves as many bytes
// as the old length needed, because most edits change the length of a message little.
func (w *rewriter) open(num uint32, oldLength int) mark {
	width := protowire.SizeVarint(uint64(oldLength))
	w.dst = appendTag(w.dst, num)
	w.dst = append(w.dst, make([]byte, width)...)
	return mark{len(w.dst), width, len(w.kept.list), w.kept.bytes}
}

// close writes the length of the message that open has begun. If the length needs more or fewer
// bytes than are reserved, close moves the content.
func (w *rewriter) close(m mark) {
	written := len(w.dst) - m.at
	length := uint64(written + w.kept.bytes - m.kept)
	if width := protowire.SizeVarint(length); width != m.width {
		start := m.at - m.width + width
		w.dst = slices.Grow(w.dst, width)[:start+written]
		copy(w.dst[start:], w.dst[m.at:m.at+written])
		w.kept.move(m.ranges, width-m.width)
	}
	binary.PutUvarint(w.dst[m.at-m.width:], length)
}

func appendTag(dst []byte, num uint32) []byte {
	return protowire.AppendTag(dst, protowire.Number(num), protowire.BytesType)
}

func appendField(dst []byte, num uint32, content []byte) []byte {
	return protowire.AppendBytes(appendTag(dst, num), content)
}
