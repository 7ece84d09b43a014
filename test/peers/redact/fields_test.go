package redact

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// kinds are texts with a secret in them, by what it is: %s is the marker, which
// is of hexadecimal digits.
var kinds = map[string]string{
	"assignment":  "password=%s",
	"header":      "Authorization: Bearer %s",
	"address":     "postgres://bob:%s@db.example/shop",
	"query":       "https://shop.example/cart?access_token=%s&x=1",
	"token":       "ghp_%s",
	"json":        `{"user":"bob","password":"%s"}`,
	"json inside": `{"log":"{\"api_key\":\"%s\"}"}`,
	"webhook":     "https://hooks.slack.com/services/T00000000/B00000000/%s",
	"private key": "-----BEGIN PRIVATE KEY-----\nMIIE%s\n-----END PRIVATE KEY-----\n",
}

// fields put a text into a span, each in another place that redact looks at.
var fields = map[string]struct {
	put func(s *tracetest.SpanStub, text string)
}{
	"name":  {put: func(s *tracetest.SpanStub, text string) { s.Name = text }},
	"value": {put: func(s *tracetest.SpanStub, text string) { s.Attributes = note(attribute.StringValue(text)) }},
	"bytes": {put: func(s *tracetest.SpanStub, text string) { s.Attributes = note(attribute.ByteSliceValue([]byte(text))) }},
	"list": {put: func(s *tracetest.SpanStub, text string) {
		s.Attributes = note(attribute.StringSliceValue([]string{"x", text}))
	}},
	"deep": {put: func(s *tracetest.SpanStub, text string) {
		s.Attributes = note(attribute.SliceValue(attribute.MapValue(attribute.KeyValue{Key: "k", Value: attribute.SliceValue(attribute.StringValue(text))})))
	}},
	"telling key": {put: func(s *tracetest.SpanStub, text string) {
		s.Attributes = []attribute.KeyValue{attribute.String("db.userPasswords", text)}
	}},
	"event": {put: func(s *tracetest.SpanStub, text string) { s.Events = []sdktrace.Event{{Name: text, Time: s.StartTime}} }},
	"event's value": {put: func(s *tracetest.SpanStub, text string) {
		s.Events = []sdktrace.Event{{Name: "exception", Time: s.StartTime, Attributes: note(attribute.StringValue(text))}}
	}},
	"link's value": {put: func(s *tracetest.SpanStub, text string) {
		s.Links = []sdktrace.Link{{SpanContext: s.SpanContext, Attributes: note(attribute.StringValue(text))}}
	}},
	"status": {put: func(s *tracetest.SpanStub, text string) {
		s.Status = sdktrace.Status{Code: codes.Error, Description: text}
	}},
	"resource": {put: func(s *tracetest.SpanStub, text string) {
		s.Resource = resource.NewSchemaless(note(attribute.StringValue(text))...)
	}},
	"scope's value": {put: func(s *tracetest.SpanStub, text string) {
		s.InstrumentationScope = instrumentation.Scope{Name: "scope", Attributes: attribute.NewSet(note(attribute.StringValue(text))...)}
	}},
}

func note(v attribute.Value) []attribute.KeyValue {
	return []attribute.KeyValue{{Key: "note", Value: v}}
}

// A planted span, and what must not be seen of it.
type planted struct {
	what   string
	field  string
	marker string
	span   sdktrace.ReadOnlySpan
}

// plant makes a span for each kind in each field. Markers are drawn: no two runs
// have the same.
func plant(t *testing.T) []planted {
	t.Helper()
	var all []planted
	for field, f := range fields {
		for kind, form := range kinds {
			p := planted{what: kind + " in " + field, field: field, marker: hex.EncodeToString(random(14))}
			stub := tracetest.SpanStub{
				Name: "work", SpanKind: trace.SpanKindServer, StartTime: time.Now().Add(-time.Second), EndTime: time.Now(),
				SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
					TraceID: trace.TraceID(random(16)), SpanID: trace.SpanID(random(8)), TraceFlags: trace.FlagsSampled,
				}),
				Resource: resource.NewSchemaless(attribute.String("service.name", "shop")),
			}
			text := fmt.Sprintf(form, p.marker)
			f.put(&stub, text)
			p.span = stub.Snapshot()
			all = append(all, p)
		}
	}
	return all
}

func random(n int) []byte {
	id := make([]byte, n)
	for i := range id {
		id[i] = byte(rand.Uint32())
	}
	return id
}
