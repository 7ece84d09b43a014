package otlpjson_test

import (
	"testing"

	"github.com/servetrace/servetrace/internal/otlpjson"
)

// TestFromProto: JSON becomes the same JSON, with ids in hexadecimal digits.
func TestFromProto(t *testing.T) {
	const document = `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c",` +
		`"spanId":"eee19b7ec3c1b174","parentSpanId":"eee19b7ec3c1b173","name":"GET /","kind":2,"startTimeUnixNano":"1",` +
		`"links":[{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"00f067aa0ba902b7"}],"status":{"code":2}},{"name":"no ids"}]}]}]}`
	data, spans, err := otlpjson.ToProto([]byte(document))
	if err != nil || spans != 2 {
		t.Fatalf("%d spans, %v", spans, err)
	}
	if got, err := otlpjson.FromProto(data); err != nil || string(got) != document {
		t.Errorf("JSON is %s, %v; want\n%s", got, err, document)
	}
	if _, err := otlpjson.FromProto([]byte{0xff}); err == nil {
		t.Error("bytes that are no OTLP became JSON")
	}
}
