package otlpwire

import (
	"iter"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
)

// attributes are those of one message, with the edits recorded on them. They are
// many words, so that a pointer is passed; what makes them is small enough to be
// inlined, and then they are on the caller's stack (TestChildAllocates).
type attributes struct {
	r   *Request
	p   part
	num uint32 // of the field that repeats KeyValue
	of  owner
}

// An attrEdit is what is recorded on one key. Of a message's edits no two have
// the same key.
type attrEdit struct {
	key string
	// start and end are the offsets in Request.encoded of the content of the
	// KeyValue that is set, which is never empty; end is 0 where the key is
	// deleted.
	start, end int32
	at         int32 // offset of the attribute of that key whose place it takes, -1: none
	// next is 1 + the index of the message's next attrEdit, in the order in which
	// they were recorded.
	next int32
}

func (e *attrEdit) deleted() bool { return e.end == 0 }

// kv is the content of the KeyValue that is set.
func (e *attrEdit) kv(r *Request) []byte { return r.encoded[e.start:e.end:e.end] }

// find gives the last attribute of that key.
func (a *attributes) find(key string) (Value, bool) {
	if e := edited(a, key); e != nil {
		return e.value(a.r), !e.deleted()
	}
	i := a.search(key).last
	if i < 0 {
		return Value{}, false
	}
	return Value{a.r, a.valueAt(i)}, true
}

func (a attributes) all() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		c := a.p.fields()
		for c.next() {
			if !c.is(a.num) {
				continue
			}
			k, p := a.r.keyValue(c.here())
			v := Value{a.r, p}
			if e := edited(&a, k.raw); e != nil {
				if !e.standsAt(&c) {
					continue
				}
				v = e.value(a.r)
			}
			a.r.reading = reading{a.of, c.start}
			if !yield(a.r.intern(k.raw), v) {
				return
			}
		}
		a.r.note(c.err())
		a.added(yield)
	}
}

// added goes through the attributes that are set and not in the bytes.
func (a *attributes) added(yield func(string, Value) bool) {
	list := a.list()
	if list == nil {
		return
	}
	for i := list.first; i != 0; i = a.r.attrEdits[i-1].next {
		e := &a.r.attrEdits[i-1]
		if e.at < 0 && !e.deleted() && !yield(e.key, e.value(a.r)) {
			return
		}
	}
}

// edited is the edit of that key, nil if there is none.
func edited[K string | []byte](a *attributes, key K) *attrEdit {
	if list := a.list(); list != nil {
		return editIn(a.r, list, key)
	}
	return nil
}

// list is the owner's edit, nil if there is none.
func (a *attributes) list() *edit { return a.r.editOf(a.of) }

// editIn finds a key in a list of edits, nil if it is not there. Bytes are not
// copied to look for them.
func editIn[K string | []byte](r *Request, list *edit, key K) *attrEdit {
	if list.index != 0 {
		if i := r.indexes[list.index-1][string(key)]; i != 0 {
			return &r.attrEdits[i-1]
		}
		return nil
	}
	for i := list.first; i != 0; {
		e := &r.attrEdits[i-1]
		if e.key == string(key) {
			return e
		}
		i = e.next
	}
	return nil
}

// set records that kv is set.
func (a *attributes) set(kv attribute.KeyValue) {
	kv.Key = attribute.Key(valid(string(kv.Key)))
	start, end := a.r.encode(kv)
	if e := edited(a, string(kv.Key)); e != nil {
		e.start, e.end = start, end
		return
	}
	a.record(attrEdit{key: string(kv.Key), start: start, end: end, at: a.offset(string(kv.Key))})
}

// remove records that key is deleted, if it is there.
func (a *attributes) remove(key string) {
	if e := edited(a, key); e != nil {
		e.start, e.end = 0, 0
	} else if at := a.offset(key); at >= 0 {
		a.record(attrEdit{key: key, at: at})
	}
}

func (a *attributes) record(e attrEdit) {
	list := a.r.touch(a.of)
	list.inside = list.inside || e.at >= 0
	a.r.attrEdits = append(a.r.attrEdits, e)
	i := int32(len(a.r.attrEdits))
	if list.first == 0 {
		list.first = i
	} else {
		a.r.attrEdits[list.last-1].next = i
	}
	list.last = i
	list.count++
	switch {
	case list.index != 0:
		a.r.indexes[list.index-1][e.key] = i
	case list.count > manyAttributes:
		a.r.indexes = append(a.r.indexes, a.r.indexOf(list))
		list.index = int32(len(a.r.indexes))
	}
}

// indexOf gives the edits of a list by key, as 1 + their index.
func (r *Request) indexOf(list *edit) map[string]int32 {
	index := make(map[string]int32, 2*manyAttributes)
	for i := list.first; i != 0; i = r.attrEdits[i-1].next {
		index[r.attrEdits[i-1].key] = i
	}
	return index
}

// reading is where a loop over the attributes of a message stands: what it edits
// is mostly what it has come to.
type reading struct {
	of    owner
	start int // of the attribute, in the message
}

// offset is where an attribute of that key stands, -1 if none does: the one that
// a loop has come to, or the first.
func (a *attributes) offset(key string) int32 {
	if at := a.r.reading; at.of == a.of {
		if c := a.cursorAt(at.start); c.is(a.num) {
			if k, _ := a.r.keyValue(c.here()); string(k.raw) == key {
				return int32(c.at())
			}
		}
	}
	if i := a.search(key).first; i >= 0 {
		return int32(a.p.base) + a.r.directory.places[i].start
	}
	return -1
}

// cursorAt stands on the field at an offset in the message.
func (a *attributes) cursorAt(start int) cursor {
	c := cursor{part: a.p, pos: start}
	c.next()
	return c
}

// standsAt tells whether the edited attribute takes the place of the one at c:
// of several of its key it takes one's, and a deleted one takes none.
func (e *attrEdit) standsAt(c *cursor) bool { return !e.deleted() && int(e.at) == c.at() }

// value is the value that is set, empty if the key is deleted.
func (e *attrEdit) value(r *Request) Value {
	_, v := r.keyValue(part{raw: e.kv(r)})
	return Value{r, v}
}

// maxKeptWriter bounds the buffer, in bytes, that a Request's writer keeps from
// one edit to the next.
const maxKeptWriter = 64 << 10

// encode writes the content of a KeyValue into Request.encoded and tells where. A
// text that was written last is not written again: many an edit gives each span
// the same.
func (r *Request) encode(kv attribute.KeyValue) (start, end int32) {
	isText := kv.Value.Type() == attribute.STRING
	if isText && r.lastEnd > 0 && kv.Key == r.lastKey && kv.Value.AsString() == r.lastText {
		return r.lastStart, r.lastEnd
	}
	r.scratch = kv // on the heap already, where the writer's reflection may look
	r.writer.Reset(maxKeptWriter)
	r.writer.keyValue(&r.scratch)
	r.scratch = attribute.KeyValue{}
	kept := r.keep(r.writer.Bytes())
	end = int32(len(r.encoded))
	start = end - int32(len(kept))
	if isText {
		r.lastKey, r.lastText, r.lastStart, r.lastEnd = kv.Key, kv.Value.AsString(), start, end
	}
	return start, end
}

// keep copies b into memory that the Request keeps.
func (r *Request) keep(b []byte) []byte {
	start := len(r.encoded)
	r.encoded = append(r.encoded, b...)
	return r.encoded[start:len(r.encoded):len(r.encoded)]
}

// valid is s with U+FFFD for each run of bytes that are no UTF-8.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
