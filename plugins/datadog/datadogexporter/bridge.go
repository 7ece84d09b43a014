package datadogexporter

import (
	"cmp"
	"context"
	"encoding/binary"
	"iter"
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

// bridge starts and ends the spans of a batch again in dd-trace-go's OpenTelemetry
// tracer, which converts them to Datadog's spans. It is not safe for concurrent use.
type bridge struct {
	otel         trace.Tracer
	serviceNames serviceNames
	priorities   *priorities
	// shared caches the tags that all spans with the same resource and scope have.
	shared map[origin]shared
	// scratch is a buffer for the attributes of a span. It is reused for the next span,
	// because the tracer copies them.
	scratch []attribute.KeyValue
}

type origin struct {
	resource pluginsdk.Resource
	scope    pluginsdk.Scope
}

// shared holds the data that all spans with the same resource and scope have.
type shared struct {
	service, env, version string
	attributes            []attribute.KeyValue
}

// serviceNames has the service name for spans without one, and new names for services.
type serviceNames struct {
	service string
	renamed map[string]string // new names by old names, from DD_SERVICE_MAPPING
}

// openSpan is a span that was started in the tracer and must still be ended there.
type openSpan struct {
	span trace.Span
	end  time.Time
}

// replay starts and ends the spans of a unit in the tracer. It returns the sampling
// priority that the tracer has chosen for them. The tracer sends spans in one chunk when
// all started spans of a trace have ended. So replay first starts all spans, each parent
// before its children, and then ends them.
func (b *bridge) replay(u unit) (priority int) {
	outer := b.priorities.context(u)
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
			options = append(options, tracer.ChildOf(outer)) //nolint:staticcheck // the parent is a span of another process or batch
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
	b.priorities.remember(u.outer.trace, priority)
	return priority
}

// describe sets the attributes, the status and the events of a span that was started in
// the tracer.
func (b *bridge) describe(to trace.Span, one unitSpan, of shared) {
	s := one.span
	list := append(b.scratch[:0], of.attributes...)
	list = appendText(list, ext.SpanType, spanType(s))
	list = appendText(list, tracestateTag, s.TraceState().String())
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
		// Without this, the tracer would mark the span as the first span of its service,
		// because its parent is in another batch.
		list = append(list, attribute.Int(topLevel, 0))
	}
	to.SetAttributes(list...)
	b.scratch = list
	to.SetStatus(code, description)
	for e := range s.Events() {
		to.AddEvent(e.Name(), trace.WithTimestamp(e.Time()), trace.WithAttributes(appendPlain(nil, e.Attributes())...))
	}
}

// Names of Datadog's tags that package ext of dd-trace-go does not declare.
const (
	sampleRate = "_sample_rate"
	topLevel   = "_dd.top_level"
	runtimeID  = "runtime-id"
	language   = "language"

	tracestateTag = "w3c.tracestate" // the agent uses the same name when it converts OTLP
)

// noService is the service name of spans without a service. The agent uses the same name
// when it converts OTLP.
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
	r.attributes = appendText(r.attributes, ext.Environment, r.env)
	r.attributes = appendText(r.attributes, ext.Version, r.version)
	r.attributes = appendText(r.attributes, "otel.scope.name", from.scope.Name())
	r.attributes = appendText(r.attributes, "otel.scope.version", from.scope.Version())
	r.attributes = appendPlain(r.attributes, from.scope.Attributes())
	// DD_SERVICE_MAPPING is applied here, because dd-trace-go does not apply it to spans of
	// its OpenTelemetry tracer.
	r.service = cmp.Or(b.serviceNames.renamed[r.service], r.service)
	b.shared[from] = r
	return r
}

// appendText appends an attribute with a text as its value, unless the text is empty.
func appendText(list []attribute.KeyValue, key attribute.Key, text string) []attribute.KeyValue {
	if text == "" {
		return list
	}
	return append(list, key.String(text))
}

// appendPlain appends all attributes of seq, converted by plain.
func appendPlain(list []attribute.KeyValue, seq iter.Seq[attribute.KeyValue]) []attribute.KeyValue {
	for kv := range seq {
		list = append(list, plain(kv))
	}
	return list
}

func entersService(s pluginsdk.Span) bool {
	remote, _ := s.ParentIsRemote()
	return remote || s.Kind() == trace.SpanKindServer || s.Kind() == trace.SpanKindConsumer
}

// spanType returns Datadog's type of a span, derived from its kind. It is needed because
// dd-trace-go's OpenTelemetry tracer sets no type. An attribute "span.type" of the span
// overrides it.
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

// failure returns Datadog's tags about the error of a span with status error. They come
// from the span's last event "exception". If the status has a description, that is the
// message. Without these tags, dd-trace-go would add the stack of this goroutine.
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
	list = appendText(list, ext.ErrorType, kind)
	return appendText(list, ext.ErrorStack, stack)
}

func links(s pluginsdk.Span) []trace.Link {
	var list []trace.Link
	for l := range s.Links() {
		list = append(list, trace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: l.TraceID(), SpanID: l.SpanID(), TraceFlags: l.TraceFlags(), TraceState: l.TraceState(),
			}),
			Attributes: appendPlain(nil, l.Attributes()),
		})
	}
	return list
}

// textAttributes lists attributes that must be texts. dd-trace-go v2.12 reads them for
// the name of the operation, and panics if they have another type.
var textAttributes = map[attribute.Key]bool{
	"db.system": true, "messaging.system": true, "messaging.operation": true, "rpc.system": true,
	"rpc.service": true, "faas.invoked_provider": true, "faas.invoked_name": true, "faas.trigger": true,
	"graphql.operation.type": true, "network.protocol.name": true,
}

// isControl reports whether an attribute with this key would change the id or the
// sampling of a span in Datadog. Such a key must not come from a service.
func isControl(key string) bool {
	return strings.HasPrefix(key, "_dd.") || key == metricPriority || key == sampleRate || key == "_top_level"
}

// plain converts an attribute to a form that dd-trace-go accepts. Values of types that it
// does not know become texts.
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
