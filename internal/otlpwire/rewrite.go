package otlpwire

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// AppendTo appends the request with its edits to dst and gives the longer
// slice. ResourceSpans and ScopeSpans whose spans were all dropped are left
// out; if every span was, nothing but fields unknown to this package is
// appended. Malformed bytes are copied as they are. dst must not overlap the
// bytes given to Parse. The Request can be read and edited further.
func (r *Request) AppendTo(dst []byte) []byte {
	if !r.Edited() {
		return append(dst, r.raw...)
	}
	// What is added has a tag and a length too, seldom longer than that together.
	const head = 3
	room := len(r.raw) + head*(len(r.attrEdits)+len(r.children)+len(r.edits))
	for i := range r.attrEdits { // of which several may be the same piece of encoded
		room += int(r.attrEdits[i].end - r.attrEdits[i].start)
	}
	for i := range r.children {
		room += len(r.children[i].added)
	}
	w := rewriter{r: r, dst: slices.Grow(dst, room)}
	w.request()
	return w.dst
}

// rewriter copies a request and puts in the edits. It walks the bytes as Parse
// did, so that counting what it meets finds the entries.
type rewriter struct {
	r   *Request
	dst []byte

	resource, scope, span int // how many were met
}

// A copier walks one message and copies the fields that are not left out, runs
// of them as one.
type copier struct {
	cursor
	w   *rewriter
	run int // offset of the first field that is not copied yet
}

func (w *rewriter) copier(p part) copier { return copier{cursor: p.fields(), w: w} }

// leaveOut copies what stands before the current field, and not the field.
func (c *copier) leaveOut() {
	c.w.dst = append(c.w.dst, c.raw[c.run:c.start]...)
	c.run = c.pos
}

// flush copies what was read and is not copied yet.
func (c *copier) flush() {
	c.w.dst = append(c.w.dst, c.raw[c.run:c.pos]...)
	c.run = c.pos
}

// rest copies the bytes after a fault, as they are.
func (c *copier) rest() {
	c.w.dst = append(c.w.dst, c.raw[c.run:]...)
	c.w.r.note(c.err())
}

func (w *rewriter) request() {
	c := w.copier(part{w.r.raw, 0})
	for c.next() {
		if !c.is(field.RequestResourceSpans) {
			continue
		}
		entry := &w.r.resources[w.resource]
		w.resource++
		if !entry.touched {
			w.pass(entry)
			continue
		}
		c.leaveOut()
		if entry.spans > 0 && entry.alive == 0 {
			w.pass(entry)
			continue
		}
		at := w.open(field.RequestResourceSpans, len(c.content()))
		w.resourceSpans(c.here(), entry)
		w.close(at)
	}
	c.flush()
	c.rest()
}

// pass counts what stands in a ResourceSpans that is not walked.
func (w *rewriter) pass(entry *resourceEntry) {
	w.span += int(entry.spans)
	for w.scope < len(w.r.scopes) && int(w.r.scopes[w.scope].resource) < w.resource {
		w.scope++
	}
}

func (w *rewriter) resourceSpans(p part, entry *resourceEntry) {
	w.holder(p, holder{
		own: field.ResourceSpansResource, attributes: field.ResourceAttributes,
		children: field.ResourceSpansScopeSpans, child: w.scopeField,
	}, w.r.editAt(entry.edit))
}

// A holder is a ResourceSpans or a ScopeSpans: a message with a resource or a
// scope of its own, and with children.
type holder struct {
	own        uint32 // field of the resource or the scope
	attributes uint32 // field of its attributes
	children   uint32
	child      func(*copier)
}

// holder writes a ResourceSpans or a ScopeSpans. e is the edit of its resource or
// scope, nil if there is none. The pieces of an edited resource or scope become
// one.
func (w *rewriter) holder(p part, h holder, e *edit) {
	written := e == nil
	write := func() {
		if written {
			return
		}
		written = true
		own := w.r.message(p, h.own)
		at := w.open(h.own, len(own.raw))
		w.fields(own, form{attributes: h.attributes}, e)
		w.close(at)
	}
	c := w.copier(p)
	for c.next() {
		switch {
		case e != nil && c.is(h.own):
			c.leaveOut()
			write()
		case c.is(h.children):
			h.child(&c)
		}
	}
	c.flush()
	write()
	c.rest()
}

func (w *rewriter) scopeField(c *copier) {
	entry := &w.r.scopes[w.scope]
	w.scope++
	if !entry.touched {
		w.span += int(entry.spans)
		return
	}
	c.leaveOut()
	if entry.spans > 0 && entry.alive == 0 {
		w.span += int(entry.spans)
		return
	}
	at := w.open(field.ResourceSpansScopeSpans, len(c.content()))
	w.holder(c.here(), holder{
		own: field.ScopeSpansScope, attributes: field.ScopeAttributes, children: field.ScopeSpansSpans, child: w.spanField,
	}, w.r.editAt(entry.edit))
	w.close(at)
}

func (w *rewriter) spanField(c *copier) {
	e := w.r.editAt(w.r.spans[w.span].edit)
	w.span++
	if e == nil {
		return
	}
	c.leaveOut()
	if e.dropped {
		return
	}
	at := w.open(field.ScopeSpansSpans, len(c.content()))
	w.fields(c.here(), form{field.SpanAttributes, field.SpanName}, e)
	w.close(at)
}

// A form says which fields of a message can be edited.
type form struct {
	attributes uint32
	name       uint32 // 0: none
}

// fields writes a message with its edits. Attributes, events and links keep
// their places; a new name, status, attribute, event or link comes last.
func (w *rewriter) fields(p part, f form, e *edit) {
	if e.onlyAdds() && w.r.err == nil { // bytes at fault keep their place at the end
		w.dst = append(w.dst, p.raw...)
		w.addAttributes(f.attributes, e)
		return
	}
	c := w.copier(p)
	child := e.firstChild
	for c.next() {
		switch {
		case e.first != 0 && c.is(f.attributes):
			w.attribute(&c, e)
		case e.named && c.is(f.name), e.statused && c.is(field.SpanStatus):
			c.leaveOut()
		case child != 0 && w.r.children[child-1].at == c.at():
			c.leaveOut()
			child = w.child(child, c.here())
		}
	}
	c.flush()
	w.addAttributes(f.attributes, e)
	if e.named && e.name != "" {
		w.dst = protowire.AppendString(appendTag(w.dst, f.name), e.name)
	}
	for added := e.firstAdded; added != 0; {
		added = w.child(added, part{raw: w.r.children[added-1].added})
	}
	if e.statused {
		w.status(p, e)
	}
	c.rest()
}

// child writes an event or a link with its edits, and gives the next childEdit
// of the span.
func (w *rewriter) child(i int32, p part) (next int32) {
	c := &w.r.children[i-1]
	f := form{field.EventAttributes, field.EventName}
	if c.num == field.SpanLinks {
		f = form{attributes: field.LinkAttributes}
	}
	at := w.open(c.num, len(p.raw))
	w.fields(p, f, &c.edit)
	w.close(at)
	return c.next
}

func (w *rewriter) attribute(c *copier, e *edit) {
	key, _ := w.r.keyValue(c.here())
	edited := editIn(w.r, e, key.raw)
	if edited == nil {
		return
	}
	c.leaveOut()
	if edited.standsAt(&c.cursor) {
		w.dst = protowire.AppendBytes(appendTag(w.dst, c.num), edited.kv(w.r))
	}
}

func (w *rewriter) addAttributes(num uint32, e *edit) {
	for i := e.first; i != 0; i = w.r.attrEdits[i-1].next {
		if a := &w.r.attrEdits[i-1]; a.at < 0 && !a.deleted() {
			w.dst = protowire.AppendBytes(appendTag(w.dst, num), a.kv(w.r))
		}
	}
}

// status writes the new status and keeps what the old one held beside code and
// message.
func (w *rewriter) status(p part, e *edit) {
	old := w.r.message(p, field.SpanStatus)
	at := w.open(field.SpanStatus, len(old.raw))
	c := w.copier(old)
	for c.next() {
		if c.is(field.StatusMessage) || c.isVarint(field.StatusCode) {
			c.leaveOut()
		}
	}
	c.flush()
	if e.message != "" {
		w.dst = protowire.AppendString(appendTag(w.dst, field.StatusMessage), e.message)
	}
	if e.code != 0 {
		w.dst = protowire.AppendTag(w.dst, field.StatusCode, protowire.VarintType)
		w.dst = protowire.AppendVarint(w.dst, uint64(e.code))
	}
	c.rest()
	w.close(at)
}

// A mark is where the content of a message begins whose length is not known
// yet, and how many bytes were kept free for that length.
type mark struct{ at, width int }

// open writes a tag and keeps room for a length of about as many digits as that
// of the old content, for most edits change little.
func (w *rewriter) open(num uint32, oldLength int) mark {
	width := sizeVarint(uint64(oldLength))
	w.dst = appendTag(w.dst, num)
	w.dst = append(w.dst, make([]byte, width)...)
	return mark{len(w.dst), width}
}

// close writes the length, and moves the content if the guess was wrong.
func (w *rewriter) close(m mark) {
	length := len(w.dst) - m.at
	if width := sizeVarint(uint64(length)); width > m.width {
		w.dst = append(w.dst, make([]byte, width-m.width)...)
		copy(w.dst[m.at+width-m.width:], w.dst[m.at:m.at+length])
	} else if width < m.width {
		copy(w.dst[m.at+width-m.width:], w.dst[m.at:])
		w.dst = w.dst[:len(w.dst)+width-m.width]
	}
	binary.PutUvarint(w.dst[m.at-m.width:], uint64(length))
}

func appendTag(dst []byte, num uint32) []byte {
	return protowire.AppendTag(dst, protowire.Number(num), protowire.BytesType)
}
