package shapes

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/test/peers/peer"
)

// native says what must arrive of a span by Datadog's own protocol: what the
// agent makes of it by OTLP, but where the protocol says it otherwise, better or
// not at all. docs/datadog.md marks these with a star.
type native struct{ protocol string }

func (n native) check(s sdktrace.ReadOnlySpan, want, got peer.AgentSpan) string {
	c := &nativeCheck{span: s, want: want, got: got, attributes: map[string]attribute.Value{}, twice: map[string]bool{}}
	for _, kv := range s.Attributes() {
		key := string(kv.Key)
		if _, known := c.attributes[key]; known {
			c.twice[key] = true
		}
		c.attributes[key] = kv.Value
	}
	c.fields(n.protocol)
	c.links()
	c.events()
	c.tags()
	return strings.Join(c.faults, "\n")
}

type nativeCheck struct {
	span       sdktrace.ReadOnlySpan
	want, got  peer.AgentSpan
	attributes map[string]attribute.Value
	twice      map[string]bool
	faults     []string
}

func (c *nativeCheck) equal(what string, want, got any) {
	if !cmp.Equal(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()) {
		c.faults = append(c.faults, fmt.Sprintf("%s: want %s, got %s", what, brief(fmt.Sprintf("%#v", want)), brief(fmt.Sprintf("%#v", got))))
	}
}

// fields are those that are not tags. The service, name, resource and type of a
// call to a database are another test's: db.system.name is new to the agent.
func (c *nativeCheck) fields(protocol string) {
	s, want, got := c.span, c.want, c.got
	parent := s.Parent().SpanID()
	c.equal("trace id", s.SpanContext().TraceID().String(), got.TraceID)
	c.equal("parent id", binary.BigEndian.Uint64(parent[:]), got.ParentID)
	if s.StartTime().Year() >= 2000 {
		c.equal("start", s.StartTime().UnixNano(), got.Start)
	}
	c.equal("duration", want.Duration, got.Duration)
	c.equal("error", want.Error, got.Error)
	c.equal("service", want.Service, got.Service)
	c.equal("priority", int32(1), got.Priority)
	c.equal("protocol", protocol, got.Protocol)
	if _, db := c.attributes["db.system.name"]; !db {
		c.equal("name", want.Name, got.Name)
		c.equal("resource", want.Resource, got.Resource)
		c.equal("type", want.Type, got.Type)
	}
}

func (c *nativeCheck) links() {
	var want []peer.AgentLink
	for _, l := range c.span.Links() {
		id := l.SpanContext.SpanID()
		link := peer.AgentLink{
			TraceID: l.SpanContext.TraceID().String(), SpanID: binary.BigEndian.Uint64(id[:]), Attributes: map[string]string{},
			Tracestate: l.SpanContext.TraceState().String(), Flags: uint32(l.SpanContext.TraceFlags()) | 1<<31,
		}
		for _, kv := range l.Attributes {
			link.Attributes[string(kv.Key)] = "" // values are the unit tests'
		}
		want = append(want, link)
	}
	c.equal("links", len(want), len(c.got.Links))
	for i, link := range c.got.Links[:min(len(want), len(c.got.Links))] {
		keysOnly := map[string]string{}
		for key := range link.Attributes {
			if _, asked := want[i].Attributes[key]; asked || key != "otel.dropped_attributes_count" {
				keysOnly[key] = ""
			}
		}
		link.Attributes = keysOnly
		c.equal(fmt.Sprintf("link %d", i), want[i], link)
	}
}

func (c *nativeCheck) events() {
	c.equal("events", len(c.span.Events()), len(c.got.Events))
	for i, e := range c.got.Events[:min(len(c.span.Events()), len(c.got.Events))] {
		of := c.span.Events()[i]
		c.equal(fmt.Sprintf("name of event %d", i), of.Name, e.Name)
		c.equal(fmt.Sprintf("time of event %d", i), uint64(max(0, of.Time.UnixNano())), e.Time)
		for _, kv := range of.Attributes {
			got, there := e.Attributes[string(kv.Key)]
			switch last := lastOf(of.Attributes, kv.Key); last.Type() {
			case attribute.STRING, attribute.BOOL, attribute.INT64, attribute.FLOAT64:
				c.equal(fmt.Sprintf("attribute %q of event %d", kv.Key, i), last.AsInterface(), got)
			default:
				c.equal(fmt.Sprintf("attribute %q of event %d is there", kv.Key, i), true, there)
			}
		}
	}
}

func lastOf(kvs []attribute.KeyValue, key attribute.Key) attribute.Value {
	var last attribute.Value
	for _, kv := range kvs {
		if kv.Key == key {
			last = kv.Value
		}
	}
	return last
}

// otherwise are the tags that are not as by OTLP, with the reasons why not.
var otherwise = map[string]string{
	"_dd.p.dm": "the agent's, for OTLP alone", "_dd.p.tid": "the protocol's: trace id", "_dd.span_links": "links", "events": "events",
	"_dd.span_events.has_exception": "as by OTLP, but not in 1.0",
	"_dd.hostname":                  "by OTLP of the payload", "_dd.peer.service.source": "as dd-trace-go's",
	"_dd.top_level": "protocol", "_top_level": "the agent's", "_sampling_priority_v1": "protocol", "_sampling_priority_rate_v1": "the agent's",
	"error.msg": "error.message", "error.message": "error.msg", "error.type": "of the last exception", "error.stack": "of the last exception",
	"language": "identity", "runtime-id": "identity", "process_id": "identity", "analytics.event": "a tag, too",
	"otel.scope.schema_url": "more", "otel.resource.schema_url": "more", "otel.dropped_attributes_count": "more",
	"otel.dropped_events_count": "more", "otel.dropped_links_count": "more",
	"span.kind": "none in 0.4 where it is none", "sql.query": "of db.system.name", "http.status_code": "a number", "rpc.grpc.status_code": "a text",
	"http.method": "two names for one", "http.url": "two names for one", "db.name": "of db.namespace",
}

// tags holds each tag by OTLP against that by the protocol, and each of the
// span's own attributes.
func (c *nativeCheck) tags() {
	for key, value := range c.want.Meta {
		if !c.differs(key) {
			c.equal(fmt.Sprintf("tag %q", key), value, c.text(key))
		}
	}
	for key, value := range c.want.Metrics {
		if !c.differs(key) {
			got, there := c.got.Metrics[key]
			c.equal(fmt.Sprintf("number %q is there", key), true, there)
			c.equal(fmt.Sprintf("number %q", key), value, got)
		}
	}
	for key, value := range c.attributes {
		if otherwise[key] == "" && !c.twice[key] && len(key) < longKey {
			c.exact(key, value)
		}
	}
	expected := map[string]bool{}
	for key, value := range c.attributes {
		for i := range lengthOf(value) {
			expected[key+"."+strconv.Itoa(i)] = true
		}
	}
	for _, key := range slices.Concat(keysOf(c.got.Meta), keysOf(c.got.Metrics)) {
		_, own := c.attributes[key]
		_, meta := c.want.Meta[key]
		_, metric := c.want.Metrics[key]
		if !own && !meta && !metric && !expected[key] && otherwise[key] == "" &&
			!strings.HasPrefix(key, "otel.attribute.") && !strings.HasPrefix(key, "http.request.headers.") && len(key) < longKey {
			c.equal(fmt.Sprintf("tag %q", key), nil, c.text(key))
		}
	}
}

// longKey is where the agent cuts keys, less what makes a list of one.
const longKey = 200 - len(".127")

// differs tells of which keys the agent's tag says nothing.
func (c *nativeCheck) differs(key string) bool {
	_, own := c.attributes[key]
	return otherwise[key] != "" || own || len(key) >= longKey || c.twice[key] ||
		strings.HasPrefix(key, "_dd.") || strings.HasPrefix(key, "http.request.headers.") ||
		key == "error" || key == "span.name" || strings.Contains(key, "floats") || strings.Contains(key, ".float.inf") || strings.HasSuffix(key, ".slice")
}

func (c *nativeCheck) text(key string) any {
	if text, ok := c.got.Meta[key]; ok {
		return text
	}
	if number, ok := c.got.Metrics[key]; ok {
		return number
	}
	return nil
}

// exact holds a span's own attribute against the rules of the table: numbers and
// lists lose nothing.
func (c *nativeCheck) exact(key string, value attribute.Value) {
	if isOverride(key) || strings.HasPrefix(key, "_dd.") || renamedByAgent(key) || key == "error" || key == "span.name" {
		return
	}
	if _, alsoList := c.want.Meta[key]; !alsoList {
		if _, number := c.want.Metrics[key]; !number {
			return // not as itself by OTLP either
		}
	}
	switch value.Type() {
	case attribute.BOOL:
		c.equal(key, strconv.FormatBool(value.AsBool()), c.text(key))
	case attribute.INT64:
		c.integer(key, value.AsInt64())
	case attribute.FLOAT64:
		c.equal(key, value.AsFloat64(), c.text(key))
	case attribute.STRING, attribute.BYTESLICE, attribute.EMPTY, attribute.SLICE, attribute.MAP:
		c.general(key, value)
	case attribute.BOOLSLICE:
		eachOf(value.AsBoolSlice(), key, func(k string, v bool) { c.equal(k, strconv.FormatBool(v), c.text(k)) })
	case attribute.INT64SLICE:
		eachOf(value.AsInt64Slice(), key, c.integer)
	case attribute.FLOAT64SLICE:
		eachOf(value.AsFloat64Slice(), key, func(k string, v float64) { c.equal(k, v, c.text(k)) })
	case attribute.STRINGSLICE:
		eachOf(value.AsStringSlice(), key, func(k, v string) { c.equal(k, v, c.text(k)) })
	}
}

// general is for what arrives as by OTLP, unless a member has no form in JSON.
func (c *nativeCheck) general(key string, value attribute.Value) {
	if uniform(value) > 0 {
		return // a list of one type, whatever made it
	}
	want, there := c.want.Meta[key]
	if !there || strings.Contains(want, "null") || want == "" && value.Type() >= attribute.SLICE {
		c.equal(key+" is there", true, c.text(key) != nil)
		return
	}
	c.equal(key, want, c.text(key))
}

func (c *nativeCheck) integer(key string, v int64) {
	if v >= 1<<53 || v <= -1<<53 {
		c.equal(key, strconv.FormatInt(v, 10), c.text(key))
		return
	}
	c.equal(key, float64(v), c.text(key))
}

func eachOf[T any](values []T, key string, check func(string, T)) {
	for i, v := range values {
		check(key+"."+strconv.Itoa(i), v)
	}
}

// uniform is the length of a SLICE whose members are all bools, integers, floats
// or texts, else 0: OTLP does not tell it from a list of that type.
func uniform(value attribute.Value) int {
	if value.Type() != attribute.SLICE {
		return 0
	}
	members := value.AsSlice()
	for _, m := range members {
		if t := m.Type(); t != members[0].Type() || t < attribute.BOOL || t > attribute.STRING {
			return 0
		}
	}
	return len(members)
}

func lengthOf(value attribute.Value) int {
	switch value.Type() {
	case attribute.BOOLSLICE:
		return len(value.AsBoolSlice())
	case attribute.INT64SLICE:
		return len(value.AsInt64Slice())
	case attribute.FLOAT64SLICE:
		return len(value.AsFloat64Slice())
	case attribute.STRINGSLICE:
		return len(value.AsStringSlice())
	}
	return uniform(value)
}

// isOverride tells which attributes have a field of their own in Datadog.
func isOverride(key string) bool {
	return slices.Contains([]string{"service.name", "operation.name", "resource.name", "span.type"}, key)
}

// renamedByAgent tells which keys the agent has another name for.
func renamedByAgent(key string) bool {
	return strings.HasPrefix(key, "http.") || strings.HasPrefix(key, "url.") || strings.HasPrefix(key, "user_agent.") ||
		strings.HasPrefix(key, "server.") || strings.HasPrefix(key, "network.") || strings.HasPrefix(key, "client.")
}

func keysOf[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	return keys
}
