package otlpwire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// An attributeIndex lists the places of the attributes of one message. A Request keeps
// only the index of the message in which an attribute was searched last, because most callers
// ask for several attributes of the same message. Each edit of an attribute searches, too.
type attributeIndex struct {
	of     owner
	made   bool // of and places are set
	places []place
	// searches is the number of searches in this index. byKey has the places by their key. It
	// is nil while it would cost more than it saves.
	searches int
	byKey    map[string]places
}

// A place is the position of one attribute. Its fields are offsets from the start of the
// message. start and end are the limits of the attribute's field. key and keyEnd are the limits
// of the key, and value is the start of the value. value is -1 if the attribute does not have
// the usual form (plainKeyValue), so that it must be parsed again to find its value.
type place struct{ start, key, keyEnd, value, end int32 }

// places holds the indexes of the first and the last attribute with the same key. Both are -1
// if there is none.
type places struct{ first, last int }

func (p *places) add(i int) {
	if p.first < 0 {
		p.first = i
	}
	p.last = i
}

// After more than manySearches in a message with more than manyAttributes, the attributes are
// indexed by key. Otherwise each edit of such a message would compare all keys.
const (
	manyAttributes = 32
	manySearches   = 16
)

// attributesOf returns the index of the message o. p is the content of the message.
func (r *Request) attributesOf(o owner, p part) *attributeIndex {
	d := &r.attrIndex
	if d.made && d.of == o {
		return d
	}
	d.of, d.made, d.places, d.searches, d.byKey = o, true, d.places[:0], 0, nil
	num := forms[o.kind].attributes
	c := p.fields()
	for {
		c.pos = d.addPlain(c.raw, c.pos, byte(num<<3)|byte(protowire.BytesType))
		if !c.next() {
			break
		}
		if c.is(num) {
			d.places = append(d.places, r.placeOf(&c))
		}
	}
	r.note(c.err())
	return d
}

// addPlain adds the places of consecutive attributes from pos on. It stops at the first field
// that is no attribute in the usual form: less than 128 bytes, with a key and then a value. It
// returns the offset of that field. tag is the tag of an attribute.
func (d *attributeIndex) addPlain(raw []byte, pos int, tag byte) int {
	for pos+3*plainHead <= len(raw) && raw[pos] == tag && raw[pos+1] < oneByte {
		body := pos + plainHead
		end := body + int(raw[pos+1])
		if end > len(raw) {
			break
		}
		keyEnd, value, ok := plainKeyValue(raw[body:end])
		if !ok {
			break
		}
		d.places = append(d.places, place{int32(pos), int32(body + plainHead), int32(body + keyEnd), int32(body + value), int32(end)})
		pos = end
	}
	return pos
}

// placeOf returns the place of the attribute at which the cursor is.
func (r *Request) placeOf(c *cursor) place {
	at := place{start: int32(c.start), end: int32(c.pos)}
	body := int32(c.body)
	if keyEnd, value, ok := plainKeyValue(c.content()); ok {
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

// search finds the attributes with a key in the message o. p is the content of the message. The
// edits are ignored.
func (r *Request) search(o owner, p part, key string) places {
	d := r.attributesOf(o, p)
	d.searches++
	if d.byKey == nil && d.searches > manySearches && len(d.places) > manyAttributes {
		d.byKey = d.index(p)
	}
	if d.byKey != nil {
		if found, ok := d.byKey[key]; ok {
			return found
		}
		return places{-1, -1}
	}
	found := places{-1, -1}
	for i := range d.places {
		if at := &d.places[i]; int(at.keyEnd-at.key) == len(key) && string(p.raw[at.key:at.keyEnd]) == key {
			found.add(i)
		}
	}
	return found
}

// index returns the places by their key. p is the content of the message.
func (d *attributeIndex) index(p part) map[string]places {
	all := make(map[string]places, len(d.places))
	for i, at := range d.places {
		key := string(p.raw[at.key:at.keyEnd])
		found, ok := all[key]
		if !ok {
			found = places{-1, -1}
		}
		found.add(i)
		all[key] = found
	}
	return all
}

// valueAt returns the value of the i-th attribute in the index. p is the content of
// the message of the index.
func (r *Request) valueAt(p part, i int) part {
	at := &r.attrIndex.places[i]
	if at.value >= 0 {
		return part{p.raw[at.value:at.end:at.end], p.base + int(at.value)}
	}
	c := cursor{part: p, pos: int(at.start)}
	c.next()
	_, value := r.keyValue(c.here())
	return value
}

// firstOffset returns the offset in the request of the first attribute of v with this key,
// or -1 if there is none. It ignores the edits.
func (r *Request) firstOffset(v View, key string) int32 {
	p := v.part()
	i := r.search(v.of, p, key).first
	if i < 0 {
		return -1
	}
	return int32(p.base) + r.attrIndex.places[i].start
}

// plainHead is the number of bytes of the tag and the length of a short field.
const plainHead = 2

// plainKeyValue reads a KeyValue in the usual form, which all known senders write: a key of
// less than 128 bytes, then one value of less than 16 KiB. It returns the offsets of the end
// of the key and of the content of the value. It reports false for another form.
func plainKeyValue(kv []byte) (keyEnd, value int, ok bool) {
	const (
		tagKey   = field.KeyValueKey<<3 | byte(protowire.BytesType)
		tagValue = field.KeyValueValue<<3 | byte(protowire.BytesType)
	)
	if len(kv) < plainHead || kv[0] != tagKey || kv[1] >= oneByte {
		return 0, 0, false
	}
	keyEnd = plainHead + int(kv[1])
	if len(kv) < keyEnd+plainHead || kv[keyEnd] != tagValue {
		return 0, 0, false
	}
	value = keyEnd + plainHead
	length := int(kv[keyEnd+1])
	if length >= oneByte {
		if len(kv) == value || kv[value] >= oneByte {
			return 0, 0, false
		}
		length += int(kv[value])<<7 - oneByte
		value++
	}
	return keyEnd, value, value+length == len(kv)
}

// keyValue returns the key and the value of a KeyValue. If it has several keys, the last key
// counts. If it has several values, they merge. Protobuf demands both.
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
