package consoleexporter_test

import (
	"context"
	"fmt"
	"os"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

func ExampleNew() {
	exporter, err := consoleexporter.New(context.Background(), pluginsdk.Setup{
		Getenv: func(string) string { return "" }, // the defaults
		Stdout: os.Stdout,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	encoded, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "application_span", StartTimeUnixNano: 1000, EndTimeUnixNano: 2000}}}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := exporter.Export(context.Background(), pluginsdk.NewBatch(encoded)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {
	//     "name": "application_span",
	//     "context": {
	//         "trace_id": "0x00000000000000000000000000000000",
	//         "span_id": "0x0000000000000000",
	//         "trace_state": "[]"
	//     },
	//     "kind": "SpanKind.INTERNAL",
	//     "parent_id": null,
	//     "start_time": "1970-01-01T00:00:00.000001Z",
	//     "end_time": "1970-01-01T00:00:00.000002Z",
	//     "status": {
	//         "status_code": "UNSET"
	//     },
	//     "attributes": {},
	//     "events": [],
	//     "links": [],
	//     "resource": {
	//         "attributes": {},
	//         "schema_url": ""
	//     }
	// }
}
