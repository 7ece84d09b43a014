package datadog

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

const start = 1_700_000_000_000_000_001

// corpus has spans for every row of the table, by their names.
func corpus() *coltracepb.ExportTraceServiceRequest {
	kinds := map[string]tracepb.Span_SpanKind{
		"server": tracepb.Span_SPAN_KIND_SERVER, "client": tracepb.Span_SPAN_KIND_CLIENT,
		"producer": tracepb.Span_SPAN_KIND_PRODUCER, "consumer": tracepb.Span_SPAN_KIND_CONSUMER,
		"internal": tracepb.Span_SPAN_KIND_INTERNAL, "unspecified": tracepb.Span_SPAN_KIND_UNSPECIFIED,
	}
	var spans []*tracepb.Span
	add := func(name, kind string, attributes ...*commonpb.KeyValue) *tracepb.Span {
		id := uint64(len(spans) + 1)
		s := &tracepb.Span{
			TraceId: binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 0xfeed000000000000+id), 0xbeef000000000000+id),
			SpanId:  binary.BigEndian.AppendUint64(nil, 0xabcd000000000000+id),
			Name:    name, Kind: kinds[kind], Attributes: attributes,
			StartTimeUnixNano: start + id, EndTimeUnixNano: start + 2*id + 5,
		}
		spans = append(spans, s)
		return s
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		add("bare "+kind, kind)
		add("http "+kind, kind, str("http.request.method", "GET"), str("http.route", "/users/{id}"), num("http.response.status_code", 404))
		add("old http "+kind, kind, str("http.method", "POST"), num("http.status_code", 200))
		add("other http "+kind, kind, str("http.request.method", "_OTHER"))
		add("db "+kind, kind, str("db.system", "postgresql"), str("db.statement", "SELECT name FROM users"), str("db.namespace", "shop"))
		add("messaging "+kind, kind, str("messaging.system", "kafka"), str("messaging.operation", "publish"), str("messaging.destination.name", "orders"))
		add("rpc "+kind, kind, str("rpc.system", "grpc"), str("rpc.method", "Get"), str("rpc.service", "shop.Cart"), num("rpc.grpc.status_code", 5))
		add("aws "+kind, kind, str("rpc.system", "aws-api"), str("rpc.service", "S3"), str("rpc.method", "PutObject"))
		add("faas "+kind, kind, str("faas.invoked_provider", "aws"), str("faas.invoked_name", "resize"), str("faas.trigger", "timer"))
		add("graphql "+kind, kind, str("graphql.operation.type", "query"), str("graphql.operation.name", "cart"))
		add("protocol "+kind, kind, str("network.protocol.name", "AMQP"))
		add("conventions "+kind, kind, str("operation.name", "My Op"), str("resource.name", "my resource"), str("span.type", "worker"), str("service.name", "other"))
	}
	for _, db := range []string{"redis", "memcached", "mongodb", "cassandra", "elasticsearch", "opensearch", "mysql", "mariadb", "neo4j", "Unheard Of"} {
		add("type of "+db, "client", str("db.system", db))
	}
	add("renamed", "server", str("http.request.method", "GET"), str("url.full", "https://a/b?c"), str("user_agent.original", "curl"),
		str("client.address", "10.0.0.1"), str("server.address", "a"), str("network.protocol.version", "1.1"),
		num("http.request.body.size", 7), num("http.response.body.size", 8), str("http.request.header.x-id", "9"), str("http.request.header.referrer", "r"))
	add("types", "internal", str("text", "plain"), str("empty", ""), attr("yes", &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}),
		num("int", 42), num("negative", -42), num("exact", 1<<53-1), dbl("float", 1.5), dbl("nan", math.NaN()), dbl("inf", math.Inf(-1)),
		attr("bytes", &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: []byte{0, 255}}}),
		attr("map", &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: []*commonpb.KeyValue{str("a", "b"), num("c", 1)}}}}),
		list("empty list"))
	add("altered types", "internal", num("large", 1<<53+1), num("small", math.MinInt64), list("texts", "a", "b"), ints("ints", 1, 2))
	add("control", "internal", attr("error", &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}),
		str("span.name", "no"), str("_dd.p.dm", "-4"))
	add("control that passes", "internal", attr("analytics.event", &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}),
		num("_dd.measured", 1), str("env", "own"), str("version", "7"))
	failed := add("failed", "server", str("http.request.method", "GET"), num("http.status_code", 500))
	failed.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	described := add("failed with a description", "internal")
	described.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "out of stock"}
	ok := add("ok", "internal")
	ok.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_OK}
	thrown := add("thrown", "internal")
	thrown.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	thrown.Events = []*tracepb.Span_Event{
		{TimeUnixNano: start + 3, Name: "exception", Attributes: []*commonpb.KeyValue{str("exception.type", "First"), str("exception.message", "one")}},
		{TimeUnixNano: start + 4, Name: "exception", Attributes: []*commonpb.KeyValue{
			str("exception.type", "ValueError"), str("exception.message", "bad"), str("exception.stacktrace", "at x\nat y"),
		}},
	}
	handled := add("handled", "internal")
	handled.Events = thrown.Events
	events := add("events", "internal")
	events.Events = []*tracepb.Span_Event{
		{TimeUnixNano: start + 5, Name: "retry", DroppedAttributesCount: 2, Attributes: []*commonpb.KeyValue{num("n", 3), str("why", "busy")}},
		{Name: ""},
	}
	links := add("links", "internal")
	links.Links = []*tracepb.Span_Link{{
		TraceId: failed.GetTraceId(), SpanId: failed.GetSpanId(), TraceState: "a=b", Flags: 0x301,
		Attributes: []*commonpb.KeyValue{str("kind", "follows"), num("n", 1)},
	}}
	state := add("tracestate", "internal")
	state.TraceState = "ot=th:8,vendor=1"
	dropped := add("dropped", "internal")
	dropped.DroppedAttributesCount, dropped.DroppedEventsCount, dropped.DroppedLinksCount = 1, 2, 3
	parent := add("parent", "server")
	child := add("child", "client")
	child.TraceId, child.ParentSpanId = parent.GetTraceId(), parent.GetSpanId()
	orphan := add("orphan", "internal")
	orphan.ParentSpanId = []byte{1, 1, 1, 1, 1, 1, 1, 1}
	backwards := add("backwards", "internal")
	backwards.EndTimeUnixNano = start - 7
	nobodys := add("without a resource", "internal")
	spans = spans[:len(spans)-1]
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{
		{
			Resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{
				str("service.name", "orders"), str("service.version", "1.2.3"), str("service.instance.id", "instance-1"),
				str("deployment.environment.name", "prod"), str("host.name", "host-1"), num("process.pid", 4711),
				str("telemetry.sdk.language", "go"), str("team", "shop"), num("shard", 3),
			}},
			SchemaUrl: "https://opentelemetry.io/schemas/1.40.0",
			ScopeSpans: []*tracepb.ScopeSpans{{
				Scope: &commonpb.InstrumentationScope{Name: "lib", Version: "0.1", Attributes: []*commonpb.KeyValue{str("scope.key", "v")}},
				Spans: spans, SchemaUrl: "https://opentelemetry.io/schemas/1.41.0",
			}},
		},
		{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{nobodys}}}},
	}}
}

func attr(key string, value *commonpb.AnyValue) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: value}
}

func str(key, value string) *commonpb.KeyValue {
	return attr(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}})
}

func num(key string, value int64) *commonpb.KeyValue {
	return attr(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: value}})
}

func dbl(key string, value float64) *commonpb.KeyValue {
	return attr(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: value}})
}

func list(key string, texts ...string) *commonpb.KeyValue {
	values := &commonpb.ArrayValue{}
	for _, text := range texts {
		values.Values = append(values.Values, str("", text).GetValue())
	}
	return attr(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: values}})
}

func ints(key string, ns ...int64) *commonpb.KeyValue {
	values := &commonpb.ArrayValue{}
	for _, n := range ns {
		values.Values = append(values.Values, num("", n).GetValue())
	}
	return attr(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: values}})
}
