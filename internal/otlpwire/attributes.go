package otlpwire

import (
	"iter"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// attributes are those of one message, with the edits recorded on them.
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
	kv  []byte // content of the KeyValue that is set; nil: deleted
	at  int    // offset of the attribute of that key whose place it takes, -1: none
	// next is 1 + the index of the message's next attrEdit, in the order in which
	// they were recorded.
	next int32
}

// find gives the last attribute of that key.
func (a attributes) find(key string) (Value, bool) {
	if e := a.edited([]byte(key)); e != nil {
		return e.value(a.r), e.kv != nil
	}
	at := a.search(key).last
	if at < 0 {
		return Value{}, false
	}
	c := a.cursorAt(at)
	_, v := a.r.keyValue(c.here())
	return Value{a.r, v}, true
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
			if e := a.edited(k); e != nil {
				if !e.standsAt(&c) {
					continue
				}
				v = e.value(a.r)
			}
			a.r.reading = reading{a.of, c.start}
			if !yield(a.r.intern(k), v) {
				return
			}
		}
		a.r.note(c.err())
		a.added(yield)
	}
}

// added goes through the attributes that are set and not in the bytes.
func (a attributes) added(yield func(string, Value) bool) {
	list := a.list()
	if list == nil {
		return
	}
	for i := list.first; i != 0; i = a.r.attrEdits[i-1].next {
		e := &a.r.attrEdits[i-1]
		if e.at < 0 && e.kv != nil && !yield(e.key, e.value(a.r)) {
			return
		}
	}
}

// edited is the edit of that key, nil if there is none.
func (a attributes) edited(key []byte) *attrEdit {
	if list := a.list(); list != nil {
		return a.r.attrEdit(list, key)
	}
	return nil
}

// list is the owner's edit, nil if there is none.
func (a attributes) list() *edit { return a.r.editOf(a.of) }

// attrEdit finds a key in a list of edits, nil if it is not there.
func (r *Request) attrEdit(list *edit, key []byte) *attrEdit {
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
func (a attributes) set(kv attribute.KeyValue) {
	kv.Key = attribute.Key(valid(string(kv.Key)))
	encoded := a.r.encode(kv)
	if e := a.edited([]byte(kv.Key)); e != nil {
		e.kv = encoded
		return
	}
	a.record(attrEdit{key: string(kv.Key), kv: encoded, at: a.offset(string(kv.Key))})
}

// remove records that key is deleted, if it is there.
func (a attributes) remove(key string) {
	if e := a.edited([]byte(key)); e != nil {
		e.kv = nil
	} else if at := a.offset(key); at >= 0 {
		a.record(attrEdit{key: key, at: at})
	}
}

func (a attributes) record(e attrEdit) {
	list := a.r.touch(a.of)
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
	case list.count > maxListed:
		a.r.indexes = append(a.r.indexes, a.r.indexOf(list))
		list.index = int32(len(a.r.indexes))
	}
}

// maxListed is how many edits of one message's attributes are looked through
// one by one. With more they get an index, so that a span with an unusual number
// of attributes does not cost their square.
const maxListed = 32

// indexOf gives the edits of a list by key, as 1 + their index.
func (r *Request) indexOf(list *edit) map[string]int32 {
	index := make(map[string]int32, 2*maxListed)
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
func (a attributes) offset(key string) int {
	if at := a.r.reading; at.of == a.of {
		if c := a.cursorAt(at.start); c.is(a.num) {
			if k, _ := a.r.keyValue(c.here()); string(k) == key {
				return c.at()
			}
		}
	}
	if at := a.search(key).first; at >= 0 {
		return a.p.base + at
	}
	return -1
}

// cursorAt stands on the field at an offset in the message.
func (a attributes) cursorAt(start int) cursor {
	c := cursor{part: a.p, pos: start}
	c.next()
	return c
}

// keyPlaces are where the first and the last attribute of a key stand in the
// message, -1 if none does.
type keyPlaces struct{ first, last int }

// search finds a key in the bytes.
func (a attributes) search(key string) keyPlaces {
	x := &a.r.keys
	if x.of != a.of {
		x.of, x.searched, x.places = a.of, 0, nil
	}
	if x.places != nil {
		if found, ok := x.places[key]; ok {
			return found
		}
		return keyPlaces{-1, -1}
	}
	x.searched++
	found, seen := keyPlaces{-1, -1}, 0
	c := a.p.fields()
	for c.next() {
		if !c.is(a.num) {
			continue
		}
		seen++
		if k, _ := a.r.keyValue(c.here()); string(k) == key {
			found.add(c.start)
		}
	}
	a.r.note(c.err())
	if x.searched >= minSearches && seen > maxListed {
		a.index(seen)
	}
	return found
}

func (p *keyPlaces) add(at int) {
	if p.first < 0 {
		p.first = at
	}
	p.last = at
}

// A keyIndex has the places of all keys of a message with many attributes that
// is searched again and again, as maxListed has it for edits.
type keyIndex struct {
	of       owner
	searched int                  // how often
	places   map[string]keyPlaces // nil: not yet
}

// minSearches in one message pay for its keyIndex.
const minSearches = 16

func (a attributes) index(n int) {
	places := make(map[string]keyPlaces, n)
	c := a.p.fields()
	for c.next() {
		if !c.is(a.num) {
			continue
		}
		k, _ := a.r.keyValue(c.here())
		found, ok := places[string(k)]
		if !ok {
			found = keyPlaces{-1, -1}
		}
		found.add(c.start)
		places[string(k)] = found
	}
	a.r.keys.places = places
}

// standsAt tells whether the edited attribute takes the place of the one at c:
// of several of its key it takes one's, and a deleted one takes none.
func (e *attrEdit) standsAt(c *cursor) bool { return e.kv != nil && e.at == c.base+c.start }

// value is the value that is set, empty if the key is deleted.
func (e *attrEdit) value(r *Request) Value {
	_, v := r.keyValue(part{raw: e.kv})
	return Value{r, v}
}

// keyValue reads a KeyValue. The last key counts, values merge.
func (r *Request) keyValue(p part) (key []byte, value part) {
	c := p.fields()
	for c.next() {
		switch {
		case c.is(field.KeyValueKey):
			key = c.content()
		case c.is(field.KeyValueValue):
			value = value.join(c.here())
		}
	}
	r.note(c.err())
	return key, value
}

// maxKeptWriter bounds the buffer, in bytes, that a Request's writer keeps from
// one edit to the next.
const maxKeptWriter = 64 << 10

// encode gives the content of a KeyValue, in memory that the Request keeps.
func (r *Request) encode(kv attribute.KeyValue) []byte {
	r.scratch = kv // on the heap already, where the writer's reflection may look
	r.writer.Reset(maxKeptWriter)
	r.writer.keyValue(&r.scratch)
	r.scratch = attribute.KeyValue{}
	return r.keep(r.writer.Bytes())
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
