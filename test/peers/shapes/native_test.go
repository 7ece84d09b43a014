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

// native reports differences from the spans that must arrive through dd-trace-go: all
// values of a span, and the attributes of docs/how-to/datadog.md. The names are
// dd-trace-go's.
func native(s sdktrace.ReadOnlySpan, want, got peer.AgentSpan) string {
	c := &nativeCheck{span: s, want: want, got: got, attributes: map[string]attribute.Value{}, twice: map[string]bool{}}
	for _, kv := range s.Attributes() {
		key := string(kv.Key)
		if _, known := c.attributes[key]; known {
			c.twice[key] = true
		}
		c.attributes[key] = kv.Value
	}
	c.fields()
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

// fields are the fields that are not tags and have no table of names.
func (c *nativeCheck) fields() {
	s, want, got := c.span, c.want, c.got
	parent := s.Parent().SpanID()
	c.equal("trace id", s.SpanContext().TraceID().String(), got.TraceID)
	c.equal("parent id", binary.BigEndian.Uint64(parent[:]), got.ParentID)
	if s.StartTime().Year() >= 2000 {
		c.equal("start", s.StartTime().UnixNano(), got.Start)
	}
	c.equal("duration", want.Duration, got.Duration)
	c.equal("service", want.Service, got.Service)
	c.equal("the trace is kept, by manual.keep with 2", true, got.Priority > 0)
	c.equal("protocol", peer.ProtocolV04, got.Protocol)
	if _, own := c.attributes["error"]; !own {
		c.equal("error", want.Error, got.Error)
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

// tags holds each of the span's own attributes of a simple type against the rules
// of docs/how-to/datadog.md: numbers and lists lose nothing.
func (c *nativeCheck) tags() {
	for key, value := range c.attributes {
		if c.twice[key] || len(key) >= longKey || isOverride(key) {
			continue
		}
		switch value.Type() {
		case attribute.BOOL:
			c.equal(key, strconv.FormatBool(value.AsBool()), c.text(key))
		case attribute.INT64:
			c.integer(key, value.AsInt64())
		case attribute.FLOAT64:
			c.equal(key, value.AsFloat64(), c.text(key))
		case attribute.BOOLSLICE:
			eachOf(value.AsBoolSlice(), key, func(k string, v bool) { c.equal(k, strconv.FormatBool(v), c.text(k)) })
		case attribute.INT64SLICE:
			eachOf(value.AsInt64Slice(), key, c.integer)
		case attribute.STRINGSLICE, attribute.FLOAT64SLICE, attribute.STRING:
			// The agent normalises texts, and floats of a list may be infinite.
		}
	}
}

// longKey is the length to which the agent cuts keys, less the index of a list's member.
const longKey = 200 - len(".127")

func (c *nativeCheck) text(key string) any {
	if text, ok := c.got.Meta[key]; ok {
		return text
	}
	if number, ok := c.got.Metrics[key]; ok {
		return number
	}
	return nil
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

// isOverride reports whether an attribute means something to dd-trace-go.
func isOverride(key string) bool {
	return strings.HasPrefix(key, "_") || strings.HasPrefix(key, "manual.") || slices.Contains([]string{
		"", "service.name", "operation.name", "resource.name", "span.name", "span.type", "span.kind", "error", "analytics.event",
		"env", "version", "language", "runtime-id", "process_id", "http.response.status_code", "http.status_code", "component", "service",
		"db.system", "messaging.system", "messaging.operation", "rpc.system", "rpc.service", "faas.invoked_provider",
		"faas.invoked_name", "faas.trigger", "graphql.operation.type", "network.protocol.name",
	}, key)
}
