package peer

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	pb "github.com/DataDog/datadog-agent/pkg/proto/pbgo/trace"
	"github.com/DataDog/datadog-agent/pkg/proto/pbgo/trace/idx"
)

// The values of AgentSpan.Protocol.
const (
	// ProtocolV04 is msgpack of protocol 0.4 and its kin, 0.3 to 0.7.
	ProtocolV04 = "v0.4"
	// ProtocolV1 is protocol 1.0.
	ProtocolV1 = "v1.0"
	// ProtocolOTLP is the agent's OTLP receiver.
	ProtocolOTLP = "otlp"
)

// AgentSpan is a span as the agent sends it to Datadog. It has the same form for each
// protocol.
type AgentSpan struct {
	// TraceID is all 128 bits in 32 hex digits. With protocol 0.4 the high half
	// stands in one span of the chunk, with OTLP in every span's tag
	// otel.trace_id: it is put together here.
	TraceID          string
	SpanID, ParentID uint64
	// Name is the operation's.
	Name, Service, Resource, Type string
	// Start is in nanoseconds since 1970, Duration in nanoseconds.
	Start, Duration int64
	Error           int32
	// Meta and Metrics are tags. Protocol 1.0 has more types of values. Its strings,
	// bools, lists and maps are in Meta, lists and maps as JSON. Its numbers are in
	// Metrics, except for integers that a float64 cannot hold, which are in Meta in
	// decimal. Its fields env, version, component and kind are in Meta under their
	// names in protocol 0.4.
	Meta    map[string]string
	Metrics map[string]float64
	// MetaStruct is bytes, msgpack by convention.
	MetaStruct map[string][]byte
	Links      []AgentLink
	Events     []AgentEvent
	// Priority, ChunkTags, Origin and DroppedTrace are fields of the chunk. Chunk is
	// its number in the order of arrival, from 0. DroppedTrace: the agent keeps the
	// span only for its own use.
	Priority     int32
	ChunkTags    map[string]string
	Origin       string
	DroppedTrace bool
	Chunk        int
	// Env, Version, Hostname and Language are fields of the payload, which the tracer
	// sets.
	Env, Version, Hostname, Language string
	// Protocol is one of the constants above.
	Protocol string
}

// AgentLink is a span link.
type AgentLink struct {
	// TraceID is 32 hex digits.
	TraceID    string
	SpanID     uint64
	Attributes map[string]string
	Tracestate string
	// Flags has bit 31 set where the tracer knew them.
	Flags uint32
}

// AgentEvent is a span event that came as such, not as a tag of JSON.
type AgentEvent struct {
	Name string
	// Time is in nanoseconds since 1970.
	Time uint64
	// Attributes are string, bool, int64, float64, or []any of these.
	Attributes map[string]any
}

// addTracerPayload adds the spans of a payload of protocol 0.4 or OTLP.
func (a *DatadogAgent) addTracerPayload(p *pb.TracerPayload) {
	protocol := ProtocolV04
	if strings.HasPrefix(p.TracerVersion, "otlp-") {
		protocol = ProtocolOTLP
	}
	for _, chunk := range p.Chunks {
		high := highHalf(chunk)
		for _, s := range chunk.Spans {
			span := AgentSpan{
				TraceID: traceID(high, s.TraceID), SpanID: s.SpanID, ParentID: s.ParentID,
				Name: s.Name, Service: s.Service, Resource: s.Resource, Type: s.Type,
				Start: s.Start, Duration: s.Duration, Error: s.Error,
				Meta: s.Meta, Metrics: s.Metrics, MetaStruct: s.MetaStruct,
				Priority: chunk.Priority, ChunkTags: chunk.Tags, Origin: chunk.Origin, DroppedTrace: chunk.DroppedTrace, Chunk: a.chunks,
				Env: p.Env, Version: p.AppVersion, Hostname: p.Hostname, Language: p.LanguageName, Protocol: protocol,
			}
			if id := s.Meta["otel.trace_id"]; protocol == ProtocolOTLP && isTraceID(id) {
				span.TraceID = id
			}
			for _, l := range s.SpanLinks {
				span.Links = append(span.Links, AgentLink{
					TraceID: traceID(l.TraceIDHigh, l.TraceID), SpanID: l.SpanID, Attributes: l.Attributes, Tracestate: l.Tracestate, Flags: l.Flags,
				})
			}
			for _, e := range s.SpanEvents {
				event := AgentEvent{Name: e.Name, Time: e.TimeUnixNano, Attributes: map[string]any{}}
				for key, value := range e.Attributes {
					event.Attributes[key] = eventValue(value)
				}
				span.Events = append(span.Events, event)
			}
			a.spans = append(a.spans, span)
		}
		a.chunks++
	}
}

// highHalf finds the high half of the trace id, which one span of a chunk has.
func highHalf(chunk *pb.TraceChunk) uint64 {
	for _, s := range chunk.Spans {
		if text := s.Meta["_dd.p.tid"]; text != "" {
			return parseHigh(text)
		}
	}
	return parseHigh(chunk.Tags["_dd.p.tid"])
}

// eventValue gives the value of an event's attribute as Go has it.
func eventValue(v *pb.AttributeAnyValue) any {
	switch v.Type {
	case pb.AttributeAnyValue_STRING_VALUE:
		return v.StringValue
	case pb.AttributeAnyValue_BOOL_VALUE:
		return v.BoolValue
	case pb.AttributeAnyValue_INT_VALUE:
		return v.IntValue
	case pb.AttributeAnyValue_DOUBLE_VALUE:
		return v.DoubleValue
	case pb.AttributeAnyValue_ARRAY_VALUE:
		values := []any{}
		for _, element := range v.ArrayValue.GetValues() {
			values = append(values, elementValue(element))
		}
		return values
	}
	return nil // a kind that a later agent may have
}

func elementValue(v *pb.AttributeArrayValue) any {
	switch v.Type {
	case pb.AttributeArrayValue_STRING_VALUE:
		return v.StringValue
	case pb.AttributeArrayValue_BOOL_VALUE:
		return v.BoolValue
	case pb.AttributeArrayValue_INT_VALUE:
		return v.IntValue
	case pb.AttributeArrayValue_DOUBLE_VALUE:
		return v.DoubleValue
	}
	return nil
}

// texts is the table of strings that a payload of protocol 1.0 refers to.
type texts []string

func (t texts) at(i uint32) string {
	if int(i) >= len(t) {
		return fmt.Sprintf("no string %d of %d", i, len(t))
	}
	return t[i]
}

// addIndexed adds the spans of a payload of protocol 1.0.
func (a *DatadogAgent) addIndexed(p *idx.TracerPayload) {
	table := texts(p.Strings)
	for _, chunk := range p.Chunks {
		for _, s := range chunk.Spans {
			span := AgentSpan{
				TraceID: hex.EncodeToString(chunk.TraceID), SpanID: s.SpanID, ParentID: s.ParentID,
				Name: table.at(s.NameRef), Service: table.at(s.ServiceRef), Resource: table.at(s.ResourceRef), Type: table.at(s.TypeRef),
				Start: int64(s.Start), Duration: int64(s.Duration), Meta: map[string]string{}, Metrics: map[string]float64{}, MetaStruct: map[string][]byte{},
				Priority: chunk.Priority, ChunkTags: table.strings(chunk.Attributes), Origin: table.at(chunk.OriginRef), DroppedTrace: chunk.DroppedTrace, Chunk: a.chunks,
				Env: table.at(p.EnvRef), Version: table.at(p.AppVersionRef), Hostname: table.at(p.HostnameRef), Language: table.at(p.LanguageNameRef), Protocol: ProtocolV1,
			}
			if s.Error {
				span.Error = 1
			}
			for key, value := range s.Attributes {
				span.setTag(table.at(key), value, table)
			}
			for key, value := range map[string]string{
				"env": table.at(s.EnvRef), "version": table.at(s.VersionRef), "component": table.at(s.ComponentRef), "span.kind": kindName(s.Kind),
			} {
				if value != "" {
					span.Meta[key] = value
				}
			}
			for _, l := range s.Links {
				span.Links = append(span.Links, AgentLink{
					TraceID: hex.EncodeToString(l.TraceID), SpanID: l.SpanID, Attributes: table.strings(l.Attributes), Tracestate: table.at(l.TracestateRef), Flags: l.Flags,
				})
			}
			for _, e := range s.Events {
				event := AgentEvent{Name: table.at(e.NameRef), Time: e.Time, Attributes: map[string]any{}}
				for key, value := range e.Attributes {
					event.Attributes[table.at(key)] = table.value(value)
				}
				span.Events = append(span.Events, event)
			}
			a.spans = append(a.spans, span)
		}
		a.chunks++
	}
}

// setTag puts an attribute where protocol 0.4 has it.
func (s *AgentSpan) setTag(key string, value *idx.AnyValue, table texts) {
	switch v := table.value(value).(type) {
	case float64:
		s.Metrics[key] = v
	case int64:
		if exact := float64(v); exact != 1<<63 && int64(exact) == v {
			s.Metrics[key] = exact
		} else {
			s.Meta[key] = strconv.FormatInt(v, 10)
		}
	case []byte:
		s.MetaStruct[key] = v
	default:
		s.Meta[key] = asText(v)
	}
}

// strings gives attributes as text.
func (t texts) strings(attributes map[uint32]*idx.AnyValue) map[string]string {
	all := map[string]string{}
	for key, value := range attributes {
		all[t.at(key)] = asText(t.value(value))
	}
	return all
}

// asText gives a value as text: lists and maps as JSON.
func asText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []any, map[string]any:
		text, err := json.Marshal(v)
		if err != nil { // a number that JSON has no word for
			return fmt.Sprint(v)
		}
		return string(text)
	}
	return fmt.Sprint(value)
}

// value gives a value as Go has it.
func (t texts) value(value *idx.AnyValue) any {
	switch v := value.GetValue().(type) {
	case *idx.AnyValue_StringValueRef:
		return t.at(v.StringValueRef)
	case *idx.AnyValue_BoolValue:
		return v.BoolValue
	case *idx.AnyValue_IntValue:
		return v.IntValue
	case *idx.AnyValue_DoubleValue:
		return v.DoubleValue
	case *idx.AnyValue_BytesValue:
		return v.BytesValue
	case *idx.AnyValue_ArrayValue:
		values := []any{}
		for _, element := range v.ArrayValue.GetValues() {
			values = append(values, t.value(element))
		}
		return values
	case *idx.AnyValue_KeyValueList:
		values := map[string]any{}
		for _, kv := range v.KeyValueList.GetKeyValues() {
			values[t.at(kv.Key)] = t.value(kv.Value)
		}
		return values
	}
	return nil
}

// kindName is the word for a kind, empty for none.
func kindName(kind idx.SpanKind) string {
	if kind == idx.SpanKind_SPAN_KIND_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(kind.String(), "SPAN_KIND_"))
}
