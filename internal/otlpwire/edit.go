package otlpwire

import (
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
)

// An edit holds the recorded changes of one message.
type edit struct {
	first, last           int32            // ends of a list in Request.attrEdits, as 1 + index; 0 if it is empty
	count                 int32            // length of this list
	index                 map[string]int32 // 1 + index in Request.attrEdits, by key; nil if the list is short
	firstAdded, lastAdded int32            // ends of a list in Request.added, as 1 + index; 0 if it is empty

	named, statused bool // the fields name, or code and message, are set
	inside          bool // an attribute that was in the bytes, an event or a link was changed

	name    string // new name of a span or an event
	code    int32  // new status of a span
	message string
}

// onlyAdds reports whether the edit leaves all fields of the message in place and only
// adds attributes.
func (e *edit) onlyAdds() bool {
	return e.first != 0 && !e.inside && !e.named && !e.statused && e.firstAdded == 0
}

// An attrEdit is the change of one key in a message. A message has at most one attrEdit for
// a key.
type attrEdit struct {
	key string
	// start and end are the offsets in Request.encoded of the new KeyValue's content,
	// which is never empty. end is 0 if the key is deleted.
	start, end int32
	at         int32 // offset of the attribute that is replaced or deleted; -1 if there is none
	next       int32 // 1 + index of the message's next attrEdit, in the order of the calls; 0 if it is the last
}

func (e *attrEdit) deleted() bool { return e.end == 0 }

// isAdded reports whether the edit adds an attribute whose key the message did not have.
func (e *attrEdit) isAdded() bool { return e.at < 0 && !e.deleted() }

// replaces reports whether the new attribute replaces the attribute at c. If several attributes
// of the message have the key, the first is replaced, and the further attributes are removed.
func (e *attrEdit) replaces(c *cursor) bool { return !e.deleted() && int(e.at) == c.at() }

// content returns the content of the new KeyValue, empty if the key is deleted.
func (e *attrEdit) content(r *Request) part { return part{raw: r.encoded[e.start:e.end:e.end]} }

// An addedChild is an event or a link that was added to a span.
type addedChild struct {
	of         owner // its field at is the length of the request plus the index in Request.added
	start, end int32 // range of the content in Request.encoded
	next       int32 // 1 + index of the span's next addedChild; 0 if it is the last
}

func (a *addedChild) content(r *Request) []byte { return r.encoded[a.start:a.end:a.end] }

// editOf returns the edit of a message, or nil if it has none. The pointer is valid until the
// next call of touch.
func (r *Request) editOf(o owner) *edit {
	if len(r.edits) == 0 {
		return nil
	}
	i := r.childEdits[o.at]
	if o.kind <= ofSpan {
		i = r.entries[o.kind][o.i].edit
	}
	return r.editAt(i)
}

// editAt returns an edit. i is the value of a field such as entry.edit: the edit's index
// plus one, or 0 for no edit, for which editAt returns nil.
func (r *Request) editAt(i int32) *edit {
	if i == 0 {
		return nil
	}
	return &r.edits[i-1]
}

// touch returns the edit of a message. If the message has none, touch adds an edit, and marks
// the entries that contain the message, so that AppendTo rewrites them.
func (r *Request) touch(o owner) *edit {
	if e := r.editOf(o); e != nil {
		return e
	}
	if o.kind > ofSpan {
		r.touch(owner{kind: ofSpan, i: o.i}).inside = true
	} else {
		for k, i := o.kind, o.i; ; k-- {
			r.entries[k][i].touched = true
			if k == ofResource {
				break
			}
			i = r.entries[k][i].parent
		}
	}
	r.edits = append(r.edits, edit{})
	i := int32(len(r.edits))
	switch {
	case o.kind <= ofSpan:
		r.entries[o.kind][o.i].edit = i
	case r.childEdits == nil:
		r.childEdits = map[int32]int32{o.at: i}
	default:
		r.childEdits[o.at] = i
	}
	return &r.edits[i-1]
}

// edited returns the attrEdit of a key in the message of v, or nil if there is none.
func edited[K string | []byte](v View, key K) *attrEdit {
	if list := v.r.editOf(v.of); list != nil {
		return editIn(v.r, list, key)
	}
	return nil
}

// editIn returns the attrEdit of a key in an edit (list), or nil if there is none.
func editIn[K string | []byte](r *Request, list *edit, key K) *attrEdit {
	if list.index != nil {
		return r.attrEditAt(list.index[string(key)])
	}
	for i := list.first; i != 0; i = r.attrEdits[i-1].next {
		if r.attrEdits[i-1].key == string(key) {
			return &r.attrEdits[i-1]
		}
	}
	return nil
}

// attrEditAt returns the attrEdit for 1 + its index, or nil for 0.
func (r *Request) attrEditAt(i int32) *attrEdit {
	if i == 0 {
		return nil
	}
	return &r.attrEdits[i-1]
}

// record adds an attrEdit to the edit of the message.
func (v View) record(e attrEdit) {
	r := v.r
	list := r.touch(v.of)
	list.inside = list.inside || e.at >= 0
	r.attrEdits = append(r.attrEdits, e)
	i := int32(len(r.attrEdits))
	if last := r.attrEditAt(list.last); last != nil {
		last.next = i
	} else {
		list.first = i
	}
	list.last = i
	list.count++
	switch {
	case list.index != nil:
		list.index[e.key] = i
	case list.count > manyAttributes:
		list.index = make(map[string]int32, 2*manyAttributes)
		for i := list.first; i != 0; i = r.attrEdits[i-1].next {
			list.index[r.attrEdits[i-1].key] = i
		}
	}
}

// addChild records that an event or a link is added to s. It comes after the span's other
// events or links.
func (r *Request) addChild(k kind, s Span, content []byte) {
	e := r.touch(s.of)
	start, end := r.keep(content)
	of := owner{kind: k, i: s.of.i, at: int32(len(r.raw) + len(r.added))}
	r.added = append(r.added, addedChild{of: of, start: start, end: end})
	i := int32(len(r.added))
	if e.firstAdded == 0 {
		e.firstAdded = i
	} else {
		r.added[e.lastAdded-1].next = i
	}
	e.lastAdded = i
}

// maxKeptWriter bounds the size of the writer's buffer that a Request keeps between edits,
// in bytes.
const maxKeptWriter = 64 << 10

// emptyWriter returns the writer of the request, without content.
func (r *Request) emptyWriter() *Writer {
	r.writer.Reset(maxKeptWriter)
	return &r.writer
}

// encode writes the content of a KeyValue into Request.encoded, and returns its offsets
// there.
func (r *Request) encode(kv attribute.KeyValue) (start, end int32) {
	w := r.emptyWriter()
	r.scratch = kv // the writer needs a pointer, and kv itself would escape to the heap
	w.keyValue(&r.scratch)
	r.scratch = attribute.KeyValue{}
	return r.keep(w.Bytes())
}

// writeAttributes writes a repeated KeyValue field. Unlike Writer.KeyValues, it does
// not make kvs escape to the heap.
func (r *Request) writeAttributes(num int, kvs []attribute.KeyValue) {
	for i := len(kvs) - 1; i >= 0; i-- {
		r.scratch = kvs[i]
		r.writer.KeyValue(num, &r.scratch)
	}
	r.scratch = attribute.KeyValue{}
}

// keep appends b to Request.encoded, and returns the offsets of b there.
func (r *Request) keep(b []byte) (start, end int32) {
	start = int32(len(r.encoded))
	r.encoded = append(r.encoded, b...)
	return start, int32(len(r.encoded))
}

// valid returns s with U+FFFD in place of each run of bytes that is not valid UTF-8.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
