package otlpwire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// A directory is where the attributes of one message stand in its bytes. The
// one made last is kept, for whoever asks for one attribute of a message mostly
// asks for more, and each edit asks too.
type directory struct {
	of     owner
	made   bool
	places []place
	// lengths has a bit for each length of a key, which it may share with others:
	// a key of another length is not there.
	lengths uint64
	// searched counts, and byKey is the last place of each key and the first,
	// once that pays.
	searched int
	byKey    map[string]places
}

// A place is where one attribute stands, in offsets from the message's start:
// its field, and key and value in it. A value in several pieces, or before its
// key, has a value of -1, and is to be read anew.
type place struct{ start, key, keyEnd, value, end int32 }

// places are the first and the last attribute of a key by their numbers in the
// directory, -1 if there is none.
type places struct{ first, last int }

func (p *places) add(i int) {
	if p.first < 0 {
		p.first = i
	}
	p.last = i
}

// A message with more than manyAttributes that is searched more often than
// manySearches has its keys put into a map, so that a span with an unusual
// number of attributes does not cost their square.
const (
	manyAttributes = 32
	manySearches   = 16
)

// directory gives that of the message, read if it was not the last one.
func (a *attributes) directory() *directory {
	d := &a.r.directory
	if d.made && d.of == a.of {
		return d
	}
	d.of, d.made, d.searched, d.byKey, d.places, d.lengths = a.of, true, 0, nil, d.places[:0], 0
	c := a.p.fields()
	for {
		c.pos = d.shorts(c.raw, c.pos, byte(a.num<<3)|byte(protowire.BytesType))
		if !c.next() {
			break
		}
		if c.is(a.num) {
			d.add(a.r.placeOf(&c))
		}
	}
	a.r.note(c.err())
	return d
}

// shorts adds the attributes that stand in a row from pos, as most do: each of
// less than 128 bytes, a key and then a value. It gives where the row ends.
func (d *directory) shorts(raw []byte, pos int, tag byte) int {
	const head = plainHead // of the attribute, of the key, of the value
	for pos+3*head <= len(raw) && raw[pos] == tag && raw[pos+1] < 0x80 {
		end := pos + head + int(raw[pos+1])
		key := pos + 2*head
		if end > len(raw) || raw[key-2] != tagKey || raw[key-1] >= 0x80 {
			break
		}
		keyEnd := key + int(raw[key-1])
		value := keyEnd + head
		if value > end || raw[keyEnd] != tagValue || int(raw[keyEnd+1]) != end-value {
			break
		}
		d.add(place{int32(pos), int32(key), int32(keyEnd), int32(value), int32(end)})
		pos = end
	}
	return pos
}

func (d *directory) add(at place) {
	d.places = append(d.places, at)
	d.lengths |= lengthBit(int(at.keyEnd - at.key))
}

func lengthBit(n int) uint64 { return 1 << (uint(n) % 64) }

// placeOf is the place of the KeyValue at c.
func (r *Request) placeOf(c *cursor) place {
	at := place{start: int32(c.start), end: int32(c.pos)}
	if keyEnd, value, ok := plainKeyValue(c.content()); ok {
		body := int32(c.body)
		at.key, at.keyEnd, at.value = body+plainHead, body+int32(keyEnd), body+int32(value)
		return at
	}
	at.value = -1
	if key, _ := r.keyValue(c.here()); len(key.raw) > 0 {
		at.key = int32(key.base - c.base)
		at.keyEnd = at.key + int32(len(key.raw))
	}
	return at
}

// search finds a key in the bytes.
func (a *attributes) search(key string) places {
	d := a.directory()
	if d.lengths&lengthBit(len(key)) == 0 {
		return places{-1, -1}
	}
	d.searched++
	if d.byKey == nil && d.searched > manySearches && len(d.places) > manyAttributes {
		d.byKey = a.byKey(d)
	}
	if d.byKey != nil {
		if found, ok := d.byKey[key]; ok {
			return found
		}
		return places{-1, -1}
	}
	found := places{-1, -1}
	for i := range d.places {
		if at := &d.places[i]; int(at.keyEnd-at.key) == len(key) && string(a.p.raw[at.key:at.keyEnd]) == key {
			found.add(i)
		}
	}
	return found
}

func (a *attributes) byKey(d *directory) map[string]places {
	all := make(map[string]places, len(d.places))
	for i := range d.places {
		key := a.p.raw[d.places[i].key:d.places[i].keyEnd]
		found, ok := all[string(key)]
		if !ok {
			found = places{-1, -1}
		}
		found.add(i)
		all[string(key)] = found
	}
	return all
}

// valueAt is the value of the i-th attribute in the directory that was made
// last, which is this message's.
func (a *attributes) valueAt(i int) part {
	at := &a.r.directory.places[i]
	if at.value < 0 {
		c := a.cursorAt(int(at.start))
		_, value := a.r.keyValue(c.here())
		return value
	}
	return part{a.p.raw[at.value:at.end:at.end], a.p.base + int(at.value)}
}

// plainHead is the length of tag and length of a short field.
const plainHead = 2

// plainKeyValue reads a KeyValue as everybody writes it: a short key, then one
// value of less than 16 KiB, and nothing else. It gives the offsets of the key's
// end and of the value's content.
func plainKeyValue(kv []byte) (keyEnd, value int, ok bool) {
	if len(kv) < plainHead || kv[0] != tagKey || kv[1] >= 0x80 {
		return 0, 0, false
	}
	keyEnd = plainHead + int(kv[1])
	if len(kv) < keyEnd+plainHead || kv[keyEnd] != tagValue {
		return 0, 0, false
	}
	value = keyEnd + plainHead
	length := int(kv[keyEnd+1])
	if length >= 0x80 {
		if len(kv) == value || kv[value] >= 0x80 {
			return 0, 0, false
		}
		length += int(kv[value])<<7 - 0x80
		value++
	}
	return keyEnd, value, value+length == len(kv)
}

// Tags of a KeyValue's fields, of one byte.
const (
	tagKey   = field.KeyValueKey<<3 | byte(protowire.BytesType)
	tagValue = field.KeyValueValue<<3 | byte(protowire.BytesType)
)

// keyValue reads a KeyValue. The last key counts, values merge.
func (r *Request) keyValue(p part) (key, value part) {
	if keyEnd, at, ok := plainKeyValue(p.raw); ok {
		return part{p.raw[plainHead:keyEnd:keyEnd], p.base + plainHead}, part{p.raw[at:], p.base + at}
	}
	c := p.fields()
	for c.next() {
		switch {
		case c.is(field.KeyValueKey):
			key = c.here()
		case c.is(field.KeyValueValue):
			value = value.join(c.here())
		}
	}
	r.note(c.err())
	return key, value
}
