package datadogexporter

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// described is a span as Datadog has it.
type described struct {
	*spanData
	// name is the operation's, in place of the span's.
	name, service, resource, typ string
	duration                     int64
	failed                       bool
	tags                         *tags
}

// mapper reads a batch and describes its spans: the table of docs/datadog.md,
// which is that of the agent's own path for OTLP with what that leaves out. It
// is for one call at a time, and keeps its memory from one to the next.
type mapper struct {
	*mapping
	form form

	known dictionary
	// general are the operator's tags for all spans.
	general []textTag
	batch   sorted

	// Of the span that is being read.
	span                    spanData
	attributes              list
	members                 list // of a scope
	loose                   []entry
	eventBodies, linkBodies [][]byte
	events                  []event
	links                   []link
	serial                  uint64
	tags                    tags
	// texts has what was made for the payload, and is in no batch.
	texts []byte
}

// form is what the bytes look like.
type form struct {
	// v1 is protocol 1.0.
	v1 bool
	// events: the agent takes a span's events as such; else they are a tag of JSON.
	events bool
}

func newMapper(rules *mapping) *mapper {
	return &mapper{
		mapping: rules, known: newDictionary(), batch: sorted{of: map[uint64]int32{}},
		attributes: newList(), members: newList(),
	}
}

// Names of the tags that the rules set.
var (
	tagKind           = name("span.kind")
	tagHTTPStatus     = name("http.status_code")
	tagGRPCStatus     = name("rpc.grpc.status_code")
	tagTopLevel       = name("_dd.top_level")
	tagMeasured       = name("_dd.measured")
	tagEventRate      = name("_dd1.sr.eausr")
	tagTraceState     = name("w3c.tracestate")
	tagSampleRate     = name("_sample_rate") // by which Datadog weighs a span in its statistics
	tagTraceID        = name("otel.trace_id")
	tagTraceHigh      = name("_dd.p.tid")
	tagPriority       = name("_sampling_priority_v1")
	tagStatus         = name("otel.status_code")
	tagDescription    = name("otel.status_description")
	tagHasException   = name("_dd.span_events.has_exception")
	tagErrorMessage   = name("error.message")
	tagErrorType      = name("error.type")
	tagErrorStack     = name("error.stack")
	tagScopeName      = name("otel.scope.name")
	tagLibraryName    = name("otel.library.name")
	tagScopeVersion   = name("otel.scope.version")
	tagLibraryVersion = name("otel.library.version")
	tagScopeSchema    = name("otel.scope.schema_url")
	tagResourceSchema = name("otel.resource.schema_url")
	tagDroppedKeys    = name(droppedAttributes)
	tagDroppedEvents  = name("otel.dropped_events_count")
	tagDroppedLinks   = name("otel.dropped_links_count")
	tagEnv            = name("env")
	tagVersion        = name("version")
	tagHostname       = name("_dd.hostname")
	tagProcessID      = name("process_id")
	tagRuntimeID      = name("runtime-id")
	tagLanguage       = name("language")
	tagDBName         = name("db.name")
	tagLinks          = name("_dd.span_links")
	tagEvents         = name("events")
	tagComponent      = name("component")
)

// droppedAttributes is also the attribute of an event or link that says so.
const droppedAttributes = "otel.dropped_attributes_count"

// describe gives a span's fields and tags. What is set first stays: what is no
// attribute and has a tag of its own, then the fields that Datadog reads, the
// span's attributes, those of the resource, and what the operator says for all.
// The result holds until the next call.
func (m *mapper) describe(s *spanData, at *located, head bool) described {
	of, by := &m.batch.resources[at.resource], &m.batch.scopes[at.scope]
	a := attributes{&m.attributes, &of.attributes}
	t := &m.tags
	t.reset()
	d := described{
		spanData: s, tags: t, duration: max(0, s.end-s.start), failed: s.code == statusError,
		name: operationName(a, s.kind), service: m.service(a),
		resource: m.resourceName(a, s.kind, s.name), typ: spanType(a, s.kind),
	}
	if head {
		m.chunkTags(s)
	}
	m.childTags(s)
	for _, text := range by.texts {
		t.text(text.name, text.value)
	}
	m.maker(a, of)
	notes(t, s, of, by)
	statusTags(t, s)
	m.fields(s, a)
	m.own(a)
	failure(t, s)
	m.defaults(a, d.service)
	for _, text := range of.texts {
		t.text(text.name, text.value)
	}
	t.optional(tagDBName, a.text(askDBNamespace))
	for _, text := range m.general {
		t.text(text.name, text.value)
	}
	m.peerService(t, s.kind)
	if to, mapped := m.services[d.service]; mapped {
		d.service = to
	}
	return d
}

// chunkTags are those that stand for a whole chunk, on its first span: that the
// trace is kept, as the host decided, and the high half of its id.
func (m *mapper) chunkTags(s *spanData) {
	m.tags.number(tagPriority, 1)
	if s.trace.high != 0 {
		m.tags.text(tagTraceHigh, m.hex(s.trace.high))
	}
}

// hex is eight bytes in sixteen digits.
func (m *mapper) hex(halves ...uint64) string {
	from := len(m.texts)
	for _, half := range halves {
		var b [8]byte
		for i := range b {
			b[i] = byte(half >> (56 - 8*i))
		}
		m.texts = hex.AppendEncode(m.texts, b[:])
	}
	return view(m.texts[from:])
}

// childTags are events and links as tags: links always, for Datadog shows these;
// events for agents that do not take them as such. JSON has no form for a float
// that is no number, which is text there.
func (m *mapper) childTags(s *spanData) {
	if len(s.links) > 0 && !m.form.v1 {
		m.tags.text(tagLinks, jsonOf(linksAsJSON(s.links)))
	}
	if len(s.events) > 0 && !m.form.events {
		m.tags.text(tagEvents, jsonOf(eventsAsJSON(s.events)))
	}
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "[]" // it has nothing in it that JSON has no form for
	}
	return string(text)
}

type jsonLink struct {
	TraceID     uint64            `json:"trace_id"`
	TraceIDHigh uint64            `json:"trace_id_high"`
	SpanID      uint64            `json:"span_id"`
	Attributes  map[string]string `json:"attributes"`
	Tracestate  string            `json:"tracestate"`
	Flags       uint32            `json:"flags"`
}

func linksAsJSON(links []link) []jsonLink {
	all := make([]jsonLink, 0, len(links))
	for i := range links {
		l := &links[i]
		said := map[string]string{}
		l.each(func(key, text string) { said[key] = text })
		all = append(all, jsonLink{l.trace.low, l.trace.high, l.span, said, l.shownState(), l.shownFlags()})
	}
	return all
}

type jsonEvent struct {
	Name       string         `json:"name"`
	Time       uint64         `json:"time_unix_nano"`
	Attributes map[string]any `json:"attributes,omitempty"`
}

func eventsAsJSON(events []event) []jsonEvent {
	all := make([]jsonEvent, 0, len(events))
	for i := range events {
		e := &events[i]
		said := map[string]any{}
		for j := range e.attributes {
			said[e.attributes[j].key.text] = e.attributes[j].plain(maxDepth)
		}
		if e.dropped > 0 {
			said[droppedAttributes] = e.dropped
		}
		all = append(all, jsonEvent{e.name, e.time, said})
	}
	return all
}

// flagsKnown marks a link's flags as set, in Datadog's form.
const flagsKnown = 1 << 31

func (l *link) shownFlags() uint32 { return l.flags&0xff | flagsKnown }

func (l *link) shownState() string { return validState(l.state).String() }

// each goes through what a link says, as texts.
func (l *link) each(f func(key, text string)) {
	said := false
	for i := range l.attributes {
		said = said || l.attributes[i].key.text == droppedAttributes
		f(l.attributes[i].key.text, l.attributes[i].text())
	}
	if l.dropped > 0 && !said {
		f(droppedAttributes, strconv.FormatUint(uint64(l.dropped), 10))
	}
}

// validState is a tracestate, empty if it is malformed.
func validState(header string) trace.TraceState {
	if header == "" {
		return trace.TraceState{}
	}
	state, err := trace.ParseTraceState(header)
	if err != nil {
		return trace.TraceState{}
	}
	return state
}

// renamedFrom are the new keys by the old ones that they are renamed to: where a
// span has both, the new one counts.
var renamedFrom = func() map[string]string {
	inverse := map[string]string{}
	for from, to := range renamed {
		inverse[to] = from
		ask(from)
	}
	return inverse
}()

// noService is what the agent calls the service of spans that have none.
const noService = "otlpresourcenoservicename"

// service is the span's, its resource's, or the operator's. OpenTelemetry's
// SDKs say "unknown_service:PROGRAM" where nobody has said anything.
func (m *mapper) service(a attributes) string {
	name := a.text(askService)
	if m.unified.service != "" && (name == "" || strings.HasPrefix(name, "unknown_service")) {
		return m.unified.service
	}
	if name == "" {
		return noService
	}
	return name
}

// maker says who made the span. Where the resource does not, nobody does: an
// attribute of the span that has such a name means something else.
func (m *mapper) maker(a attributes, of *resource) {
	t := &m.tags
	host := of.host
	if !of.hostSaid {
		host = a.text(askHostname)
	}
	t.optional(tagHostname, host)
	if pid, ok := a.number(askPID); ok {
		t.number(tagProcessID, float64(pid))
	} else {
		t.keepFree(tagProcessID)
	}
	for _, said := range [...]struct {
		name  *tagName
		value string
	}{{tagRuntimeID, a.text(askInstance)}, {tagLanguage, a.text(askLanguage)}} {
		if said.value != "" {
			t.text(said.name, said.value)
		} else {
			t.keepFree(said.name)
		}
	}
}

// hostname is the host that a resource is on, by the agent's rules.
func (m *mapper) hostname(own attributes) (host string, said bool) {
	if m.unified.hostname != "" || m.unified.noHostname {
		return m.unified.hostname, true
	}
	host = own.text(askHost)
	switch host {
	case "":
		return "", false
	case "0.0.0.0", "127.0.0.1", "localhost", "localhost.localdomain", "localhost6.localdomain6", "ip6-localhost":
		return "", true
	}
	if cluster := own.text(askCluster); cluster != "" && host == own.text(askNode) {
		host += "-" + cluster
	}
	return host, true
}

// notes are what OpenTelemetry says of a span that Datadog has no field for.
func notes(t *tags, s *spanData, of *resource, by *scope) {
	t.optional(tagScopeName, by.name)
	t.optional(tagLibraryName, by.name)
	t.optional(tagScopeVersion, by.version)
	t.optional(tagLibraryVersion, by.version)
	t.optional(tagScopeSchema, by.schemaURL)
	t.optional(tagResourceSchema, of.schemaURL)
	if s.droppedAttributes > 0 {
		t.number(tagDroppedKeys, float64(s.droppedAttributes))
	}
	if s.droppedEvents > 0 {
		t.number(tagDroppedEvents, float64(s.droppedEvents))
	}
	if s.droppedLinks > 0 {
		t.number(tagDroppedLinks, float64(s.droppedLinks))
	}
}

// OTLP's codes of a status; any other is "unset".
const (
	statusOK    = 1
	statusError = 2
)

func statusTags(t *tags, s *spanData) {
	switch s.code {
	case statusOK:
		t.text(tagStatus, "Ok")
	case statusError:
		t.text(tagStatus, "Error")
	default:
		t.text(tagStatus, "Unset")
	}
	t.optional(tagDescription, s.message)
	if s.exception() != nil {
		t.text(tagHasException, "true")
	}
}

// exception is the last that an event tells of, or nil.
func (s *spanData) exception() *event {
	for i := len(s.events) - 1; i >= 0; i-- {
		if s.events[i].name == "exception" {
			return &s.events[i]
		}
	}
	return nil
}

// fields are the tags that Datadog itself reads.
func (m *mapper) fields(s *spanData, a attributes) {
	t := &m.tags
	t.text(tagKind, s.kind.String())
	if code, ok := a.number(askHTTPStatus); ok && code >= 0 {
		t.number(tagHTTPStatus, float64(code))
	}
	if code, ok := a.grpcCode(); ok {
		t.text(tagGRPCStatus, code)
	}
	// The agent's own rule for OTLP: where work enters a service. A tracer's would
	// count each span whose parent came in another batch.
	topLevel := 0.0
	if s.parent == 0 || s.kind == kindServer || s.kind == kindConsumer {
		topLevel = 1
	}
	t.number(tagTopLevel, topLevel)
	if s.kind == kindClient || s.kind == kindProducer {
		t.number(tagMeasured, 1)
	}
	if a.span.has(askAnalytics.slots[0]) {
		if on, err := strconv.ParseBool(a.span.get(askAnalytics.slots[0]).text()); err == nil {
			t.number(tagEventRate, map[bool]float64{true: 1}[on])
		}
	}
	if state := validState(s.state); state.Len() > 0 {
		t.text(tagTraceState, state.String())
		if rate, ok := sampledAt(state.Get("ot")); ok && !a.span.has(askSampleRate.slots[0]) {
			t.number(tagSampleRate, rate)
		}
	}
	t.text(tagTraceID, m.hex(s.trace.high, s.trace.low))
}

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

// own are the span's attributes as tags.
func (m *mapper) own(a attributes) {
	for i := range a.span.entries {
		e := &a.span.entries[i]
		if e.key.tag == nil || e.key.newer != 0 && a.span.has(e.key.newer) {
			continue
		}
		switch n := e.key.tag; e.kind {
		case field.AnyInt:
			m.tags.integer(n, int64(e.bits))
		case field.AnyDouble:
			m.tags.number(n, e.float())
		case field.AnyArray:
			m.listTags(n, e.value)
		default:
			m.tags.text(n, e.text())
		}
	}
}

// listTags gives each member of a list of one kind a tag of its own, KEY.0 and
// on, which Datadog shows as a list. Any other is JSON.
func (m *mapper) listTags(n *tagName, v value) {
	same := v.memberKind()
	if same == 0 {
		m.tags.text(n, v.text())
		return
	}
	if m.tags.has(n) {
		return
	}
	i := 0
	v.each(func(member value) {
		element := m.known.tag(n.text + "." + strconv.Itoa(i))
		i++
		switch same {
		case field.AnyInt:
			m.tags.integer(element, int64(member.bits))
		case field.AnyDouble:
			m.tags.number(element, member.float())
		default:
			m.tags.text(element, member.text())
		}
	})
}

// failure sets the tags that Datadog shows an error by. Only the status says
// that a span has failed: an exception may have been handled.
func failure(t *tags, s *spanData) {
	if s.code != statusError {
		return
	}
	t.optional(tagErrorMessage, s.message)
	if thrown := s.exception(); thrown != nil {
		for i := range thrown.attributes {
			switch said := &thrown.attributes[i]; said.key.text {
			case "exception.message":
				t.optional(tagErrorMessage, said.text())
			case "exception.type":
				t.optional(tagErrorType, said.text())
			case "exception.stacktrace":
				t.optional(tagErrorStack, said.text())
			}
		}
	}
	if code, ok := t.numberOf(tagHTTPStatus); ok {
		t.optional(tagErrorMessage, strings.TrimSpace(strconv.Itoa(int(code))+" "+http.StatusText(int(code))))
	}
}

// defaults are environment and version.
func (m *mapper) defaults(a attributes, service string) {
	t := &m.tags
	t.optional(tagEnv, a.text(askEnv))
	t.optional(tagEnv, m.unified.env)
	t.optional(tagVersion, a.text(askVersion))
	if m.unified.service == "" || service == m.unified.service {
		t.optional(tagVersion, m.unified.version)
	}
}
