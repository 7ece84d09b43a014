package ended

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"sync"
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

func TestTemplate(t *testing.T) {
	for _, rest := range []string{"", "0a0b", strings.Repeat("f", 200)} {
		tmpl := NewTemplate("task", rest)
		for range 2 { // it is as before
			number := binary.NativeEndian.Uint64([]byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef})
			want := Attributes(nil).Int("before", 1).Text("task", "0123456789abcdef"+rest)
			if got := tmpl.AppendTo(Attributes(nil).Int("before", 1), number); !bytes.Equal(got, want) {
				t.Errorf("attributes %q, want %q", got, want)
			}
			if got, want := tmpl.Text(number), "0123456789abcdef"+rest; got != want {
				t.Errorf("text %q, want %q", got, want)
			}
			if got := tmpl.AppendTo(nil, 0); !bytes.Equal(got, Attributes(nil).Text("task", strings.Repeat("0", 16)+rest)) {
				t.Errorf("attributes of zero are %q", got)
			}
		}
	}
}

// A template is read by all spans that are alike, at once.
func TestTemplateConcurrentSafe(t *testing.T) {
	tmpl := NewTemplate("task", "0a")
	var group sync.WaitGroup
	for number := range uint64(4) {
		want := tmpl.Text(number)
		group.Go(func() {
			for range 1000 {
				if got := tmpl.Text(number); got != want {
					t.Errorf("text %q, want %q", got, want)
				}
			}
		})
	}
	group.Wait()
}

// A light span's attributes come in their order, and are as long as it says.
func TestLightAppendTo(t *testing.T) {
	call := Attributes(nil).Text("call", "r1")
	for bits := range 1 << 5 {
		l := Light{Like: &Like{End: Attributes(nil).Bool("end", true)}}
		var want Attributes
		if bits&1 != 0 {
			l.Call, want = &call, append(want, call...)
		}
		if bits&2 != 0 {
			l.Like.Start = Attributes(nil).Int("start", 2)
			want = append(want, l.Like.Start...)
		}
		if l.Whole = bits&4 != 0; l.Whole {
			want = append(want, l.Like.End...)
		}
		if l.Task = 7; bits&8 != 0 {
			l.Like.Task = NewTemplate("task", "00")
			want = l.Like.Task.AppendTo(want, 7)
		}
		if bits&16 != 0 {
			l.Attributes = Attributes(nil).Double("own", 1.5)
			want = append(want, l.Attributes...)
		}
		if got := l.AppendTo(nil); !bytes.Equal(got, want) || l.Size() != len(want) {
			t.Errorf("%05b: %q of %d bytes, want %q of %d", bits, got, l.Size(), want, len(want))
		}
	}
}
