package datadogexporter

import (
	"cmp"
	"context"
	"encoding/binary"
	"strings"
	"time"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/ext"
	ddotel "github.com/DataDog/dd-trace-go/v2/ddtrace/opentelemetry"
	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// bridge replays ended spans through dd-trace-go's OpenTelemetry tracer, which converts
// them to Datadog's spans. It is not safe for concurrent use.
type bridge struct {
	otel         trace.Tracer
	serviceNames serviceNames
	verdicts     *verdicts
	// shared caches the data that spans of one resource and scope share.
	shared map[origin]shared
	// scratch is the buffer of describe, which can be reused because the tracer copies the
	// attributes.
	scratch []attribute.KeyValue
}

type origin struct {
	resource pluginsdk.Resource
	scope    pluginsdk.Scope
}

// shared holds the data that all spans of an origin share.
type shared struct {
	service, env, version string
	attributes            []attribute.KeyValue
}

// serviceNames are the service name for spans that have none, and the new names of
// services.
type serviceNames struct {
	service string
	renamed map[string]string // DD_SERVICE_MAPPING
}

// openSpan is a span of the tracer that must still be ended.
type openSpan struct {
	span trace.Span
	end  time.Time
}

// replay starts and ends the spans of a unit, and returns the priority that the tracer
// assigned. The tracer sends a trace in one piece when all spans that it has started have
// ended. So replay starts all spans, parents before their children, before it ends any.
func (b *bridge) replay(u unit) (priority int) {
	outer := b.verdicts.context(u)
	contexts := make([]context.Context, 0, len(u.spans))
	open := make([]openSpan, 0, len(u.spans))
	for _, one := range u.spans {
		s := one.span
		id := s.SpanID()
		from, of := context.Background(), b.sharedBy(s)
		options := []tracer.StartSpanOption{
			tracer.WithSpanID(binary.BigEndian.Uint64(id[:])), tracer.ServiceName(of.service),
		}
		if one.up >= 0 {
			from = contexts[one.up]
		} else {
			options = append(options, tracer.ChildOf(outer)) //nolint:staticcheck // the parent is not a span of this tracer
		}
		ctx, span := b.otel.Start(ddotel.ContextWithStartOptions(from, options...), s.Name(),
			trace.WithTimestamp(s.StartTime()), trace.WithSpanKind(s.Kind()), trace.WithLinks(links(s)...))
		b.describe(span, one, of)
		contexts = append(contexts, ctx)
		open = append(open, openSpan{span, s.EndTime()})
	}
	for _, o := range open {
		o.span.End(trace.WithTimestamp(o.end))
	}
	first, _ := tracer.SpanFromContext(contexts[0])
	priority, _ = first.Context().SamplingPriority()
	b.verdicts.remember(u.outer.trace, priority)
	return priority
}

// describe sets all properties of a started span, except its end.
func (b *bridge) describe(to trace.Span, one unitSpan, of shared) {
	s := one.span
	list := append(b.scratch[:0], of.attributes...)
	if kind := spanType(s); kind != "" {
		list = append(list, attribute.String(ext.SpanType, kind))
	}
	if state := s.TraceState().String(); state != "" {
		list = append(list, attribute.String(tracestateTag, state))
	}
	if rate, ok := sampledAt(s.TraceState().Get("ot")); ok {
		list = append(list, attribute.Float64(sampleRate, rate))
	}
	code, description := s.Status()
	if code == codes.Error {
		list = append(list, failure(s, description)...)
	}
	for kv := range s.Attributes() {
		if isControl(string(kv.Key)) {
			kv.Key = "otel.attribute." + kv.Key
		}
		list = append(list, plain(kv))
	}
	if one.up < 0 && s.ParentID().IsValid() && !entersService(s) {
		// The tracer would mark a span as the service's top-level span if its parent is in
		// another batch.
		list = append(list, attribute.Int(topLevel, 0))
	}
	to.SetAttributes(list...)
	b.scratch = list
	to.SetStatus(code, description)
	for e := range s.Events() {
		var attributes []attribute.KeyValue
		for kv := range e.Attributes() {
			attributes = append(attributes, plain(kv))
		}
		to.AddEvent(e.Name(), trace.WithTimestamp(e.Time()), trace.WithAttributes(attributes...))
	}
}

// Datadog's tags that are missing in package ext.
const (
	sampleRate = "_sample_rate"
	topLevel   = "_dd.top_level"
	runtimeID  = "runtime-id"
	language   = "language"

	tracestateTag = "w3c.tracestate" // the name in the agent's mapping of OTLP
)

// noService is the service name that the agent uses for spans without a service.
const noService = "otlpresourcenoservicename"

func (b *bridge) sharedBy(s pluginsdk.Span) shared {
	from := origin{s.Resource(), s.Scope()}
	if known, ok := b.shared[from]; ok {
		return known
	}
	var r shared
	r.service = cmp.Or(b.serviceNames.service, noService)
	for kv := range from.resource.Attributes() {
		text := kv.Value.String()
		switch kv.Key {
		case "service.name":
			if unknown := strings.HasPrefix(text, "unknown_service"); text != "" && (!unknown || b.serviceNames.service == "") {
				r.service = text
			}
			continue
		case "deployment.environment":
			r.env = cmp.Or(r.env, text)
		case "deployment.environment.name":
			r.env = cmp.Or(text, r.env)
		case "service.version":
			r.version = text
		case "service.instance.id":
			r.attributes = append(r.attributes, attribute.String(runtimeID, text))
		case "telemetry.sdk.language":
			r.attributes = append(r.attributes, attribute.String(language, text))
		case "process.pid":
			r.attributes = append(r.attributes, attribute.KeyValue{Key: ext.Pid, Value: kv.Value})
		}
		r.attributes = append(r.attributes, plain(kv))
	}
	for key, value := range map[string]string{ext.Environment: r.env, ext.Version: r.version} {
		if value != "" {
			r.attributes = append(r.attributes, attribute.String(key, value))
		}
	}
	// The mapping is applied here, because dd-trace-go's OpenTelemetry tracer overrides the
	// mapping of dd-trace-go.
	r.service = cmp.Or(b.serviceNames.renamed[r.service], r.service)
	r.attributes = appendScope(r.attributes, from.scope)
	b.shared[from] = r
	return r
}

func appendScope(list []attribute.KeyValue, scope pluginsdk.Scope) []attribute.KeyValue {
	if name := scope.Name(); name != "" {
		list = append(list, attribute.String("otel.scope.name", name))
	}
	if version := scope.Version(); version != "" {
		list = append(list, attribute.String("otel.scope.version", version))
	}
	for kv := range scope.Attributes() {
		list = append(list, plain(kv))
	}
	return list
}

func entersService(s pluginsdk.Span) bool {
	remote, _ := s.ParentIsRemote()
	return remote || s.Kind() == trace.SpanKindServer || s.Kind() == trace.SpanKindConsumer
}

// spanType returns Datadog's type for the span's kind. dd-trace-go's OpenTelemetry
// tracer sets none. An attribute "span.type" overrides it.
func spanType(s pluginsdk.Span) string {
	switch s.Kind() {
	case trace.SpanKindServer:
		return ext.SpanTypeWeb
	case trace.SpanKindConsumer:
		return ext.SpanTypeMessageConsumer
	case trace.SpanKindProducer:
		return ext.SpanTypeMessageProducer
	case trace.SpanKindClient:
		for _, key := range []attribute.Key{"db.system.name", "db.system"} {
			if _, ok := s.Attribute(key); ok {
				return "db"
			}
		}
		return ext.SpanTypeHTTP
	default:
		return ""
	}
}

// failure returns Datadog's tags of an error. They come from the last exception event. If
// the status has a description, it replaces the message. Without these tags, dd-trace-go
// would add the stack of this goroutine.
func failure(s pluginsdk.Span, description string) []attribute.KeyValue {
	message, kind, stack := description, "", ""
	for e := range s.Events() {
		if e.Name() != "exception" {
			continue
		}
		text := func(key attribute.Key) string {
			value, _ := e.Attribute(key)
			return value.String()
		}
		message = cmp.Or(description, text("exception.message"))
		kind, stack = text("exception.type"), text("exception.stacktrace")
	}
	list := []attribute.KeyValue{attribute.String(ext.ErrorMsg, message)}
	for key, value := range map[string]string{ext.ErrorType: kind, ext.ErrorStack: stack} {
		if value != "" {
			list = append(list, attribute.String(key, value))
		}
	}
	return list
}

func links(s pluginsdk.Span) []trace.Link {
	var list []trace.Link
	for l := range s.Links() {
		link := trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: l.TraceID(), SpanID: l.SpanID(), TraceFlags: l.TraceFlags(), TraceState: l.TraceState(),
		})}
		for kv := range l.Attributes() {
			link.Attributes = append(link.Attributes, plain(kv))
		}
		list = append(list, link)
	}
	return list
}

// textAttributes lists the attributes that dd-trace-go v2.12 reads as text for the
// operation name. Other types would make it panic.
var textAttributes = map[attribute.Key]bool{
	"db.system": true, "messaging.system": true, "messaging.operation": true, "rpc.system": true,
	"rpc.service": true, "faas.invoked_provider": true, "faas.invoked_name": true, "faas.trigger": true,
	"graphql.operation.type": true, "network.protocol.name": true,
}

// isControl reports whether the key controls the agent. A span's attribute with such a key
// would change ids or priorities.
func isControl(key string) bool {
	return strings.HasPrefix(key, "_dd.") || key == metricPriority || key == sampleRate || key == "_top_level"
}

// plain converts an attribute for dd-trace-go. Values of unknown types become text.
func plain(kv attribute.KeyValue) attribute.KeyValue {
	switch kv.Value.Type() {
	case attribute.STRING:
		return kv
	case attribute.BOOL, attribute.INT64, attribute.FLOAT64,
		attribute.BOOLSLICE, attribute.INT64SLICE, attribute.FLOAT64SLICE, attribute.STRINGSLICE:
		if !textAttributes[kv.Key] {
			return kv
		}
	}
	return attribute.KeyValue{Key: kv.Key, Value: attribute.StringValue(kv.Value.String())}
}
