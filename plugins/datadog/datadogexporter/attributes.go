package datadogexporter

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
)

// attributes are those of a span and of its resource, of which the span's win.
type attributes struct {
	span, resource map[string]attribute.Value
}

// text is the first of keys that is a string and not empty.
func (a attributes) text(keys ...string) string {
	for _, key := range keys {
		for _, from := range []map[string]attribute.Value{a.span, a.resource} {
			if value, ok := from[key]; ok && value.Type() == attribute.STRING && value.AsString() != "" {
				return value.AsString()
			}
		}
	}
	return ""
}

// number is the first of keys that is an integer, or text that is one.
func (a attributes) number(keys ...string) (int64, bool) {
	for _, key := range keys {
		for _, from := range []map[string]attribute.Value{a.span, a.resource} {
			switch value := from[key]; value.Type() {
			case attribute.INT64:
				return value.AsInt64(), true
			case attribute.STRING:
				if n, err := strconv.ParseInt(value.AsString(), 10, 64); err == nil {
					return n, true
				}
			}
		}
	}
	return 0, false
}

// tags are what Datadog keeps of a span beside its fields. A key is in one of
// the two.
type tags struct {
	meta    map[string]string
	metrics map[string]float64
}

func newTags(size int) tags {
	return tags{make(map[string]string, size), make(map[string]float64, 8)}
}

func (t tags) has(key string) bool {
	_, text := t.meta[key]
	_, number := t.metrics[key]
	return text || number
}

// setText sets a tag in place of one with the same key.
func (t tags) setText(key, value string) {
	delete(t.metrics, key)
	t.meta[key] = value
}

// setNumber is setText for a number.
func (t tags) setNumber(key string, value float64) {
	delete(t.meta, key)
	t.metrics[key] = value
}

// defaultText sets a tag that is not there, unless value is empty.
func (t tags) defaultText(key, value string) {
	if value != "" && !t.has(key) {
		t.meta[key] = value
	}
}

// maxExact is the first integer whose successor a float64 can not hold.
const maxExact = 1 << 53

// add adds a span's attribute, where no tag of that name is there: the rules
// name a tag first that the agent names first.
func (t tags) add(key string, value attribute.Value) {
	name := tagKey(key)
	if name == "" || t.has(name) {
		return
	}
	switch value.Type() {
	case attribute.INT64:
		t.addInt(name, value.AsInt64())
	case attribute.FLOAT64:
		t.metrics[name] = value.AsFloat64()
	case attribute.BOOLSLICE:
		addSlice(t, name, value.AsBoolSlice(), func(key string, v bool) { t.meta[key] = strconv.FormatBool(v) })
	case attribute.INT64SLICE:
		addSlice(t, name, value.AsInt64Slice(), t.addInt)
	case attribute.FLOAT64SLICE:
		addSlice(t, name, value.AsFloat64Slice(), func(key string, v float64) { t.metrics[key] = v })
	case attribute.STRINGSLICE:
		addSlice(t, name, value.AsStringSlice(), func(key, v string) { t.meta[key] = v })
	default:
		t.meta[name] = asText(value)
	}
}

// addInt keeps an integer exact: as a number where Datadog's can hold it, else
// as text.
func (t tags) addInt(key string, value int64) {
	if value >= maxExact || value <= -maxExact {
		t.meta[key] = strconv.FormatInt(value, 10)
		return
	}
	t.metrics[key] = float64(value)
}

// addSlice gives each element a tag of its own, key.0 and on, which Datadog
// shows as a list.
func addSlice[T any](t tags, key string, values []T, add func(string, T)) {
	if len(values) == 0 {
		t.meta[key] = "[]"
	}
	for i, value := range values {
		if name := key + "." + strconv.Itoa(i); !t.has(name) {
			add(name, value)
		}
	}
}

// asText is any value as one text, as the agent writes what is no number: lists
// and maps as JSON, bytes in base64.
func asText(value attribute.Value) string {
	switch value.Type() {
	case attribute.STRING:
		return value.AsString()
	case attribute.BOOL:
		return strconv.FormatBool(value.AsBool())
	case attribute.INT64:
		return strconv.FormatInt(value.AsInt64(), 10)
	case attribute.FLOAT64:
		return floatText(value.AsFloat64())
	case attribute.BYTESLICE:
		return base64.StdEncoding.EncodeToString(value.AsByteSlice())
	case attribute.EMPTY:
		return ""
	default:
		text, err := json.Marshal(plain(value))
		if err != nil {
			return value.String() // plain leaves nothing that JSON has no form for
		}
		return string(text)
	}
}

// floatText is a float as JSON has it, and those it has not by their names.
func floatText(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	text, _ := json.Marshal(f)
	return string(text)
}

// plain is a value as encoding/json and dd-trace-go's events take it.
func plain(value attribute.Value) any {
	switch value.Type() {
	case attribute.SLICE:
		list := make([]any, 0, len(value.AsSlice()))
		for _, v := range value.AsSlice() {
			list = append(list, plain(v))
		}
		return list
	case attribute.MAP:
		fields := make(map[string]any, len(value.AsMap()))
		for _, kv := range value.AsMap() {
			fields[string(kv.Key)] = plain(kv.Value)
		}
		return fields
	case attribute.FLOAT64:
		return finite(value.AsFloat64())
	case attribute.FLOAT64SLICE:
		list := make([]any, 0, len(value.AsFloat64Slice()))
		for _, f := range value.AsFloat64Slice() {
			list = append(list, finite(f))
		}
		return list
	case attribute.BYTESLICE, attribute.EMPTY:
		return asText(value)
	default:
		return value.AsInterface()
	}
}

// finite is f, or its name where JSON has no form for it.
func finite(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return floatText(f)
	}
	return f
}

// typed is a value as an event's attribute has it, in one of the types that the
// agent's protocol knows; the others are text.
func typed(value attribute.Value) any {
	switch value.Type() {
	case attribute.BOOL, attribute.INT64, attribute.FLOAT64, attribute.STRING,
		attribute.BOOLSLICE, attribute.INT64SLICE, attribute.FLOAT64SLICE, attribute.STRINGSLICE:
		return value.AsInterface()
	default:
		return asText(value)
	}
}
