package datadogexporter

import (
	"cmp"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// described is a span as Datadog has it, but for ids and times, which are as
// they are.
type described struct {
	name, service, resource, typ string
	failed                       bool
	tags                         tags
	links                        []tracer.SpanLink
}

// mapper describes the spans of a batch: the table of docs/datadog.md, which is
// that of the agent's own path for OTLP with what that leaves out.
type mapper struct {
	unified unified
	// events: as in encoding.
	events    bool
	resources map[pluginsdk.Resource]*resource
}

func newMapper(u unified) *mapper {
	return &mapper{unified: u, resources: map[pluginsdk.Resource]*resource{}}
}

// maker is what the agent takes from one span for all of a payload.
type maker struct{ env, version, host, language string }

// resource is what all spans of one resource have in common.
type resource struct {
	attributes map[string]attribute.Value
	by         maker
	// texts are its attributes as tags.
	texts []tag
}

func (m *mapper) resource(of pluginsdk.Resource) *resource {
	if known, ok := m.resources[of]; ok {
		return known
	}
	r := &resource{attributes: map[string]attribute.Value{}}
	for kv := range of.Attributes() {
		r.attributes[string(kv.Key)] = kv.Value
		if name := tagKey(string(kv.Key)); name != "" {
			r.texts = append(r.texts, tag{name, asText(kv.Value)})
		}
	}
	a := attributes{resource: r.attributes}
	r.by = maker{
		env:     cmp.Or(a.text(keysDeploymentEnv...), m.unified.env),
		version: cmp.Or(a.text("service.version"), m.unified.version),
		host:    m.hostname(a), language: a.text("telemetry.sdk.language"),
	}
	m.resources[of] = r
	return r
}

// describe gives a span's fields and tags. What is set first stays: the fields
// that Datadog reads, then the span's own attributes, then those of the
// resource, then what the operator says for all.
func (m *mapper) describe(s pluginsdk.Span) described {
	from := m.resource(s.Resource())
	a := attributes{map[string]attribute.Value{}, from.attributes}
	for kv := range s.Attributes() {
		a.span[string(kv.Key)] = kv.Value
	}
	d := described{
		name:     operationName(a, s.Kind()),
		service:  m.service(a),
		resource: resourceName(a, s.Kind(), s.Name()),
		typ:      spanType(a, s.Kind()),
		tags:     newTags(len(a.span) + len(from.texts) + 16),
		links:    links(s),
	}
	fields(d.tags, s, a)
	for kv := range s.Attributes() {
		key := string(kv.Key)
		if from, old := renamedFrom[key]; old {
			if _, both := a.span[from]; both {
				continue // the new name of the same thing says it
			}
		}
		d.tags.add(key, a.span[key])
	}
	d.failed = failure(d.tags, s)
	notes(d.tags, s)
	m.identity(d.tags, a, d.service)
	for _, t := range from.texts {
		if !d.tags.has(t.key) {
			d.tags.meta[t.key] = t.value
		}
	}
	for kv := range s.Scope().Attributes() {
		if name := tagKey(string(kv.Key)); name != "" {
			d.tags.setText(name, asText(kv.Value))
		}
	}
	d.tags.defaultText("db.name", a.text("db.namespace"))
	for _, t := range m.unified.tags {
		if t.key != "service" && !d.tags.has(t.key) {
			d.tags.meta[t.key] = t.value
		}
	}
	return d
}

// renamedFrom are the new keys by the old ones that they are renamed to: where a
// span has both, the new one counts.
var renamedFrom = func() map[string]string {
	inverse := map[string]string{}
	for from, to := range renamed {
		inverse[to] = from
	}
	return inverse
}()

// noService is what the agent calls the service of spans that have none.
const noService = "otlpresourcenoservicename"

// service is the span's, its resource's, or the operator's. OpenTelemetry's
// SDKs say "unknown_service:PROGRAM" where nobody has said anything.
func (m *mapper) service(a attributes) string {
	name := a.text("service.name")
	if m.unified.service != "" && (name == "" || strings.HasPrefix(name, "unknown_service")) {
		return m.unified.service
	}
	if name == "" {
		return noService
	}
	return name
}

// fields are the tags that Datadog itself reads.
func fields(t tags, s pluginsdk.Span, a attributes) {
	kind := s.Kind()
	t.setText("span.kind", kindText(kind))
	if code, ok := a.number(keysHTTPStatusCode...); ok && code >= 0 {
		t.setNumber("http.status_code", float64(code))
	}
	if code, ok := grpcCode(a); ok {
		t.setText("rpc.grpc.status_code", code)
	}
	// The agent's own rule for OTLP: where work enters a service. The tracer's
	// would count each span whose parent came in another batch.
	topLevel := !s.ParentID().IsValid() || kind == trace.SpanKindServer || kind == trace.SpanKindConsumer
	t.setNumber("_dd.top_level", 0)
	if topLevel {
		t.setNumber("_dd.top_level", 1)
	}
	if kind == trace.SpanKindClient || kind == trace.SpanKindProducer {
		t.setNumber("_dd.measured", 1)
	}
	if event, ok := a.span["analytics.event"]; ok {
		if on, err := strconv.ParseBool(asText(event)); err == nil {
			t.setNumber("_dd1.sr.eausr", map[bool]float64{true: 1}[on])
		}
	}
	if state := s.TraceState().String(); state != "" {
		t.setText("w3c.tracestate", state)
		if _, own := a.span[sampleRate]; !own {
			if rate, ok := sampledAt(s.TraceState().Get("ot")); ok {
				t.setNumber(sampleRate, rate)
			}
		}
	}
	id := s.TraceID()
	t.setText("otel.trace_id", id.String())
}

// sampleRate is the tag by which Datadog weighs a span in its statistics.
const sampleRate = "_sample_rate"

// sampledAt reads the probability that OpenTelemetry's samplers write into
// tracestate: "th" is the threshold, its hexadecimal digits those after the
// point; "p" a power of two.
func sampledAt(member string) (float64, bool) {
	for field := range strings.SplitSeq(member, ";") {
		key, value, _ := strings.Cut(field, ":")
		switch key {
		case "th":
			n, err := strconv.ParseUint((value + "00000000000000")[:max(14, len(value))], 16, 64)
			if err == nil && len(value) > 0 && len(value) <= 14 {
				return 1 - float64(n)/(1<<56), true
			}
		case "p":
			if n, err := strconv.ParseUint(value, 10, 8); err == nil && n < 63 {
				return 1 / float64(uint64(1)<<n), true
			}
		}
	}
	return 0, false
}

// grpcCode is the status of a gRPC call, under any of its names.
func grpcCode(a attributes) (string, bool) {
	keys := keysGRPCStatusCode
	if a.text("rpc.system.name", "rpc.system") == "grpc" {
		keys = append(keys[:len(keys):len(keys)], "rpc.response.status_code")
	}
	for _, key := range keys {
		for _, from := range []map[string]attribute.Value{a.span, a.resource} {
			if value, ok := from[key]; ok && (value.Type() == attribute.INT64 || asText(value) != "") {
				return asText(value), true
			}
		}
	}
	return "", false
}

func kindText(kind trace.SpanKind) string {
	if kind <= trace.SpanKindUnspecified || kind > trace.SpanKindConsumer {
		return "unspecified"
	}
	return kind.String()
}

// failure sets the tags that Datadog shows an error by, and tells whether the
// span has failed: only the status says so, an exception may have been handled.
func failure(t tags, s pluginsdk.Span) bool {
	code, description := s.Status()
	text := map[codes.Code]string{codes.Unset: "Unset", codes.Error: "Error", codes.Ok: "Ok"}[code]
	t.setText("otel.status_code", text)
	if description != "" {
		t.setText("otel.status_description", description)
	}
	var last pluginsdk.Event
	thrown := false
	for event := range s.Events() {
		if event.Name() == "exception" {
			last, thrown = event, true
		}
	}
	if thrown {
		t.setText("_dd.span_events.has_exception", "true")
	}
	if code != codes.Error {
		return false
	}
	t.defaultText("error.message", description)
	if thrown {
		said := func(key attribute.Key) string {
			value, _ := last.Attribute(key)
			return asText(value)
		}
		t.defaultText("error.message", said("exception.message"))
		t.defaultText("error.type", said("exception.type"))
		t.defaultText("error.stack", said("exception.stacktrace"))
	}
	if status, ok := t.metrics["http.status_code"]; ok {
		t.defaultText("error.message", strings.TrimSpace(strconv.Itoa(int(status))+" "+http.StatusText(int(status))))
	}
	return true
}

// notes are what OpenTelemetry says of a span that Datadog has no field for.
func notes(t tags, s pluginsdk.Span) {
	scope := s.Scope()
	for key, value := range map[string]string{
		"otel.scope.name": scope.Name(), "otel.library.name": scope.Name(),
		"otel.scope.version": scope.Version(), "otel.library.version": scope.Version(),
		"otel.scope.schema_url": scope.SchemaURL(), "otel.resource.schema_url": s.Resource().SchemaURL(),
	} {
		if value != "" {
			t.setText(key, value)
		}
	}
	for key, n := range map[string]int{
		"otel.dropped_attributes_count": s.DroppedAttributes(),
		"otel.dropped_events_count":     s.DroppedEvents(),
		"otel.dropped_links_count":      s.DroppedLinks(),
	} {
		if n > 0 {
			t.setNumber(key, float64(n))
		}
	}
}

// identity says who made the span. dd-trace-go has written the plugin's own
// process in the same places; where the resource does not say, they are empty.
func (m *mapper) identity(t tags, a attributes, service string) {
	t.defaultText("env", a.text(keysDeploymentEnv...))
	t.defaultText("env", m.unified.env)
	t.defaultText("version", a.text("service.version"))
	if m.unified.service == "" || service == m.unified.service {
		t.defaultText("version", m.unified.version)
	}
	if host := m.hostname(a); host != "" {
		t.setText("_dd.hostname", host)
	}
	if pid, ok := a.number("process.pid"); ok {
		t.setNumber("process_id", float64(pid))
	} else {
		t.setText("process_id", "")
	}
	t.setText("runtime-id", a.text("service.instance.id"))
	t.setText("language", a.text("telemetry.sdk.language"))
}

// hostname is the host that the resource is on, by the agent's rules.
func (m *mapper) hostname(a attributes) string {
	if m.unified.hostname != "" || m.unified.noHostname {
		return m.unified.hostname
	}
	own := attributes{resource: a.resource}
	host := own.text("host", "datadog.host.name", "k8s.node.name", "host.id", "host.name")
	if host == own.text("k8s.node.name") {
		if cluster := own.text("k8s.cluster.name"); host != "" && cluster != "" {
			host += "-" + cluster
		}
	}
	switch host {
	case "":
		return a.text("_dd.hostname")
	case "0.0.0.0", "127.0.0.1", "localhost", "localhost.localdomain", "localhost6.localdomain6", "ip6-localhost":
		return ""
	}
	return host
}

// flagsKnown marks a link's flags as set, in Datadog's form.
const flagsKnown = 1 << 31

func links(s pluginsdk.Span) []tracer.SpanLink {
	var all []tracer.SpanLink
	for link := range s.Links() {
		traceID, spanID := link.TraceID(), link.SpanID()
		said := map[string]string{}
		for kv := range link.Attributes() {
			said[string(kv.Key)] = asText(kv.Value)
		}
		all = append(all, tracer.SpanLink{
			TraceIDHigh: binary.BigEndian.Uint64(traceID[:8]), TraceID: binary.BigEndian.Uint64(traceID[8:]),
			SpanID: binary.BigEndian.Uint64(spanID[:]), Attributes: said,
			Tracestate: link.TraceState().String(), Flags: uint32(link.TraceFlags()) | flagsKnown,
		})
	}
	return all
}

// addEvents hands the events to the tracer. In JSON there is no form for a float
// that is no number, and dd-trace-go would leave all events out.
func (m *mapper) addEvents(d *tracer.Span, s pluginsdk.Span) {
	for event := range s.Events() {
		said := map[string]any{}
		for kv := range event.Attributes() {
			if m.events {
				said[string(kv.Key)] = typed(kv.Value)
			} else {
				said[string(kv.Key)] = plain(kv.Value)
			}
		}
		if n := event.DroppedAttributes(); n > 0 {
			said["otel.dropped_attributes_count"] = n
		}
		d.AddEvent(event.Name(), tracer.WithSpanEventTimestamp(event.Time()), tracer.WithSpanEventAttributes(said))
	}
}
