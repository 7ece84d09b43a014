package processors

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"
)

// own begins with the attributes of another owner.
func (w *redactWalk) own(o owner) {
	w.owner, w.edits = o, 0
	clear(w.edited)
	w.edited = w.edited[:0]
}

// attribute looks at one attribute of the current owner, and edits it there.
func (w *redactWalk) attribute(raw []byte) error {
	kv, err := keyValueOf(raw)
	if err != nil {
		return err
	}
	class := w.classify(kv.key)
	clean := kv.regular && class != keyRemoved
	if clean {
		switch class {
		case keyBlocked:
			clean = isMarkValue(kv.value)
		case keyWeak, keyPlain:
			if class == keyWeak && tellsOfValue(classifyName(kv.key), kv.value, 1) {
				clean = false
				break
			}
			if clean, err = w.cleanValue(kv.value, 1); err != nil {
				return err
			}
		}
	}
	// One that stands beside an edited one of the same key is edited too: the
	// last counts, as for readers.
	if clean && (len(w.edited) == 0 || !slices.Contains(w.edited, string(kv.key))) {
		return nil
	}
	return w.edit(kv, class)
}

// edit redacts an attribute of the current owner.
func (w *redactWalk) edit(kv keyValue, class keyClass) error {
	if w.owner.none {
		return errNone
	}
	w.edits++
	if w.edits > maxAttributeEdits {
		return errTooMany
	}
	key := string(kv.key)
	if class == keyRemoved {
		w.deleteAttribute(attribute.Key(key))
		return nil
	}
	value, err := w.redacted(kv, class, 1)
	if err != nil {
		return err
	}
	w.edited = append(w.edited, key)
	w.setAttribute(attribute.KeyValue{Key: attribute.Key(key), Value: value})
	return nil
}

func (w *redactWalk) setAttribute(kv attribute.KeyValue) {
	switch o := w.owner; o.kind {
	case ownerSpan:
		w.views.span(o.span).SetAttributes(kv)
	case ownerResource:
		w.views.span(o.span).Resource().SetAttributes(kv)
	case ownerScope:
		w.views.span(o.span).Scope().SetAttributes(kv)
	case ownerEvent:
		w.views.event(o.span, o.child).SetAttributes(kv)
	case ownerLink:
		w.views.link(o.span, o.child).SetAttributes(kv)
	}
}

func (w *redactWalk) deleteAttribute(key attribute.Key) {
	switch o := w.owner; o.kind {
	case ownerSpan:
		w.views.span(o.span).DeleteAttributes(key)
	case ownerResource:
		w.views.span(o.span).Resource().DeleteAttributes(key)
	case ownerScope:
		w.views.span(o.span).Scope().DeleteAttributes(key)
	case ownerEvent:
		w.views.event(o.span, o.child).DeleteAttributes(key)
	case ownerLink:
		w.views.link(o.span, o.child).DeleteAttributes(key)
	}
}

// Bounds of the keys that are remembered.
const (
	maxKeys      = 4096
	maxKeyLength = 256
)

// classify says what becomes of an attribute by its key, which is looked at
// once.
func (w *redactWalk) classify(key []byte) keyClass {
	if class, ok := w.keys[string(key)]; ok {
		return class
	}
	class := w.rules.classify(key)
	if len(key) <= maxKeyLength {
		if len(w.keys) >= maxKeys {
			clear(w.keys)
		}
		w.keys[string(key)] = class
	}
	return class
}

func (r *redactRules) classify(key []byte) keyClass {
	switch {
	case !utf8.Valid(key):
		return keyRemoved
	case anyMatches(r.ignored, key):
		return keyIgnored
	case !r.clean(key):
		return keyRemoved
	case anyMatches(r.blocked, key):
		return keyBlocked
	case !r.names:
		return keyPlain
	}
	switch classifyName(key) {
	case namePlain:
		return keyPlain
	case nameSecret, nameLine:
		return keyBlocked
	default:
		return keyWeak
	}
}

// tellsOfValue says whether an AnyValue is a secret under a name of a class, or
// has one among its members.
func tellsOfValue(class nameClass, raw []byte, depth int) bool {
	if depth > maxMaxDepth || isMarkValue(raw) {
		return false // what is too deep goes for that
	}
	for f := fieldsOf(raw); f.next(); {
		switch {
		case f.is(fieldString), f.is(fieldBytes):
			if class.tellsOf(f.content) {
				return true
			}
		case f.isNumber(fieldInt, protowire.VarintType):
			var buf [24]byte
			if class == nameDigits && class.tellsOf(strconv.AppendInt(buf[:0], int64(f.bits), 10)) {
				return true
			}
		case f.is(fieldArray):
			for members := fieldsOf(f.content); members.next(); {
				if members.is(fieldMember) && tellsOfValue(class, members.content, depth+1) {
					return true
				}
			}
		}
	}
	return false
}

// keyValue is a KeyValue of OTLP. It is regular if it has nothing but one key
// and one value; of others, what counts for a reader.
type keyValue struct {
	key     []byte
	value   []byte // content of an AnyValue
	regular bool
}

func keyValueOf(raw []byte) (keyValue, error) {
	kv := keyValue{regular: true}
	keys, values := 0, 0
	f := fieldsOf(raw)
	for f.next() {
		switch {
		case f.is(fieldKey):
			keys++
			kv.key = f.content
		case f.is(fieldValue):
			values++
			if values == 1 {
				kv.value = slices.Clip(f.content)
			} else { // the first time, this copies
				kv.value = append(kv.value, f.content...)
			}
		default:
			kv.regular = false
		}
	}
	kv.regular = kv.regular && keys <= 1 && values <= 1
	return kv, malformed("attribute", f.err)
}

// cleanValue tells whether an AnyValue may leave as it is. depth is how many
// values it is the innermost of.
func (w *redactWalk) cleanValue(raw []byte, depth int) (bool, error) {
	clean, members := true, 0
	f := fieldsOf(raw)
	for f.next() && clean {
		members++
		var err error
		switch {
		case f.is(fieldString), f.is(fieldBytes):
			clean = w.rules.clean(f.content)
		case f.isNumber(fieldInt, protowire.VarintType):
			clean = w.rules.cleanInt(int64(f.bits))
		case f.isNumber(fieldDouble, protowire.Fixed64Type):
			clean = w.rules.cleanFloat(math.Float64frombits(f.bits))
		case f.is(fieldArray), f.is(fieldKeyValues):
			if depth > w.rules.maxDepth {
				return false, nil
			}
			clean, err = w.cleanMembers(f.content, depth, f.num == fieldKeyValues)
		case f.isNumber(fieldBool, protowire.VarintType), f.isNumber(fieldStringIndex, protowire.VarintType):
		default:
			clean = false
		}
		if err != nil {
			return false, err
		}
	}
	return clean && members <= 1, malformed("value", f.err)
}

// cleanMembers looks at the members of an array or a map.
func (w *redactWalk) cleanMembers(raw []byte, depth int, ofMap bool) (bool, error) {
	var args arguments
	beside := namePlain
	if ofMap && w.rules.names {
		beside = pairName(raw)
	}
	f := fieldsOf(raw)
	for f.next() {
		if !f.is(fieldMember) {
			return false, nil
		}
		value := f.content
		if ofMap {
			kv, err := keyValueOf(f.content)
			if err != nil {
				return false, err
			}
			class := w.classify(kv.key)
			if !kv.regular || class == keyRemoved || class == keyBlocked && !isMarkValue(kv.value) {
				return false, nil
			}
			if class == keyWeak && tellsOfValue(classifyName(kv.key), kv.value, depth) ||
				class == keyPlain && isPairValue(kv.key) && beside != namePlain && tellsOfValue(beside, kv.value, depth) {
				return false, nil
			}
			if class != keyPlain && class != keyWeak {
				continue
			}
			value = kv.value
		} else if w.rules.names && args.secret(textOf(value), len(f.left) == 0) && !isMarkValue(value) {
			return false, nil
		}
		if clean, err := w.cleanValue(value, depth+1); !clean || err != nil {
			return false, err
		}
	}
	return true, malformed("value", f.err)
}

// isMarkValue tells whether an AnyValue is the mark.
func isMarkValue(raw []byte) bool {
	f := fieldsOf(raw)
	return f.next() && f.is(fieldString) && string(f.content) == Redacted && len(f.left) == 0
}

// maxMembers bounds what an array or a map is rebuilt with.
const maxMembers = 1024

var mark = attribute.StringValue(Redacted)

// redacted gives an attribute's value, redacted as its key wants.
func (w *redactWalk) redacted(kv keyValue, class keyClass, depth int) (attribute.Value, error) {
	if class == keyBlocked || class == keyWeak && tellsOfValue(classifyName(kv.key), kv.value, depth) {
		return mark, nil
	}
	return w.redactedValue(kv.value, depth, class == keyIgnored)
}

// redactedValue decodes an AnyValue without what is in it; with asIs set, with
// it. The last of several members counts; arrays and maps in pieces are one.
func (w *redactWalk) redactedValue(raw []byte, depth int, asIs bool) (attribute.Value, error) {
	var value attribute.Value
	var pieces []byte
	var last protowire.Number
	f := fieldsOf(raw)
	for f.next() {
		switch {
		case f.is(fieldString):
			value = attribute.StringValue(w.text(f.content, asIs))
		case f.is(fieldBytes):
			value = attribute.ByteSliceValue(f.content)
			if !asIs && !w.rules.clean(f.content) {
				value = attribute.ByteSliceValue([]byte(w.rules.redactText(f.content)))
			}
		case f.isNumber(fieldBool, protowire.VarintType):
			value = attribute.BoolValue(f.bits != 0)
		case f.isNumber(fieldInt, protowire.VarintType):
			value = attribute.Int64Value(int64(f.bits))
			if !asIs && !w.rules.cleanInt(int64(f.bits)) {
				value = attribute.StringValue(w.rules.redactText(strconv.AppendInt(nil, int64(f.bits), 10)))
			}
		case f.isNumber(fieldDouble, protowire.Fixed64Type):
			n := math.Float64frombits(f.bits)
			value = attribute.Float64Value(n)
			if !asIs && !w.rules.cleanFloat(n) {
				value = attribute.StringValue(w.rules.redactText(appendFloat(nil, n)))
			}
		case f.is(fieldArray), f.is(fieldKeyValues):
			if last != f.num {
				pieces = nil
			}
			pieces = append(pieces, f.content...)
		case f.isNumber(fieldStringIndex, protowire.VarintType):
			value = attribute.Value{} // an index into a table that traces have not
		default:
			continue
		}
		last = f.num
	}
	if f.err != nil {
		return attribute.Value{}, malformed("value", f.err)
	}
	switch last {
	case fieldArray:
		return w.redactedArray(pieces, depth, asIs)
	case fieldKeyValues:
		return w.redactedMap(pieces, depth, asIs)
	default:
		return value, nil
	}
}

func (w *redactWalk) text(text []byte, asIs bool) string {
	if asIs || w.rules.clean(text) {
		return string(text)
	}
	return w.rules.redactText(text)
}

// tooDeep bounds the recursion. What stays as it is has the larger bound.
func (w *redactWalk) tooDeep(depth int, asIs bool) bool {
	return depth > maxMaxDepth || !asIs && depth > w.rules.maxDepth
}

func (w *redactWalk) redactedArray(raw []byte, depth int, asIs bool) (attribute.Value, error) {
	if w.tooDeep(depth, asIs) {
		return mark, nil
	}
	var members []attribute.Value
	var args arguments
	f := fieldsOf(raw)
	for f.next() {
		if !f.is(fieldMember) {
			continue
		}
		if len(members) == maxMembers {
			return mark, nil
		}
		if w.rules.names && !asIs && args.secret(textOf(f.content), len(f.left) == 0) {
			members = append(members, mark)
			continue
		}
		member, err := w.redactedValue(f.content, depth+1, asIs)
		if err != nil {
			return attribute.Value{}, err
		}
		members = append(members, member)
	}
	return attribute.SliceValue(members...), malformed("value", f.err)
}

func (w *redactWalk) redactedMap(raw []byte, depth int, asIs bool) (attribute.Value, error) {
	if w.tooDeep(depth, asIs) {
		return mark, nil
	}
	var members []attribute.KeyValue
	beside := namePlain
	if w.rules.names && !asIs {
		beside = pairName(raw)
	}
	f := fieldsOf(raw)
	for f.next() {
		if !f.is(fieldMember) {
			continue
		}
		if len(members) == maxMembers {
			return mark, nil
		}
		kv, err := keyValueOf(f.content)
		if err != nil {
			return attribute.Value{}, err
		}
		class := keyIgnored
		if !asIs {
			class = w.classify(kv.key)
		}
		if class == keyRemoved {
			continue
		}
		if class == keyPlain && isPairValue(kv.key) && beside != namePlain && tellsOfValue(beside, kv.value, depth) {
			class = keyBlocked
		}
		value, err := w.redacted(kv, class, depth+1)
		if err != nil {
			return attribute.Value{}, err
		}
		members = append(members, attribute.KeyValue{Key: attribute.Key(kv.key), Value: value})
	}
	return attribute.MapValue(members...), malformed("value", f.err)
}
