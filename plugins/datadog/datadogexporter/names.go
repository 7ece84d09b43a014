package datadogexporter

import (
	"strconv"
	"strings"

	"github.com/DataDog/datadog-agent/pkg/trace/traceutil/normalize"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// What the rules below ask for.
var (
	askHTTPMethod      = ask("http.request.method", "http.method")
	askDBSystem        = ask("db.system", "db.system.name")
	askDBStatement     = ask("db.statement", "db.query.text")
	askDBNamespace     = ask("db.namespace")
	askMessagingSystem = ask("messaging.system")
	askMessagingOp     = ask("messaging.operation", "messaging.operation.name")
	askMessagingDest   = ask("messaging.destination", "messaging.destination.name")
	askRPCSystem       = ask("rpc.system", "rpc.system.name")
	askNewRPCSystem    = ask("rpc.system.name", "rpc.system")
	askRPCMethod       = ask("rpc.method")
	askRPCService      = ask("rpc.service")
	askFaasProvider    = ask("faas.invoked_provider")
	askFaasName        = ask("faas.invoked_name")
	askFaasTrigger     = ask("faas.trigger")
	askGraphQLType     = ask("graphql.operation.type")
	askGraphQLName     = ask("graphql.operation.name")
	askProtocol        = ask("network.protocol.name")
	askRoute           = ask("http.route")
	askService         = ask("service.name")
	askOperation       = ask("operation.name")
	askResource        = ask("resource.name")
	askType            = ask("span.type")
	askEnv             = ask("deployment.environment.name", "deployment.environment")
	askVersion         = ask("service.version")
	askInstance        = ask("service.instance.id")
	askLanguage        = ask("telemetry.sdk.language")
	askPID             = ask("process.pid")
	askHost            = ask("host", "datadog.host.name", "k8s.node.name", "host.id", "host.name")
	askNode            = ask("k8s.node.name")
	askCluster         = ask("k8s.cluster.name")
	askHostname        = ask("_dd.hostname")
	askAnalytics       = ask("analytics.event")
	askSampleRate      = ask("_sample_rate")
	askHTTPStatus      = ask("http.status_code", "http.response.status_code")
	askGRPCStatus      = ask("rpc.grpc.status_code", "grpc.code", "rpc.grpc.status.code", "grpc.status.code")
	askNewGRPCStatus   = ask("rpc.grpc.status_code", "grpc.code", "rpc.grpc.status.code", "grpc.status.code", "rpc.response.status_code")
)

// attributes are those of a span and of its resource, of which the span's win.
type attributes struct{ span, resource *list }

// each goes through the answers, in the order in which they count, until f has
// what it wants.
func (a attributes) each(q question, f func(value) (enough bool)) {
	if (a.span.mask|a.resource.mask)&q.mask == 0 {
		return
	}
	for _, s := range q.slots {
		for _, from := range [...]*list{a.span, a.resource} {
			if i := from.at[s]; i != 0 && f(from.entries[i-1].value) {
				return
			}
		}
	}
}

// text is the first answer that is a string and not empty.
func (a attributes) text(q question) (text string) {
	a.each(q, func(v value) bool {
		if v.isText() {
			text = view(v.body)
		}
		return text != ""
	})
	return text
}

// number is the first answer that is an integer, or text that is one.
func (a attributes) number(q question) (number int64, ok bool) {
	a.each(q, func(v value) bool {
		switch v.kind {
		case field.AnyInt:
			number, ok = int64(v.bits), true
		case field.AnyString:
			n, err := strconv.ParseInt(view(v.body), 10, 64)
			number, ok = n, err == nil
		}
		return ok
	})
	return number, ok
}

// grpcCode is the status of a gRPC call, under any of its names.
func (a attributes) grpcCode() (code string, ok bool) {
	q := askGRPCStatus
	if a.text(askNewRPCSystem) == "grpc" {
		q = askNewGRPCStatus
	}
	a.each(q, func(v value) bool {
		code = v.text()
		return code != ""
	})
	return code, code != ""
}

// spanKind is OTLP's number of a span's kind.
type spanKind int32

const (
	kindInternal spanKind = 1 + iota
	kindServer
	kindClient
	kindProducer
	kindConsumer
)

// String is the kind in lower case.
func (k spanKind) String() string {
	if k < kindInternal || k > kindConsumer {
		return "unspecified"
	}
	return [...]string{kindInternal: "internal", kindServer: "server", kindClient: "client", kindProducer: "producer", kindConsumer: "consumer"}[k]
}

// operationName is the span's name in Datadog, by which spans of one kind are
// counted together: the agent's own rules for OTLP, in their order.
func operationName(a attributes, kind spanKind) string {
	normal := func(q question) string { return normalize.NormalizeTagValue(a.text(q)) }
	client, server := kind == kindClient, kind == kindServer
	if name := normal(askOperation); name != "" {
		return name
	}
	if a.text(askHTTPMethod) != "" && (client || server) {
		if server {
			return "http.server.request"
		}
		return "http.client.request"
	}
	if db := normal(askDBSystem); db != "" && client {
		return db + ".query"
	}
	if system, op := normal(askMessagingSystem), normal(askMessagingOp); system != "" && op != "" && kind > kindInternal {
		return system + "." + op
	}
	if rpc := normal(askRPCSystem); rpc != "" && (client || server) {
		return rpcName(rpc, normal(askRPCService), kind)
	}
	if provider, name := normal(askFaasProvider), normal(askFaasName); provider != "" && name != "" && client {
		return provider + "." + name + ".invoke"
	}
	if trigger := normal(askFaasTrigger); trigger != "" && server {
		return trigger + ".invoke"
	}
	if normal(askGraphQLType) != "" {
		return "graphql.server.request"
	}
	if client || server {
		return strings.TrimPrefix(normal(askProtocol)+"."+kind.String()+".request", ".")
	}
	return kindName(kind)
}

func rpcName(system, service string, kind spanKind) string {
	if system == "aws-api" && kind == kindClient {
		if service == "" {
			service = "client"
		}
		return "aws." + service + ".request"
	}
	return system + "." + kind.String() + ".request"
}

// kindName is the operation's name where a span has nothing but its kind, one
// that is unspecified counting as internal.
func kindName(kind spanKind) string {
	switch kind {
	case kindProducer:
		return "Producer"
	case kindConsumer:
		return "Consumer"
	default:
		return "Internal"
	}
}

// maxResource is the agent's: more is cut there.
const maxResource = 5000

// resourceName is what the operation was done to: a route, a query, a topic.
func (m *mapper) resourceName(a attributes, kind spanKind, name string) string {
	resource := m.chooseResource(a, kind, name)
	return resource[:min(len(resource), maxResource)]
}

func (m *mapper) chooseResource(a attributes, kind spanKind, name string) string {
	if resource := a.text(askResource); resource != "" {
		return resource
	}
	if method := a.text(askHTTPMethod); method != "" {
		if method == "_OTHER" {
			method = "HTTP"
		}
		if kind != kindServer {
			return method
		}
		return m.joined(method, a.text(askRoute))
	}
	if op := a.text(askMessagingOp); op != "" {
		return m.joined(op, a.text(askMessagingDest))
	}
	if method := a.text(askRPCMethod); method != "" {
		return m.joined(method, a.text(askRPCService))
	}
	if graphql := a.text(askGraphQLType); graphql != "" {
		return m.joined(graphql, a.text(askGraphQLName))
	}
	if statement := a.text(askDBStatement); statement != "" && a.text(askDBSystem) != "" {
		return statement // which the agent obfuscates
	}
	return name
}

// joined are two words, or the first where there is no second.
func (m *mapper) joined(first, second string) string {
	if second == "" {
		return first
	}
	from := len(m.texts)
	m.texts = append(append(append(m.texts, first...), ' '), second...)
	return view(m.texts[from:])
}

// spanType says what sort of work a span is; Datadog draws and obfuscates by it.
func spanType(a attributes, kind spanKind) string {
	if t := a.text(askType); t != "" {
		return t
	}
	switch kind {
	case kindServer:
		return "web"
	case kindClient:
		db := normalize.NormalizeTagValue(a.text(askDBSystem))
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
