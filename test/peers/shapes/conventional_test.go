package shapes

import (
	"strconv"

	"go.opentelemetry.io/otel/attribute"
)

// conventional returns attributes that have a meaning for a back end: old and new ones of
// the semantic conventions, and attributes with which a user overrides names of a back
// end. They come in sets. A span may have sets that do not belong together.
func (c *corpus) conventional() []attribute.KeyValue {
	kvs := c.conventions()
	if c.IntN(4) == 0 {
		kvs = append(kvs, c.conventions()...)
	}
	return kvs
}

func (c *corpus) conventions() []attribute.KeyValue {
	text, number := attribute.String, attribute.Int
	one := func(of ...string) string { return of[c.IntN(len(of))] }
	sets := [][]attribute.KeyValue{
		{text("http.request.method", one("GET", "POST", "_OTHER")), text("http.route", "/orders/{id}"),
			number("http.response.status_code", 200+100*c.IntN(4)), text("url.full", "https://shop.example/orders/7?q=1"),
			text("url.path", "/orders/7"), text("user_agent.original", "curl/8"), text("server.address", "shop.example"),
			attribute.StringSlice("http.request.header.x-id", []string{"1"})},
		{text("http.method", "GET"), number("http.status_code", 503), text("http.url", "http://shop.example/"), text("http.target", "/")},
		{text("http.method", "PUT"), text("http.route", "/items"), text("http.status_code", strconv.Itoa(400+c.IntN(2)))},
		{text("db.system.name", one("postgresql", "mysql", "redis", "mongodb", "other_sql")), text("db.query.text", "SELECT * FROM t WHERE id = 1"),
			text("db.namespace", "shop"), text("db.operation.name", "SELECT")},
		{text("db.system", one("postgresql", "memcached", "elasticsearch", "cassandra", "mssql")), text("db.statement", "SELECT 1"), text("db.name", "shop")},
		{text("messaging.system", "kafka"), text("messaging.operation.type", one("send", "process", "receive")), text("messaging.destination.name", "orders")},
		{text("messaging.system", "rabbitmq"), text("messaging.operation", "publish"), text("messaging.destination", "q")},
		{text("rpc.system", one("grpc", "aws-api", "jsonrpc")), text("rpc.service", "shop.Orders"), text("rpc.method", "Get"),
			number("rpc.grpc.status_code", 14)},
		{text("faas.invoked_provider", "aws"), text("faas.invoked_name", "resize"), text("faas.trigger", one("http", "pubsub", "timer"))},
		{text("graphql.operation.type", "query"), text("graphql.operation.name", "orders")},
		{text("network.protocol.name", one("http", "amqp")), text("network.protocol.version", "2")},
		{text("operation.name", one("my.operation", "My Operation!")), text("resource.name", one("my resource", "")), text("span.type", "worker")},
		{text("service.name", "another"), text("service.version", "9"), text("deployment.environment.name", "staging"), text("env", "dev"), text("version", "8")},
		{attribute.Bool("error", true), text("error.type", "*errors.errorString"), text("error.message", "m"), text("error.stack", "s")},
		{text("exception.type", "E"), text("exception.message", "m"), text("exception.stacktrace", "at line 1")},
		{text("span.name", "n"), text("span.kind", "client"), text("peer.service", "p"), text("component", "c"), text("language", "cobol")},
		{text("_dd.p.tid", "640cfd8d00000000"), text("_dd.origin", "lambda"), number("_sampling_priority_v1", 2), number("_dd.measured", 1), number("_top_level", 0)},
		{attribute.Bool("analytics.event", true), number("process_id", 1), text("runtime-id", "r"), text("sampling.priority", "1")},
		{text("manual.drop", one("false", "true")), attribute.Bool("manual.keep", true)},
		{text("otel.trace_id", "x"), text("otel.status_code", "x"), text("otel.scope.name", "x"), text("w3c.tracestate", "x"), text("events", "[]"), text("_dd.span_links", "[]")},
		{text("host.name", "node-2"), text("host.id", "i-1"), text("container.id", "c1"), text("k8s.pod.uid", "p1"), text("cloud.provider", "aws")},
	}
	return sets[c.IntN(len(sets))]
}
