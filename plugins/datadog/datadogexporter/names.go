package datadogexporter

import (
	"strings"

	"github.com/DataDog/datadog-agent/pkg/trace/traceutil/normalize"
	"go.opentelemetry.io/otel/trace"
)

// Attribute keys that the rules below ask for; of several names of one thing
// the first that is set counts.
var (
	keysHTTPMethod     = []string{"http.request.method", "http.method"}
	keysDBSystem       = []string{"db.system", "db.system.name"}
	keysDBStatement    = []string{"db.statement", "db.query.text"}
	keysMessagingOp    = []string{"messaging.operation", "messaging.operation.name"}
	keysMessagingDest  = []string{"messaging.destination", "messaging.destination.name"}
	keysRPCSystem      = []string{"rpc.system", "rpc.system.name"}
	keysDeploymentEnv  = []string{"deployment.environment.name", "deployment.environment"}
	keysHTTPStatusCode = []string{"http.status_code", "http.response.status_code"}
	keysGRPCStatusCode = []string{"rpc.grpc.status_code", "grpc.code", "rpc.grpc.status.code", "grpc.status.code"}
)

// operationName is the span's name in Datadog, by which spans of one kind are
// counted together: the agent's own rules for OTLP, in their order.
func operationName(a attributes, kind trace.SpanKind) string {
	normal := func(keys ...string) string { return normalize.NormalizeTagValue(a.text(keys...)) }
	client, server := kind == trace.SpanKindClient, kind == trace.SpanKindServer
	if name := normal("operation.name"); name != "" {
		return name
	}
	if a.text(keysHTTPMethod...) != "" && (client || server) {
		return "http." + kind.String() + ".request"
	}
	if db := normal(keysDBSystem...); db != "" && client {
		return db + ".query"
	}
	if system, op := normal("messaging.system"), normal(keysMessagingOp...); system != "" && op != "" && kind > trace.SpanKindInternal {
		return system + "." + op
	}
	if rpc := normal(keysRPCSystem...); rpc != "" && (client || server) {
		return rpcName(rpc, normal("rpc.service"), kind)
	}
	if provider, name := normal("faas.invoked_provider"), normal("faas.invoked_name"); provider != "" && name != "" && client {
		return provider + "." + name + ".invoke"
	}
	if trigger := normal("faas.trigger"); trigger != "" && server {
		return trigger + ".invoke"
	}
	if normal("graphql.operation.type") != "" {
		return "graphql.server.request"
	}
	if client || server {
		return strings.TrimPrefix(normal("network.protocol.name")+"."+kind.String()+".request", ".")
	}
	return kindName(kind)
}

func rpcName(system, service string, kind trace.SpanKind) string {
	if system == "aws-api" && kind == trace.SpanKindClient {
		if service == "" {
			service = "client"
		}
		return "aws." + service + ".request"
	}
	return system + "." + kind.String() + ".request"
}

// kindName is the operation's name where a span has nothing but its kind, one
// that is unspecified counting as internal.
func kindName(kind trace.SpanKind) string {
	switch kind {
	case trace.SpanKindProducer:
		return "Producer"
	case trace.SpanKindConsumer:
		return "Consumer"
	default:
		return "Internal"
	}
}

// maxResource is the agent's: more is cut there.
const maxResource = 5000

// resourceName is what the operation was done to: a route, a query, a topic.
func resourceName(a attributes, kind trace.SpanKind, name string) string {
	resource := chooseResource(a, kind, name)
	return resource[:min(len(resource), maxResource)]
}

func chooseResource(a attributes, kind trace.SpanKind, name string) string {
	if resource := a.text("resource.name"); resource != "" {
		return resource
	}
	if method := a.text(keysHTTPMethod...); method != "" {
		if method == "_OTHER" {
			method = "HTTP"
		}
		if kind != trace.SpanKindServer {
			return method
		}
		return joined(method, a.text("http.route"))
	}
	if op := a.text(keysMessagingOp...); op != "" {
		return joined(op, a.text(keysMessagingDest...))
	}
	if method := a.text("rpc.method"); method != "" {
		return joined(method, a.text("rpc.service"))
	}
	if graphql := a.text("graphql.operation.type"); graphql != "" {
		return joined(graphql, a.text("graphql.operation.name"))
	}
	if statement := a.text(keysDBStatement...); statement != "" && a.text(keysDBSystem...) != "" {
		return statement // which the agent obfuscates
	}
	return name
}

func joined(first, second string) string { return strings.TrimSuffix(first+" "+second, " ") }

// spanType says what sort of work a span is; Datadog draws and obfuscates by it.
func spanType(a attributes, kind trace.SpanKind) string {
	if t := a.text("span.type"); t != "" {
		return t
	}
	switch kind {
	case trace.SpanKindServer:
		return "web"
	case trace.SpanKindClient:
		db := normalize.NormalizeTagValue(a.text(keysDBSystem...))
		if db == "" {
			return "http"
		}
		return databaseType(db)
	default:
		return "custom"
	}
}

// databaseType sorts databases. Those that have a type of their own are called
// by it.
func databaseType(system string) string {
	switch system {
	case "redis", "memcached", "mongodb", "cassandra", "elasticsearch", "opensearch":
		return system
	}
	if sqlSystems[system] {
		return "sql"
	}
	return "db"
}

// sqlSystems are OpenTelemetry's names of databases that speak SQL, as the
// agent knows them.
var sqlSystems = func() map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(`other_sql mssql mysql oracle db2 postgresql redshift cloudscape hsqldb maxdb ingres
		firstsql edb cache firebird derby informix mariadb sqlite sybase teradata vertica h2 coldfusion cockroachdb progress
		hanadb adabas filemaker instantdb interbase netezza pervasive pointbase clickhouse`) {
		set[name] = true
	}
	return set
}()

// renamed are OpenTelemetry's keys for HTTP that Datadog has other names for.
var renamed = map[string]string{
	"client.address":               "http.client_ip",
	"http.response.body.size":      "http.response.content_length",
	"http.response.status_code":    "http.status_code",
	"http.request.body.size":       "http.request.content_length",
	"http.request.header.referrer": "http.referrer",
	"http.request.method":          "http.method",
	"network.protocol.version":     "http.version",
	"server.address":               "http.server_name",
	"url.full":                     "http.url",
	"user_agent.original":          "http.useragent",
}

// tagKey is the tag that an attribute becomes; empty for those that have a
// field of their own in Datadog.
func tagKey(key string) string {
	switch key {
	case "service.name", "operation.name", "resource.name", "span.type", "analytics.event":
		return ""
	}
	if name, ok := renamed[key]; ok {
		return name
	}
	if header, ok := strings.CutPrefix(key, "http.request.header."); ok {
		return "http.request.headers." + header
	}
	if isControl(key) {
		return "otel.attribute." + key
	}
	return key
}

// isControl tells which tags mean something to dd-trace-go, or to the agent when
// a tracer sends them: that a trace is dropped, say, or that a span has failed.
// Attributes are data, and whoever writes one is not asked whether the trace is
// kept. Those that the agent itself takes from OTLP are none of them.
func isControl(key string) bool {
	switch key {
	case "error", "error.no_stack_trace", "span.name",
		"_sampling_priority_v1", "_sampling_priority_v1shim", "_sampling_priority_rate_v1", "_top_level":
		return true
	case "_dd.measured", "_dd.hostname":
		return false
	}
	return strings.HasPrefix(key, "_dd.")
}
