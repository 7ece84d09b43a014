package shapes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TestCorpusHasEverything counts the features on which the other tests rely.
func TestCorpusHasEverything(t *testing.T) {
	spans := draw(1, 5000)
	seen, ids := map[string]int{}, map[trace.SpanID]bool{}
	for _, s := range spans {
		ids[s.SpanContext().SpanID()] = true
		if !s.SpanContext().IsValid() || !s.SpanContext().IsSampled() {
			t.Fatalf("span %q is invalid or not sampled", s.Name())
		}
		for _, what := range features(s) {
			seen[what]++
		}
	}
	if len(ids) != len(spans) {
		t.Errorf("%d spans have %d ids", len(spans), len(ids))
	}
	if seen["invalid UTF-8"] > 0 {
		t.Errorf("%d spans have invalid UTF-8, for which the SDK would lose their batches", seen["invalid UTF-8"])
	}
	want := []string{
		"huge", "128 events", "128 links with attributes", "128 attributes", "dropped attributes", "dropped events",
		"dropped links", "dropped attributes of an event", "dropped attributes of a link", "zero start", "zero end", "end before start",
		"trace id with zero low half", "trace id with zero high half", "span id with zero low half", "root", "remote parent",
		"local parent", "parent of another trace", "trace state", "random flag", "kind out of range", "no resource", "empty resource",
		"empty scope", "scope with attributes", "key twice", "link with trace state", "error with description", "ok", "stack trace", "empty name",
	}
	for kind := attribute.EMPTY; kind <= attribute.MAP; kind++ {
		for _, owner := range []string{"span", "event", "link", "resource", "scope"} {
			want = append(want, fmt.Sprintf("%v in %s", kind, owner))
		}
		if strings.HasSuffix(kind.String(), "SLICE") || kind == attribute.MAP || kind == attribute.STRING {
			want = append(want, "none of "+kind.String())
		}
	}
	for kind := trace.SpanKindInternal; kind <= trace.SpanKindConsumer; kind++ {
		want = append(want, "kind "+kind.String())
	}
	for _, what := range want {
		if seen[what] < 2 {
			t.Errorf("the corpus has %d of %q", seen[what], what)
		}
	}
	if t.Failed() {
		for _, what := range slices.Sorted(maps.Keys(seen)) {
			t.Logf("%6d %s", seen[what], what)
		}
	}
}

// features names the special features of a span.
func features(s sdktrace.ReadOnlySpan) []string {
	var fs []string
	when := func(is bool, name string) {
		if is {
			fs = append(fs, name)
		}
	}
	traceID, spanID, parent := s.SpanContext().TraceID(), s.SpanContext().SpanID(), s.Parent()
	when([8]byte(traceID[8:]) == [8]byte{}, "trace id with zero low half")
	when([8]byte(traceID[:8]) == [8]byte{}, "trace id with zero high half")
	when([4]byte(spanID[4:]) == [4]byte{}, "span id with zero low half")
	when(!parent.IsValid(), "root")
	when(parent.IsValid() && parent.IsRemote(), "remote parent")
	when(parent.IsValid() && !parent.IsRemote() && parent.TraceID() == traceID, "local parent")
	when(parent.IsValid() && parent.TraceID() != traceID, "parent of another trace")
	when(s.SpanContext().TraceState().Len() > 0, "trace state")
	when(s.SpanContext().TraceFlags().IsRandom(), "random flag")
	when(s.StartTime().IsZero(), "zero start")
	when(s.EndTime().IsZero(), "zero end")
	when(!s.EndTime().IsZero() && s.EndTime().Before(s.StartTime()), "end before start")
	when(s.Name() == "", "empty name")
	when(s.SpanKind() < 0 || s.SpanKind() > trace.SpanKindConsumer, "kind out of range")
	fs = append(fs, "kind "+s.SpanKind().String())
	when(s.Status().Code == codes.Error && s.Status().Description != "", "error with description")
	when(s.Status().Code == codes.Ok, "ok")
	when(len(s.Events()) >= 128, "128 events")
	when(len(s.Links()) >= 128 && len(s.Links()[127].Attributes) > 0, "128 links with attributes")
	when(len(s.Attributes()) >= 128, "128 attributes")
	when(s.DroppedAttributes() > 0, "dropped attributes")
	when(s.DroppedEvents() > 0, "dropped events")
	when(s.DroppedLinks() > 0, "dropped links")
	when(s.Resource() == nil, "no resource")
	when(s.Resource() != nil && s.Resource().Len() == 0, "empty resource")
	when(s.InstrumentationScope().Name == "", "empty scope")
	scope := s.InstrumentationScope().Attributes
	when(scope.Len() > 0, "scope with attributes")
	when(!utf8.ValidString(s.Name()+s.Status().Description), "invalid UTF-8")
	fs = append(fs, ofAttributes("span", s.Attributes())...)
	fs = append(fs, ofAttributes("resource", s.Resource().Attributes())...)
	fs = append(fs, ofAttributes("scope", scope.ToSlice())...)
	for _, e := range s.Events() {
		when(e.DroppedAttributeCount > 0, "dropped attributes of an event")
		when(!utf8.ValidString(e.Name), "invalid UTF-8")
		fs = append(fs, ofAttributes("event", e.Attributes)...)
	}
	for _, l := range s.Links() {
		when(l.DroppedAttributeCount > 0, "dropped attributes of a link")
		when(l.SpanContext.TraceState().Len() > 0, "link with trace state")
		fs = append(fs, ofAttributes("link", l.Attributes)...)
	}
	return fs
}

func ofAttributes(owner string, kvs []attribute.KeyValue) []string {
	var fs []string
	keys := map[attribute.Key]bool{}
	for _, kv := range kvs {
		fs = append(fs, fmt.Sprintf("%v in %s", kv.Value.Type(), owner))
		if keys[kv.Key] {
			fs = append(fs, "key twice")
		}
		keys[kv.Key] = true
		text := kv.Value.String()
		switch {
		case len(text) > 512<<10:
			fs = append(fs, "huge")
		case text == "" || text == "[]" || text == "{}":
			fs = append(fs, "none of "+kv.Value.Type().String())
		}
		if kv.Key == "exception.stacktrace" {
			fs = append(fs, "stack trace")
		}
		if !utf8.ValidString(string(kv.Key)) || kv.Value.Type() == attribute.STRING && !utf8.ValidString(text) {
			fs = append(fs, "invalid UTF-8")
		}
	}
	return fs
}
