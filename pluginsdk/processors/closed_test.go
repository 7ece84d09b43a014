package processors

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// What no OTLP library writes, put together by hand.

func field(num protowire.Number, content ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), slices.Concat(content...))
}

func textField(num protowire.Number, text string) []byte { return field(num, []byte(text)) }

func varintField(num protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), n)
}

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

const hidden = "hunter2@example.com"

// hidingPlaces are spans, and more, that a reader might take for harmless.
func hidingPlaces() map[string][]byte {
	text := textField(fieldString, hidden)
	nested := text
	for range 90 {
		nested = field(fieldArray, field(fieldMember, nested))
	}
	ok := textField(fieldSpanName, "ok")
	return map[string][]byte{
		"name":                     requestOf(textField(fieldSpanName, hidden)),
		"first of two names":       requestOf(slices.Concat(textField(fieldSpanName, hidden), ok)),
		"trace state":              requestOf(textField(fieldSpanTraceState, "x="+hidden)),
		"trace id":                 requestOf(textField(fieldSpanTraceID, hidden)),
		"span id":                  requestOf(textField(fieldSpanSpanID, hidden)),
		"parent id":                requestOf(textField(fieldSpanParentID, hidden)),
		"unknown field":            requestOf(textField(99, hidden)),
		"unknown message":          requestOf(field(99, textField(1, "password"), textField(2, hidden))),
		"group":                    requestOf(slices.Concat(protowire.AppendTag(nil, 99, protowire.StartGroupType), textField(1, hidden), protowire.AppendTag(nil, 99, protowire.EndGroupType))),
		"number as text":           requestOf(textField(fieldSpanStart, hidden)),
		"status":                   requestOf(field(fieldSpanStatus, textField(fieldStatusMessage, hidden))),
		"status in pieces":         requestOf(slices.Concat(field(fieldSpanStatus, textField(fieldStatusMessage, hidden)), field(fieldSpanStatus, textField(fieldStatusMessage, "ok")))),
		"unknown field of status":  requestOf(field(fieldSpanStatus, textField(9, hidden))),
		"attribute":                requestOf(attributeField(fieldSpanAttributes, "k", text)),
		"bytes":                    requestOf(attributeField(fieldSpanAttributes, "k", textField(fieldBytes, hidden))),
		"binary":                   requestOf(attributeField(fieldSpanAttributes, "k", textField(fieldBytes, "\x00\xff"+hidden))),
		"no UTF-8":                 requestOf(attributeField(fieldSpanAttributes, "k", textField(fieldString, "\xff"+hidden))),
		"key":                      requestOf(attributeField(fieldSpanAttributes, hidden, textField(fieldString, "v"))),
		"key that is no UTF-8":     requestOf(attributeField(fieldSpanAttributes, "\xff"+hidden, textField(fieldString, "v"))),
		"blocked key, any type":    requestOf(attributeField(fieldSpanAttributes, "password", field(fieldArray, field(fieldMember, text)))),
		"first of two keys":        requestOf(field(fieldSpanAttributes, textField(fieldKey, hidden), textField(fieldKey, "k"))),
		"first of two values":      requestOf(field(fieldSpanAttributes, textField(fieldKey, "k"), field(fieldValue, text), field(fieldValue, varintField(fieldInt, 1)))),
		"first of two members":     requestOf(attributeField(fieldSpanAttributes, "k", text, varintField(fieldInt, 1))),
		"array in pieces":          requestOf(attributeField(fieldSpanAttributes, "k", field(fieldArray, field(fieldMember, text)), field(fieldArray))),
		"array, then text":         requestOf(attributeField(fieldSpanAttributes, "k", field(fieldArray, field(fieldMember, text)), textField(fieldString, "v"))),
		"unknown in value":         requestOf(attributeField(fieldSpanAttributes, "k", textField(99, hidden))),
		"unknown in key and value": requestOf(field(fieldSpanAttributes, textField(fieldKey, "k"), textField(99, hidden))),
		"unknown in array":         requestOf(attributeField(fieldSpanAttributes, "k", field(fieldArray, textField(99, hidden)))),
		"deep":                     requestOf(attributeField(fieldSpanAttributes, "k", nested)),
		"same key, first":          requestOf(slices.Concat(attributeField(fieldSpanAttributes, "k", text), attributeField(fieldSpanAttributes, "k", textField(fieldString, "v")))),
		"same key, last":           requestOf(slices.Concat(attributeField(fieldSpanAttributes, "k", textField(fieldString, "v")), attributeField(fieldSpanAttributes, "k", text))),
		"map":                      requestOf(attributeField(fieldSpanAttributes, "k", field(fieldKeyValues, attributeField(fieldMember, "password", textField(fieldString, hidden))))),
		"key in map":               requestOf(attributeField(fieldSpanAttributes, "k", field(fieldKeyValues, attributeField(fieldMember, hidden, textField(fieldString, "v"))))),
		"long":                     requestOf(attributeField(fieldSpanAttributes, "k", textField(fieldString, strings.Repeat(" ", defaultMaxValueBytes)+hidden))),
		"event name":               requestOf(field(fieldSpanEvents, textField(fieldEventName, hidden))),
		"second event":             requestOf(slices.Concat(field(fieldSpanEvents), field(fieldSpanEvents, attributeField(fieldEventAttributes, "k", text)))),
		"first of two event names": requestOf(field(fieldSpanEvents, textField(fieldEventName, hidden), textField(fieldEventName, "ok"))),
		"unknown field of event":   requestOf(field(fieldSpanEvents, textField(99, hidden))),
		"link":                     requestOf(slices.Concat(field(fieldSpanLinks), field(fieldSpanLinks, attributeField(fieldLinkAttributes, "k", text)))),
		"trace state of link":      requestOf(field(fieldSpanLinks, textField(fieldLinkTraceState, hidden))),
		"trace id of link":         requestOf(field(fieldSpanLinks, textField(fieldLinkTraceID, hidden))),
		"unknown field of link":    requestOf(field(fieldSpanLinks, textField(99, hidden))),
		"resource":                 field(fieldResourceSpans, field(fieldResource, attributeField(fieldResourceAttributes, "k", text)), field(fieldScopeSpans, field(fieldSpan, ok))),
		"resource in pieces": field(fieldResourceSpans, field(fieldResource, attributeField(fieldResourceAttributes, "k", text)),
			field(fieldScopeSpans, field(fieldSpan, ok)), field(fieldResource, attributeField(fieldResourceAttributes, "k", text))),
		"entities of resource": field(fieldResourceSpans, field(fieldResource, field(fieldResourceEntities, textField(1, hidden))), field(fieldScopeSpans, field(fieldSpan, ok))),
		"schema URL":           field(fieldResourceSpans, field(fieldScopeSpans, field(fieldSpan, ok)), textField(fieldSchemaURL, hidden)),
		"scope":                field(fieldResourceSpans, field(fieldScopeSpans, field(fieldScope, attributeField(fieldScopeAttributes, "k", text)), field(fieldSpan, ok))),
		"scope name":           field(fieldResourceSpans, field(fieldScopeSpans, field(fieldSpan, ok), field(fieldScope, textField(fieldScopeName, hidden)))),
		"scope version":        field(fieldResourceSpans, field(fieldScopeSpans, field(fieldSpan, ok), field(fieldScope, textField(fieldScopeVersion, hidden)))),
		"schema URL of scope":  field(fieldResourceSpans, field(fieldScopeSpans, field(fieldSpan, ok), textField(fieldSchemaURL, hidden))),
		"resource, no span":    field(fieldResourceSpans, field(fieldResource, attributeField(fieldResourceAttributes, "k", text))),
		"scope, no span":       field(fieldResourceSpans, field(fieldScopeSpans, field(fieldScope, attributeField(fieldScopeAttributes, "k", text))), field(fieldScopeSpans, field(fieldSpan, ok))),
		"unknown, no span":     field(99, []byte(hidden)),
		"unknown of resources": field(fieldResourceSpans, textField(99, hidden), field(fieldScopeSpans, field(fieldSpan, ok))),
		"many attributes":      requestOf(bytes.Repeat(attributeField(fieldSpanAttributes, "k", text), maxAttributeEdits+1)),
		"many members":         requestOf(attributeField(fieldSpanAttributes, "k", field(fieldArray, bytes.Repeat(field(fieldMember, text), maxMembers+1)))),
		"keys of an array":     requestOf(attributeField(fieldSpanAttributes, "k", field(fieldArray, field(fieldMember, field(fieldKeyValues, attributeField(fieldMember, "pwd", text)))))),
	}
}

// TestRedactFailsClosed: whatever the hiding place, nothing hidden leaves, and
// it leaves nothing that a second look would redact.
func TestRedactFailsClosed(t *testing.T) {
	for _, config := range []RedactConfig{{}, {KeepUnknownFields: true}} {
		p := construct(t, Redact(config), pluginsdk.Setup{})
		for name, encoded := range hidingPlaces() {
			t.Run(fmt.Sprintf("%s, keeping unknown fields %v", name, config.KeepUnknownFields), func(t *testing.T) {
				out, err := process(t, p, encoded)
				if bytes.Contains(out, []byte("hunter2")) {
					t.Errorf("it leaves: %q", out)
				}
				if err == nil {
					settled(t, p, out)
				}
			})
		}
	}
}

// TestRedactOpaque: the length in front of a text may be a letter or a digit,
// with which a pattern finds no beginning.
func TestRedactOpaque(t *testing.T) {
	p := construct(t, Redact(RedactConfig{KeepUnknownFields: true}), pluginsdk.Setup{})
	for length := 24; length < 'z'; length++ {
		token := "ghp_" + strings.Repeat("a", length-len("ghp_"))
		for name, encoded := range map[string][]byte{
			"entity": field(fieldResourceSpans, field(fieldResource, field(fieldResourceEntities, textField(3, token))),
				field(fieldScopeSpans, field(fieldSpan))),
			"unknown": requestOf(field(99, field(1, textField(1, token)))),
		} {
			if out, err := process(t, p, encoded); err != nil || bytes.Contains(out, []byte(token)) {
				t.Errorf("%s of %d bytes leaves (%v)", name, length, err)
			}
		}
	}
}

// settled tells whether a batch passes unchanged.
func settled(t *testing.T, p pluginsdk.Processor, encoded []byte) {
	t.Helper()
	again, err := process(t, p, encoded)
	if err != nil || !bytes.Equal(encoded, again) {
		t.Errorf("the second time (%v):\n%q\nbecomes\n%q", err, encoded, again)
	}
}

// TestRedactKeepsTheRest: a secret costs what holds it and no more.
func TestRedactKeepsTheRest(t *testing.T) {
	keep := slices.Concat(textField(fieldSpanName, "keep"), attributeField(fieldSpanAttributes, "k", textField(fieldString, "v")))
	for name, want := range map[string]int{
		"name": 2, "attribute": 2, "binary": 2, "deep": 2, "event name": 2, "link": 2, "status in pieces": 2, "many members": 2,
		"key": 2, "trace state": 1, "unknown field": 1, "group": 1, "trace id of link": 1, "many attributes": 1, "scope name": 1,
		"schema URL": 1, "resource": 2, "scope": 2,
	} {
		var logged bytes.Buffer
		setup := pluginsdk.Setup{Log: slog.New(slog.NewTextHandler(&logged, nil))}
		p := construct(t, Redact(RedactConfig{}), setup)
		out, err := process(t, p, slices.Concat(hidingPlaces()[name], requestOf(keep)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		spans := spansOf(unmarshal(t, out))
		if len(spans) != want {
			t.Errorf("%s: %d spans leave, want %d", name, len(spans), want)
		}
		if last := spans[len(spans)-1]; last.Name != "keep" || !proto.Equal(last.Attributes[0].Value, textValue("v")) {
			t.Errorf("%s: the other span leaves as %v", name, last)
		}
		if said := strings.Contains(logged.String(), "redact drops spans"); said != (want == 1) {
			t.Errorf("%s: the log says %q", name, logged.String())
		}
	}
}

// all gives one of each processor, set up so that each has something to do.
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

// TestDamaged: malformed bytes give an error or, where nobody looks at them,
// pass as they are; never a panic, and out of redact nothing that is no OTLP.
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

// checkDamaged tells whether the processor took the batch.
func checkDamaged(t *testing.T, name string, p pluginsdk.Processor, encoded []byte) bool {
	t.Helper()
	before := slices.Clone(encoded)
	out, err := process(t, p, encoded)
	if !bytes.Equal(before, encoded) {
		t.Fatalf("%s changes the bytes that arrived", name)
	}
	fine := proto.Unmarshal(encoded, &tracepb.TracesData{}) == nil
	if err != nil {
		if fine && name != kindRedact { // which may refuse what no span holds
			t.Errorf("%s refuses what protobuf takes: %v\n%q", name, err, encoded)
		}
		return false
	}
	leaves := proto.Unmarshal(out, &tracepb.TracesData{})
	if leaves != nil && (fine || name == kindRedact) {
		t.Errorf("%s lets out what protobuf does not take: %v\n%q\nof\n%q", name, leaves, out, encoded)
	}
	if name == kindRedact {
		settled(t, p, out)
	}
	return true
}

func FuzzProcessors(f *testing.F) {
	for seed := range uint64(5) {
		f.Add(marshal(f, newGenerator(seed).batch(2)))
	}
	for _, encoded := range hidingPlaces() {
		if len(encoded) < 1<<10 {
			f.Add(encoded)
		}
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
	name := slices.Concat(tag, []byte{1}, textField(fieldSpanName, hidden))
	event := slices.Concat(tag, []byte{1}, field(fieldSpanEvents, attributeField(fieldEventAttributes, "k", textField(fieldString, hidden))))
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
