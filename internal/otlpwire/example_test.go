package otlpwire_test

import (
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

func ExampleParse() {
	traces := &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "GET /"}, {Name: "GET /healthz"}}}},
	}}} // TracesData and ExportTraceServiceRequest look the same on the wire
	req, err := proto.Marshal(traces)
	if err != nil {
		fmt.Println(err)
		return
	}

	r, err := otlpwire.Parse(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	for span := range r.Spans() {
		if span.Name() == "GET /healthz" {
			span.Drop()
			continue
		}
		span.SetAttribute(attribute.String("team", "search"))
	}
	edited, err := otlpwire.Parse(r.AppendTo(nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	for span := range edited.Spans() {
		team, _ := span.Attribute("team")
		fmt.Println(span.Name(), team.AsString())
	}
	// Output: GET / search
}
