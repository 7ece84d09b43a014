package datadogexporter

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// value is one attribute's value, not decoded: text and members lie in the
// batch.
type value struct {
	// kind is the number of the member of OTLP's AnyValue that is set, 0: none.
	kind protowire.Number
	// bits are a bool, an integer or a float.
	bits uint64
	// body is the content of a text, bytes, list or map.
	body []byte
}

func readValue(b []byte) (v value, ok bool) {
	c := over(b)
	for c.next() {
		switch {
		case c.is(field.AnyString) || c.is(field.AnyBytes):
			v.kind, v.body = c.num, c.body()
		case c.typ == protowire.VarintType && (c.num == field.AnyBool || c.num == field.AnyInt),
			c.typ == protowire.Fixed64Type && c.num == field.AnyDouble:
			v.kind, v.bits = c.num, c.bits
		case c.is(field.AnyArray) || c.is(field.AnyKeyValues):
			if v.kind != c.num {
				v.body = nil
			}
			v.kind, v.body = c.num, join(v.body, c.body())
		}
	}
	return v, !c.bad
}

// Heads of the fields of a KeyValue and an AnyValue, as everybody writes them.
const (
	headKey   = field.KeyValueKey<<3 | byte(protowire.BytesType)
	headValue = field.KeyValueValue<<3 | byte(protowire.BytesType)
	headText  = field.AnyString<<3 | byte(protowire.BytesType)
	headInt   = field.AnyInt<<3 | byte(protowire.VarintType)
)

// readShort reads a KeyValue as most are, which is twice as fast: a key, then a
// text or a small integer, each so short that its length is one byte.
func readShort(b []byte) (key []byte, v value, ok bool) {
	if len(b) < 2 || b[0] != headKey || b[1] >= 0x80 {
		return nil, v, false
	}
	at := 2 + int(b[1]) // of the value
	if len(b) < at+4 || b[at] != headValue || b[at+1] >= 0x80 || int(b[at+1]) != len(b)-at-2 {
		return nil, v, false
	}
	switch size := b[at+3]; b[at+2] {
	case headText:
		if size >= 0x80 || int(size) != len(b)-at-4 {
			return nil, v, false
		}
		return b[2:at:at], value{kind: field.AnyString, body: b[at+4:]}, true
	case headInt:
		bits, n := protowire.ConsumeVarint(b[at+3:])
		if n != len(b)-at-3 {
			return nil, v, false
		}
		return b[2:at:at], value{kind: field.AnyInt, bits: bits}, true
	}
	return nil, v, false
}

// readKeyValue reads a KeyValue: the last key counts, values merge.
func readKeyValue(b []byte) (key []byte, v value, ok bool) {
	if key, v, ok := readShort(b); ok {
		return key, v, true
	}
	var body []byte
	c := over(b)
	for c.next() {
		switch {
		case c.is(field.KeyValueKey):
			key = c.body()
		case c.is(field.KeyValueValue):
			body = join(body, c.body())
		}
	}
	v, ok = readValue(body)
	return key, v, ok && !c.bad
}

func (v value) isText() bool { return v.kind == field.AnyString }

func (v value) float() float64 { return math.Float64frombits(v.bits) }

// maxDepth bounds the nesting of values that are shown: deeper ones would cost
// stack. Other decoders of protobuf stop at 100 messages too.
const maxDepth = 100

// each calls f with the members of a list, up to one that can not be read.
func (v value) each(f func(value)) {
	c := over(v.body)
	for c.next() {
		if !c.is(field.ListValues) {
			continue
		}
		member, ok := readValue(c.body())
		if !ok {
			return
		}
		f(member)
	}
}

// memberKind is the kind of all members of a list that are bools, integers,
// floats or texts; 0 for any other list, the empty one too.
func (v value) memberKind() protowire.Number {
	var same protowire.Number
	first := true
	v.each(func(member value) {
		if first {
			same, first = member.kind, false
		} else if member.kind != same {
			same = 0
		}
	})
	switch same {
	case field.AnyBool, field.AnyInt, field.AnyDouble, field.AnyString:
		return same
	}
	return 0
}

// text is any value as one text, as the agent writes what is no number: lists
// and maps as JSON, bytes in base64.
func (v value) text() string {
	switch v.kind {
	case field.AnyString:
		return view(v.body)
	case field.AnyBool:
		return strconv.FormatBool(v.bits != 0)
	case field.AnyInt:
		return strconv.FormatInt(int64(v.bits), 10)
	case field.AnyDouble:
		return floatText(v.float())
	case field.AnyBytes:
		return base64.StdEncoding.EncodeToString(v.body)
	case field.AnyArray, field.AnyKeyValues:
		text, err := json.Marshal(v.plain(maxDepth))
		if err != nil {
			return "" // plain leaves nothing that JSON has no form for
		}
		return string(text)
	}
	return ""
}

// floatText is a float as JSON has it, and those it has not by their names.
func floatText(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	text, _ := json.Marshal(f)
	return string(text)
}

// plain is a value as encoding/json takes it. What is nested too deep is empty.
func (v value) plain(depth int) any {
	switch v.kind {
	case field.AnyBool:
		return v.bits != 0
	case field.AnyInt:
		return int64(v.bits)
	case field.AnyDouble:
		if f := v.float(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	case field.AnyArray:
		list := []any{}
		if depth > 0 {
			v.each(func(member value) { list = append(list, member.plain(depth-1)) })
		}
		return list
	case field.AnyKeyValues:
		fields := map[string]any{}
		if c := over(v.body); depth > 0 {
			for c.next() {
				if key, member, ok := readKeyValue(c.body()); ok && c.is(field.ListValues) {
					fields[string(key)] = member.plain(depth - 1)
				}
			}
		}
		return fields
	}
	return v.text()
}
