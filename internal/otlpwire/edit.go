package otlpwire

import (
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
)

// An edit holds the recorded changes of one message.
type edit struct {
	first, last           int32            // list of attrEdits, as 1 + index; 0: none
	count                 int32            // length of that list
	index                 map[string]int32 // the list by key; nil if it is short
	firstAdded, lastAdded int32            // list of a span's addedChildren, as 1 + index; 0: none

	named, statused bool
	inside          bool // an attribute in the bytes, an event or a link was changed

	name    string
	code    int32
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
	at         int32 // offset of the attribute that is replaced; -1: there is none
	next       int32 // 1 + index of the message's next attrEdit, in the order of the calls
}

func (e *attrEdit) deleted() bool { return e.end == 0 }

// isAdded reports whether the edit adds an attribute that the bytes do not have.
func (e *attrEdit) isAdded() bool { return e.at < 0 && !e.deleted() }

// replaces reports whether the new attribute replaces the attribute at c. If several
// attributes have the key, only the first is replaced. The others are removed.
func (e *attrEdit) replaces(c *cursor) bool { return !e.deleted() && int(e.at) == c.at() }

// content returns the content of the new KeyValue, empty if the key is deleted.
func (e *attrEdit) content(r *Request) part { return part{raw: r.encoded[e.start:e.end:e.end]} }

// An addedChild is an event or a link that was added to a span.
type addedChild struct {
	of         owner // the field at is the length of the request plus the index in Request.added
	start, end int32 // range of the content in Request.encoded
	next       int32 // 1 + index of the span's next addedChild
}

func (a *addedChild) content(r *Request) []byte { return r.encoded[a.start:a.end:a.end] }

// editOf returns the edit of a message, nil if there is none. The pointer is valid until
// the next call of touch.
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

// touch returns the edit of a message, and makes a new one if there is none. For a new
// edit, it marks all entries that contain the message, for AppendTo.
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

// edited returns the attrEdit of a key, nil if there is none.
func edited[K string | []byte](v View, key K) *attrEdit {
	if list := v.r.editOf(v.of); list != nil {
		return editIn(v.r, list, key)
	}
	return nil
}

// editIn returns the attrEdit of a key in a list, nil if there is none.
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

func (r *Request) attrEditAt(i int32) *attrEdit {
	if i == 0 {
		return nil
	}
	return &r.attrEdits[i-1]
}

// record adds an edit of an attribute to the edits of the message.
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

// addChild records an event or a link that is added to s, after all others of its kind.
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

func (r *Request) emptyWriter() *Writer {
	r.writer.Reset(maxKeptWriter)
	return &r.writer
}

// encode writes the content of a KeyValue into Request.encoded, and returns its offsets
// there.
func (r *Request) encode(kv attribute.KeyValue) (start, end int32) {
	w := r.emptyWriter()
	r.scratch = kv // the writer needs a value on the heap
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
