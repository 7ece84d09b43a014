package processors_test

import (
	"context"
	"fmt"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

// spans is a batch of spans of that name, with texts as attributes, given as
// key and value in turn.
func spans(name string, attributes ...string) *pluginsdk.Batch {
	span := &tracepb.Span{
		Name: name, TraceId: []byte("0123456789abcdef"), SpanId: []byte("01234567"),
		StartTimeUnixNano: 1_700_000_000_000_000_000, EndTimeUnixNano: 1_700_000_002_000_000_000,
	}
	for i := 0; i < len(attributes); i += 2 {
		value := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: attributes[i+1]}}
		span.Attributes = append(span.Attributes, &commonpb.KeyValue{Key: attributes[i], Value: value})
	}
	encoded, err := proto.Marshal(&tracepb.TracesData{
		ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{span}}}}},
	})
	if err != nil {
		fmt.Println(err)
	}
	return pluginsdk.NewBatch(encoded)
}

// show processes a batch and prints the remaining spans.
func show(build pluginsdk.NewProcessor, setup pluginsdk.Setup, batch *pluginsdk.Batch) {
	ctx := context.Background()
	processor, err := build(ctx, setup)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := processor.Process(ctx, batch); err != nil {
		fmt.Println(err)
		return
	}
	for span := range batch.Spans() {
		fmt.Println(span.Name())
		for kv := range span.Attributes() {
			fmt.Printf("  %s = %s\n", kv.Key, kv.Value.String())
		}
	}
	fmt.Println(batch.Len(), "left")
}

func ExampleRayContext() {
	show(processors.RayContext(), pluginsdk.Setup{}, spans("application_span",
		"serve.task_id", "1f2e3d4c5b6a79880c2b7e6a54d1f09e8b3a2c710a000000",
		"serve.request_id", "cf86e040-2c53-44b8-976e-55224b692141"))
	// Output:
	// application_span
	//   serve.task_id = 1f2e3d4c5b6a79880c2b7e6a54d1f09e8b3a2c710a000000
	//   serve.request_id = cf86e040-2c53-44b8-976e-55224b692141
	//   ray.request_id = cf86e040-2c53-44b8-976e-55224b692141
	//   ray.task_id = 1f2e3d4c5b6a79880c2b7e6a54d1f09e8b3a2c710a000000
	//   ray.actor_id = 0c2b7e6a54d1f09e8b3a2c710a000000
	//   ray.job_id = 0a000000
	// 1 left
}

func ExampleAttributes() {
	build := processors.Attributes(processors.AttributesConfig{Actions: []processors.AttributeAction{
		{Key: "team", Action: "upsert", Value: "search"},
		{Key: "http.*", Action: "rename", To: "web.*"},
		{Key: "user.id", Action: "hash"},
		{Key: "*.body", Action: "delete"},
	}})
	show(build, pluginsdk.Setup{}, spans("GET /", "http.route", "/", "user.id", "bob", "request.body", "{}"))
	// Output:
	// GET /
	//   user.id = 81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9
	//   team = search
	//   web.route = /
	// 1 left
}

func ExampleRedact() {
	build := processors.Redact(processors.RedactConfig{
		BlockedKeys:   []string{"*ssn*"},
		BlockedValues: []string{`EMP-[0-9]{6}`},
		AllowedValues: []string{`.*@example\.com`},
	})
	show(build, pluginsdk.Setup{}, spans("GET /users/jane@example.org",
		"http.request.header.authorization", "Bearer abcdef",
		"user.ssn", "078-05-1120",
		"note", "EMP-123456 wrote to help@example.com with 4111 1111 1111 1111",
		"db.url", "postgres://app:hunter2@db:5432/orders"))
	// Output:
	// GET /users/[REDACTED]
	//   http.request.header.authorization = [REDACTED]
	//   user.ssn = [REDACTED]
	//   note = [REDACTED] wrote to help@example.com with [REDACTED]
	//   db.url = postgres://[REDACTED]@db:5432/orders
	// 1 left
}

func ExampleFilter() {
	build := processors.Filter(processors.FilterConfig{Drop: []processors.SpanMatch{
		{Name: "GET /health*"},
		{Attributes: map[string]any{"http.route": "/metrics"}, Status: "unset"},
	}})
	show(build, pluginsdk.Setup{}, spans("GET /healthz"))
	show(build, pluginsdk.Setup{}, spans("scrape", "http.route", "/metrics"))
	// Output:
	// 0 left
	// 0 left
}

func ExampleSample() {
	build := processors.Sample(processors.SampleConfig{
		Ratio: 0.1,
		Keep:  processors.KeepConfig{Errors: true, SlowerThan: time.Second},
	})
	show(build, pluginsdk.Setup{}, spans("slow")) // it took two seconds
	// Output:
	// slow
	// 1 left
}

func ExampleConfigured() {
	setup := pluginsdk.Setup{
		Getenv: func(name string) string { return map[string]string{processors.EnvRayContext: "on"}[name] },
		Config: []byte(`
processors:
  - attributes: {actions: [{key: team, action: insert, value: search}]}
  - redact: {}
`),
		Context: pluginsdk.StaticContext{Job: "0a000000"},
	}
	show(processors.Configured, setup, spans("startup", "password", "hunter2"))
	// Output:
	// startup
	//   password = [REDACTED]
	//   ray.job_id = 0a000000
	//   team = search
	// 1 left
}
