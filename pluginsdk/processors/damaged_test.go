package processors

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Field numbers of OTLP, for bytes that no OTLP library writes.
const (
	fieldResourceSpans   = 1
	fieldScopeSpans      = 2
	fieldSpan            = 2
	fieldSpanName        = 5
	fieldSpanAttributes  = 9
	fieldSpanEvents      = 11
	fieldEventAttributes = 3
	fieldKey             = 1
	fieldValue           = 2
	fieldString          = 1
)

func field(num protowire.Number, content ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), slices.Concat(content...))
}

func textField(num protowire.Number, text string) []byte { return field(num, []byte(text)) }

func requestOf(spans ...[]byte) []byte {
	var all []byte
	for _, s := range spans {
		all = append(all, field(fieldSpan, s)...)
	}
	return field(fieldResourceSpans, field(fieldScopeSpans, all))
}

func attributeField(num protowire.Number, key string, value ...[]byte) []byte {
	return field(num, textField(fieldKey, key), field(fieldValue, value...))
}

// all returns each processor, configured so that each has something to do.
func all(tb testing.TB) map[string]pluginsdk.Processor {
	tb.Helper()
	return map[string]pluginsdk.Processor{
		kindRayContext: construct(tb, RayContext(), pluginsdk.Setup{Context: pluginsdk.StaticContext{Job: "01000000"}}),
		kindRedact:     construct(tb, Redact(RedactConfig{}), pluginsdk.Setup{}),
		kindFilter: construct(tb, Filter(FilterConfig{Drop: []SpanMatch{
			{Name: "*health*"}, {Status: "error", Attributes: map[string]any{"a": "*"}, Resource: map[string]any{"a": nil}},
		}}), pluginsdk.Setup{}),
		kindSample: construct(tb, Sample(SampleConfig{Ratio: 0.5, Keep: KeepConfig{Errors: true, SlowerThan: time.Second}}), pluginsdk.Setup{}),
		kindAttributes: construct(tb, Attributes(AttributesConfig{Actions: []AttributeAction{
			{Key: "*", Action: "hash"}, {Key: "a*", Action: "rename", To: "b*"}, {Key: "x", Action: "upsert", FromAttribute: "b"},
			{Key: "*", Action: "delete", On: "event"}, {Key: "*", Action: "hash", On: "link"}, {Key: "y", Action: "insert", Value: 1, On: "resource"},
		}}), pluginsdk.Setup{}),
	}
}

// damaged is a batch with some bytes changed, cut out or doubled.
func damaged(g generator, encoded []byte) []byte {
	out := slices.Clone(encoded)
	for range 1 + g.IntN(4) {
		if len(out) == 0 {
			break
		}
		at := g.IntN(len(out))
		switch g.IntN(5) {
		case 0:
			out = out[:at]
		case 1:
			out = slices.Delete(out, at, min(len(out), at+1+g.IntN(4)))
		case 2:
			out = slices.Insert(out, at, out[at:min(len(out), at+1+g.IntN(20))]...)
		default:
			out[at] = byte(g.Uint32())
		}
	}
	return out
}

// TestDamaged: malformed bytes are an error or, if no processor reads them, pass
// unchanged. They never cause a panic.
func TestDamaged(t *testing.T) {
	processors := all(t)
	refused := map[string]int{}
	const perBatch = 4
	const times = fuzzedSpans / perBatch
	for seed := range uint64(times) {
		g := newGenerator(seed)
		encoded := damaged(g, marshal(t, g.batch(perBatch)))
		for name, p := range processors {
			if !checkDamaged(t, name, p, encoded) {
				refused[name]++
			}
		}
	}
	for name := range processors {
		if n := refused[name]; n < times/50 || n > times*9/10 {
			t.Errorf("%s refuses %d of %d damaged batches: the test proves little", name, n, times)
		}
	}
}

// checkDamaged reports whether the processor accepted the batch.
func checkDamaged(t *testing.T, name string, p pluginsdk.Processor, encoded []byte) bool {
	t.Helper()
	before := slices.Clone(encoded)
	out, err := process(t, p, encoded)
	if !bytes.Equal(before, encoded) {
		t.Fatalf("%s changes the bytes that arrived", name)
	}
	fine := proto.Unmarshal(encoded, &tracepb.TracesData{}) == nil
	if err != nil {
		if fine {
			t.Errorf("%s refuses what protobuf takes: %v\n%q", name, err, encoded)
		}
		return false
	}
	leaves := proto.Unmarshal(out, &tracepb.TracesData{})
	if leaves != nil && fine {
		t.Errorf("%s lets out what protobuf does not take: %v\n%q\nof\n%q", name, leaves, out, encoded)
	}
	return true
}

func FuzzProcessors(f *testing.F) {
	for seed := range uint64(5) {
		f.Add(marshal(f, newGenerator(seed).batch(2)))
	}
	processors := all(f)
	f.Fuzz(func(t *testing.T, encoded []byte) {
		for name, p := range processors {
			checkDamaged(t, name, p, encoded)
		}
	})
}

// TestFieldNumbers: one that is too large ends a message for the SDK and for
// decoders, so it must for these too.
func TestFieldNumbers(t *testing.T) {
	tag := protowire.AppendVarint(nil, uint64(protowire.MaxValidNumber+1)<<3|uint64(protowire.VarintType))
	name := slices.Concat(tag, []byte{1}, textField(fieldSpanName, "a@example.com"))
	event := slices.Concat(tag, []byte{1}, field(fieldSpanEvents, attributeField(fieldEventAttributes, "k", textField(fieldString, "a@example.com"))))
	for _, encoded := range [][]byte{requestOf(name), requestOf(event)} {
		for kind, p := range all(t) {
			if kind == kindSample || kind == kindRayContext {
				continue // which read the fields in front only
			}
			if out, err := process(t, p, encoded); err == nil {
				t.Errorf("%s lets it pass: %q", kind, out)
			}
		}
	}
}

// TestRawKeys: a key that is no UTF-8 would be mended where it is set, beside
// the one that it was.
func TestRawKeys(t *testing.T) {
	p := construct(t, Attributes(AttributesConfig{Actions: []AttributeAction{{Key: "a*", Action: "hash"}}}), pluginsdk.Setup{})
	out, err := process(t, p, requestOf(attributeField(fieldSpanAttributes, "a\xff", textField(fieldString, "hunter2"))))
	if err != nil || bytes.Contains(out, []byte("hunter2")) {
		t.Errorf("%v, and out comes %q", err, out)
	}
	kvs := spansOf(unmarshal(t, out))[0].Attributes
	want := []*commonpb.KeyValue{{Key: "a\uFFFD", Value: textValue("f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7")}}
	if len(kvs) != 1 || !proto.Equal(kvs[0], want[0]) {
		t.Errorf("attributes %v, want %v", kvs, want)
	}
}

// TestProcessConcurrentSafe: calls overlap, on one processor.
func TestProcessConcurrentSafe(t *testing.T) {
	processors := all(t)
	var calls sync.WaitGroup
	for seed := range uint64(8) {
		encoded := marshal(t, newGenerator(seed%2).batch(20))
		calls.Go(func() {
			for name, p := range processors {
				want, err := process(t, p, encoded)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				for range 5 {
					if got, _ := process(t, p, encoded); !bytes.Equal(got, want) {
						t.Errorf("%s gives something else while others work", name)
					}
				}
			}
		})
	}
	calls.Wait()
}
