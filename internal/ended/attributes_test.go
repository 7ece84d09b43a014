package ended

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// FuzzAttributes: they are what package otlpwire writes, and are read as they were
// added.
func FuzzAttributes(f *testing.F) {
	f.Add("key", "text", true, int64(200), 1.5)
	f.Add("k", "", false, int64(0), 0.0)
	f.Add("a.long.key", strings.Repeat("x", 127), true, int64(127), math.Inf(1))
	f.Add(strings.Repeat("k", 128), strings.Repeat("x", 128), true, int64(128), math.SmallestNonzeroFloat64)
	f.Add("k", strings.Repeat("long ", 5000), true, int64(math.MaxInt64), math.MaxFloat64)
	f.Add("k", "Größe", true, int64(math.MinInt64), -1.0)
	f.Add("k", "bad \xff\xc3", true, int64(-1), math.Copysign(0, -1))
	f.Fuzz(func(t *testing.T, key, text string, flag bool, number int64, decimal float64) {
		if key == "" || !utf8.ValidString(key) {
			t.Skip("no key of package semconv's is so")
		}
		want := []attribute.KeyValue{
			attribute.String(key, text), attribute.Bool(key, flag), attribute.Int64(key, number),
			attribute.Float64(key, decimal), attribute.String(key, text),
		}
		add := Attributes.Text
		valid := utf8.ValidString(text)
		if !valid {
			add = Attributes.Odd
		}
		got := add(add(nil, key, text).Bool(key, flag).Int(key, number).Double(key, decimal), key, text)
		var w otlpwire.Writer
		if w.KeyValues(field.SpanAttributes, want); valid && !bytes.Equal(got, w.Bytes()) {
			t.Errorf("bytes:\n%q\nwant\n%q", got, w.Bytes())
		}
		if diff := cmp.Diff(shown(want), shown(got.List())); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
	})
}

// shown tells -0 from 0 and any NaN from any other.
func shown(kvs []attribute.KeyValue) (all []any) {
	for _, kv := range kvs {
		value := kv.Value.AsInterface()
		if f, is := value.(float64); is {
			value = math.Float64bits(f)
		}
		all = append(all, kv.Key, kv.Value.Type(), value)
	}
	return all
}

func TestNoAttributes(t *testing.T) {
	if got := Attributes(nil).List(); got != nil {
		t.Errorf("none are %v", got)
	}
}
