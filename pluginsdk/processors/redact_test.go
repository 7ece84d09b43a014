package processors

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

func rulesOf(tb testing.TB, c RedactConfig) *redactRules {
	tb.Helper()
	rules, err := c.compile()
	if err != nil {
		tb.Fatal(err)
	}
	return rules
}

// example is a line of a table of the page.
type example struct{ rule, key, value, becomes string }

var (
	foundRow    = regexp.MustCompile("(?m)^- ([^`]+): `([^`]+)` `([^`]+)` becomes `([^`]+)`$")
	notFoundRow = regexp.MustCompile("(?m)^- (.+): `([^`]+)`$")
)

// pageExamples returns the lines of the page's lists of examples.
func pageExamples(tb testing.TB) (found, notFound []example) {
	tb.Helper()
	page, err := os.ReadFile(referencePage)
	if err != nil {
		tb.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n### What redact finds\n")
	finds, text, _ := strings.Cut(text, "\n### What redact does not find\n")
	misses, _, _ := strings.Cut(text, "\nSave as")
	for _, row := range foundRow.FindAllStringSubmatch(finds, -1) {
		found = append(found, example{row[1], row[2], row[3], row[4]})
	}
	for _, row := range notFoundRow.FindAllStringSubmatch(misses, -1) {
		notFound = append(notFound, example{rule: row[1], key: "note", value: row[2], becomes: row[2]})
	}
	if rows := strings.Count(finds+misses, "\n- "); rows != len(found)+len(notFound) {
		tb.Errorf("the page has %d lines of examples, %d are understood", rows, len(found)+len(notFound))
	}
	return found, notFound
}

// TestRedactPage runs each line of the page's lists, found and not found. Redacted texts
// pass a second time unchanged.
func TestRedactPage(t *testing.T) {
	found, notFound := pageExamples(t)
	p := construct(t, Redact(RedactConfig{}), pluginsdk.Setup{})
	rules := map[string]int{}
	for _, e := range append(found, notFound...) {
		name, _, _ := strings.Cut(e.rule, ",")
		rules[name]++
		value := textValue(e.value)
		if n, err := strconv.ParseInt(e.value, 10, 64); err == nil {
			value = intValue(n)
		}
		want := value
		if e.becomes != e.value {
			want = textValue(e.becomes)
		}
		in := e.value
		for range 2 {
			got := redactedValue(t, p, e.key, value)
			if !proto.Equal(got, want) {
				t.Errorf("%s: %s: %s becomes %v, want %v", e.rule, e.key, in, got, want)
			}
			value, in = got, "redacted, it"
		}
	}
	for _, pattern := range patterns {
		if rules[pattern.rule] == 0 {
			t.Errorf("%s has no example of rule %s", referencePage, pattern.rule)
		}
	}
}

// redactedValue returns the value that an attribute of a span leaves with.
func redactedValue(t *testing.T, p pluginsdk.Processor, key string, value *commonpb.AnyValue) *commonpb.AnyValue {
	t.Helper()
	out, err := process(t, p, marshal(t, ofSpan(&tracepb.Span{Attributes: []*commonpb.KeyValue{{Key: key, Value: value}}})))
	if err != nil {
		t.Fatal(err)
	}
	return spansOf(unmarshal(t, out))[0].Attributes[0].Value
}

func ofSpan(span *tracepb.Span) *tracepb.TracesData {
	return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{span}}}}}}
}

// TestRedactEveryPlace: each place of a span that the page names is redacted, and
// everything beside the secret stays.
func TestRedactEveryPlace(t *testing.T) {
	const in, out = "a password=hunter2 b", "a password=[REDACTED] b"
	made := func(text string, number *commonpb.AnyValue) *tracepb.TracesData {
		list := &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: []*commonpb.AnyValue{
			textValue(text), intValue(5), {Value: &commonpb.AnyValue_BytesValue{BytesValue: []byte(text)}},
			{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: []*commonpb.KeyValue{
				{Key: "k", Value: textValue(text)}, {Key: "n", Value: number},
			}}}},
		}}}}
		texts := &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: []*commonpb.AnyValue{textValue("x"), textValue(text)}}}}
		attributes := func() []*commonpb.KeyValue {
			return []*commonpb.KeyValue{{Key: "k", Value: textValue(text)}, {Key: "list", Value: list}, {Key: "texts", Value: texts}, {Key: "n", Value: intValue(7)}}
		}
		span := &tracepb.Span{
			TraceId: bytes.Repeat([]byte{1}, 16), SpanId: bytes.Repeat([]byte{2}, 8), TraceState: "a=b", Name: text, Kind: tracepb.Span_SPAN_KIND_CLIENT,
			StartTimeUnixNano: 1, EndTimeUnixNano: 2, Attributes: attributes(), DroppedAttributesCount: 3,
			Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: text},
			Events: []*tracepb.Span_Event{{Name: text, TimeUnixNano: 4, Attributes: attributes()}},
			Links:  []*tracepb.Span_Link{{TraceId: bytes.Repeat([]byte{5}, 16), SpanId: bytes.Repeat([]byte{6}, 8), Attributes: attributes()}},
		}
		return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
			Resource: &resourcepb.Resource{Attributes: attributes()}, SchemaUrl: "https://schema.example",
			ScopeSpans: []*tracepb.ScopeSpans{{
				Scope: &commonpb.InstrumentationScope{Name: "scope", Version: "1", Attributes: attributes()},
				Spans: []*tracepb.Span{{Name: "before", Attributes: []*commonpb.KeyValue{{Key: "k", Value: textValue("v")}}}, span},
			}},
		}}}
	}
	encoded, err := process(t, construct(t, Redact(RedactConfig{}), pluginsdk.Setup{}), marshal(t, made(in, intValue(4111111111111111))))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := unmarshal(t, encoded), made(out, textValue(Redacted)); !proto.Equal(normal(got), normal(want)) {
		t.Errorf("redacted:\n%v\nwant:\n%v", got, want)
	}
}

func TestRedactConfigured(t *testing.T) {
	rules := rulesOf(t, RedactConfig{
		BlockedKeys: []string{"*ssn*"}, IgnoredKeys: []string{"kept.*"}, BlockedValues: []string{`EMP-[0-9]{6}`, `\b7{9}\b`, `^Q[0-9]`},
		AllowedValues: []string{`.*@example\.com`}, Without: []string{"card"},
	})
	for in, want := range map[string]string{
		"id EMP-123456":              "id [REDACTED]",
		"id EMP-123456 EMP-654321 Q": "id [REDACTED] [REDACTED] Q",
		"Q1Q2":                       "[REDACTED]Q2",
		"bob@example.com":            "bob@example.com",
		"bob@example.org":            "[REDACTED]",
		"bob@example.com.org":        "[REDACTED]",
		"4111111111111111":           "4111111111111111",
		"777777777":                  "[REDACTED]",
		"user_SSN=1234":              "user_SSN=[REDACTED]",
		`{"kept.password":["a"]}`:    `{"kept.password":["a"]}`,
		`{"a":{"ssn":1.50,"n":1.0}}`: `{"a":{"ssn":"[REDACTED]","n":1.0}}`,
	} {
		if got := rules.text(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	for key, want := range map[string]keyRule{"user.SSN": keyBlocked, "kept.password": keyIgnored, "user.password": keyBlocked, "name": keyPlain} {
		if got := rules.keyRule(key); got != want {
			t.Errorf("key %q has rule %d, want %d", key, got, want)
		}
	}
	for rule := range removedRules {
		if err := (RedactConfig{Without: []string{rule}}).Validate(); err == nil || !strings.Contains(err.Error(), removedRules[rule]) {
			t.Errorf("without %s: %v", rule, err)
		}
	}
	only := rulesOf(t, RedactConfig{Without: []string{"keys"}})
	if got := only.text(`{"password":"x","note":"password=x"}`); got != `{"password":"x","note":"password=[REDACTED]"}` {
		t.Errorf("without keys: %s", got)
	}
}

// TestRedactSeesEarlierProcessors: redact finds attributes that processors in
// front of it have set, and each exporter of a Tee gets the redacted spans.
func TestRedactSeesEarlierProcessors(t *testing.T) {
	setup := pluginsdk.Setup{Context: pluginsdk.StaticContext{Job: "01000000"}}
	chain := pluginsdk.Chain{
		construct(t, RayContext(), setup),
		construct(t, Attributes(AttributesConfig{Actions: []AttributeAction{
			{Key: "copy", Action: "upsert", FromAttribute: "note"}, {Key: "contact", Action: "insert", Value: "hunter2@example.com", On: "resource"},
		}}), setup),
		construct(t, Redact(RedactConfig{}), setup),
	}
	b := pluginsdk.NewBatch(marshal(t, ofSpan(&tracepb.Span{Attributes: []*commonpb.KeyValue{
		{Key: "serve.request_id", Value: textValue("password=hunter2")}, {Key: "note", Value: textValue("token=hunter2")},
	}})))
	if err := chain.Process(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	look := pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
		kvs := spansOf(unmarshal(t, b.Bytes()))[0].Attributes
		request, _ := find(kvs, "ray.request_id")
		copied, _ := find(kvs, "copy")
		if bytes.Contains(b.Bytes(), []byte("hunter2")) || request.GetStringValue() != "password="+Redacted || copied.GetStringValue() != "token="+Redacted {
			t.Errorf("an exporter gets %q", b.Bytes())
		}
		calls.Add(1)
		return nil
	})
	exporter := func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) { return look, nil }
	tee, err := pluginsdk.Tee(exporter, exporter)(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	if err := tee.Export(t.Context(), b); err != nil || calls.Load() != 2 {
		t.Errorf("%d exporters got it: %v", calls.Load(), err)
	}
}

// TestRedactIsLinear redacts texts that match a pattern at every step.
func TestRedactIsLinear(t *testing.T) {
	const length = 4 << 10
	rules := rulesOf(t, RedactConfig{})
	for _, piece := range []string{
		"password", "password=", "password='", "pass = '", "token:", "token:\"a", "pin:[", `\"`, "cookie:", "a_password.b-", "4-", "4111 ", "://a:",
		"http://a@", "a=b&", "AKIA", "x@", "x.", "bearer ", "eyJ.", "[", `{"a":`, "-----BEGIN PRIVATE KEY-----", "sk-",
	} {
		wantLinear(t, piece, length, func(length int) {
			text := strings.Repeat(piece, length/len(piece))
			if got := rules.text(text); got == "" || len(got) > len(text)*(len(Redacted)+1) {
				t.Errorf("%q grows from %d to %d bytes", piece, len(text), len(got))
			}
		})
	}
	if got, want := rules.text(strings.Repeat("password=", length)), "password="+Redacted; got != want {
		t.Errorf("got %.80q, want %q", got, want)
	}
}

// FuzzRedactText: a text stays UTF-8, JSON stays JSON, and the result is redacted. It
// skips long texts, because the fuzzer minimises an input in quadratic time.
// [TestRedactIsLinear] has long texts.
func FuzzRedactText(f *testing.F) {
	found, notFound := pageExamples(f)
	for _, e := range append(found, notFound...) {
		f.Add(e.value)
	}
	for _, text := range ordinaryTexts {
		f.Add(text)
	}
	rules := rulesOf(f, RedactConfig{BlockedValues: []string{`EMP-[0-9]+`}})
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 192 {
			t.Skip()
		}
		got := rules.text(text)
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q becomes %q, which is no UTF-8", text, got)
		}
		if json.Valid([]byte(text)) && (strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")) && !json.Valid([]byte(got)) {
			t.Errorf("%q becomes %q, which is no JSON", text, got)
		}
		if got != text && !strings.Contains(got, Redacted) {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}
