package processors

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
)

func TestRayContextAsDecoded(t *testing.T) {
	taskID := regexp.MustCompile(`^[0-9a-f]{48}$`)
	setup := pluginsdk.Setup{Context: pluginsdk.StaticContext{Job: "0a000000"}}
	compare(t, fuzzedSpans, RayContext(), setup, func(data *tracepb.TracesData) {
		for _, s := range spansOf(data) {
			task, _ := find(s.Attributes, "serve.task_id")
			request, _ := find(s.Attributes, "serve.request_id")
			if id := request.GetStringValue(); id != "" {
				s.Attributes = with(s.Attributes, "ray.request_id", textValue(id))
			}
			id := task.GetStringValue()
			if !taskID.MatchString(id) {
				s.Attributes = with(s.Attributes, "ray.job_id", textValue("0a000000"))
				continue
			}
			raw, _ := hex.DecodeString(id)
			s.Attributes = with(s.Attributes, "ray.task_id", textValue(id))
			s.Attributes = with(s.Attributes, "ray.actor_id", textValue(hex.EncodeToString(raw[8:])))
			s.Attributes = with(s.Attributes, "ray.job_id", textValue(hex.EncodeToString(raw[20:])))
		}
	})
}

func TestSampleAsDecoded(t *testing.T) {
	rv := regexp.MustCompile(`(?:^|,)ot=[^,]*\brv:([0-9a-f]{14})(?:[;,]|$)`)
	configs := []SampleConfig{
		{Ratio: 0}, {Ratio: 1}, {Ratio: 0.25}, {Ratio: 1.0 / 3},
		{Ratio: 0.1, Keep: KeepConfig{Errors: true, SlowerThan: 2500 * time.Millisecond}},
	}
	for _, c := range configs {
		// threshold by exact arithmetic: (1 - ratio) * 2^56, rounded.
		scaled, _ := new(big.Float).Add(new(big.Float).Mul(big.NewFloat(c.Ratio), big.NewFloat(1<<56)), big.NewFloat(0.5)).Int(nil)
		least := new(big.Int).Sub(big.NewInt(1<<56), scaled)
		compare(t, fuzzedSpans/len(configs), Sample(c), pluginsdk.Setup{}, func(data *tracepb.TracesData) {
			eachSpan(data, func(_ *tracepb.ResourceSpans, s *tracepb.Span) bool {
				random := make([]byte, 7)
				if len(s.TraceId) == 16 {
					random = s.TraceId[9:]
				}
				if m := rv.FindStringSubmatch(s.TraceState); m != nil {
					random, _ = hex.DecodeString(m[1])
				}
				return new(big.Int).SetBytes(random).Cmp(least) >= 0 ||
					c.Keep.Errors && s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR ||
					c.Keep.SlowerThan > 0 && s.EndTimeUnixNano-s.StartTimeUnixNano > uint64(c.Keep.SlowerThan)
			})
		})
	}
}

func TestFilterAsDecoded(t *testing.T) {
	config := FilterConfig{Drop: []SpanMatch{
		{Name: "/health*"},
		{Kind: "server", Status: "error"},
		{Attributes: map[string]any{"a": "*example.com*"}},
		{Attributes: map[string]any{"b": 200, "team": nil}},
		{Name: "GET *", Resource: map[string]any{"a": true}},
	}}
	compare(t, fuzzedSpans, Filter(config), pluginsdk.Setup{}, func(data *tracepb.TracesData) {
		eachSpan(data, func(rs *tracepb.ResourceSpans, s *tracepb.Span) bool {
			health, _ := path.Match("/health*", s.Name)
			a, _ := find(s.Attributes, "a")
			b, _ := find(s.Attributes, "b")
			_, team := find(s.Attributes, "team")
			ofResource, _ := find(rs.GetResource().GetAttributes(), "a")
			is200 := b.GetIntValue() == 200 || b.GetDoubleValue() == 200
			return !health &&
				(s.Kind != tracepb.Span_SPAN_KIND_SERVER || s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR) &&
				!strings.Contains(plainText(a), "example.com") &&
				(!is200 || !team) &&
				(!strings.HasPrefix(s.Name, "GET ") || !ofResource.GetBoolValue())
		})
	})
}

// plainText returns the texts in a value, sufficient for a search.
func plainText(v *commonpb.AnyValue) string {
	switch v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.GetStringValue()
	case *commonpb.AnyValue_ArrayValue:
		var all []string
		for _, member := range v.GetArrayValue().Values {
			all = append(all, plainText(member))
		}
		return strings.Join(all, " ")
	case *commonpb.AnyValue_KvlistValue:
		var all []string
		for _, kv := range v.GetKvlistValue().Values {
			all = append(all, kv.Key, plainText(kv.Value))
		}
		return strings.Join(all, " ")
	}
	return ""
}

func TestAttributesAsDecoded(t *testing.T) {
	const salt = "pepper"
	config := AttributesConfig{Salt: salt, Actions: []AttributeAction{
		{Key: "team", Action: "insert", Value: "search"},
		{Key: "http.route", Action: "update", Value: []any{"x", "y"}},
		{Key: "env", Action: "upsert", Value: 3},
		{Key: "copy", Action: "upsert", FromAttribute: "a"},
		{Key: "a.*", Action: "rename", To: "z.*.end"},
		{Key: "z.b.end", Action: "rename", To: "b"},
		{Key: "*assword", Action: "delete"},
		{Key: "b", Action: "hash"},
		{Key: "ray.*", Action: "update", Value: true},
		{Key: "*", Action: "delete", On: "link"},
		{Key: "team", Action: "rename", To: "crew", On: "event"},
		{Key: "serve.*", Action: "hash", On: "event"},
		{Key: "region", Action: "upsert", Value: "eu", On: "resource"},
		{Key: "?", Action: "delete", On: "resource"},
	}}
	compare(t, fuzzedSpans, Attributes(config), pluginsdk.Setup{}, func(data *tracepb.TracesData) {
		for _, rs := range data.ResourceSpans {
			if rs.Resource == nil {
				rs.Resource = &resourcepb.Resource{}
			}
			kvs := with(rs.Resource.Attributes, "region", textValue("eu"))
			rs.Resource.Attributes = slices.DeleteFunc(kvs, func(kv *commonpb.KeyValue) bool { return len(kv.Key) == 1 })
		}
		for _, s := range spansOf(data) {
			s.Attributes = naiveActions(s.Attributes, salt)
			for _, l := range s.Links {
				l.Attributes = nil
			}
			for _, e := range s.Events {
				if v, ok := find(e.Attributes, "team"); ok {
					e.Attributes = with(without(e.Attributes, "team"), "crew", v)
				}
				for _, key := range []string{"serve.task_id", "serve.request_id"} {
					if v, ok := find(e.Attributes, key); ok {
						e.Attributes = with(e.Attributes, key, naiveHash(v, salt))
					}
				}
			}
		}
	})
}

func naiveActions(kvs []*commonpb.KeyValue, salt string) []*commonpb.KeyValue {
	if _, ok := find(kvs, "team"); !ok {
		kvs = with(kvs, "team", textValue("search"))
	}
	if _, ok := find(kvs, "http.route"); ok {
		kvs = with(kvs, "http.route", &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{
			ArrayValue: &commonpb.ArrayValue{Values: []*commonpb.AnyValue{textValue("x"), textValue("y")}},
		}})
	}
	kvs = with(kvs, "env", intValue(3))
	if v, ok := find(kvs, "a"); ok {
		kvs = with(kvs, "copy", v)
	}
	for from, to := range map[string]string{"a.b": "z.b.end", "a.c": "z.c.end"} {
		if v, ok := find(kvs, from); ok {
			kvs = with(without(kvs, from), to, v)
		}
	}
	if v, ok := find(kvs, "z.b.end"); ok {
		kvs = with(without(kvs, "z.b.end"), "b", v)
	}
	kvs = without(without(kvs, "user.password"), "db.Password")
	if v, ok := find(kvs, "b"); ok {
		kvs = with(kvs, "b", naiveHash(v, salt))
	}
	for _, key := range []string{"ray.job_id", "ray.task_id"} {
		if _, ok := find(kvs, key); ok {
			kvs = with(kvs, key, &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}})
		}
	}
	return kvs
}

func naiveHash(v *commonpb.AnyValue, salt string) *commonpb.AnyValue {
	var data []byte
	switch value := v.GetValue().(type) {
	case nil:
		return v
	case *commonpb.AnyValue_StringValue:
		data = []byte(value.StringValue)
	case *commonpb.AnyValue_BytesValue:
		data = value.BytesValue
	case *commonpb.AnyValue_BoolValue:
		data = []byte{0}
		if value.BoolValue {
			data[0] = 1
		}
	case *commonpb.AnyValue_IntValue:
		data = binary.LittleEndian.AppendUint64(nil, uint64(value.IntValue))
	case *commonpb.AnyValue_DoubleValue:
		data = binary.LittleEndian.AppendUint64(nil, math.Float64bits(value.DoubleValue))
	default:
		data = []byte(attributeValue(v).String())
	}
	mac := hmac.New(sha256.New, []byte(salt))
	mac.Write(data)
	return textValue(hex.EncodeToString(mac.Sum(nil)))
}

// attributeValue is a decoded value in OpenTelemetry's own form.
func attributeValue(v *commonpb.AnyValue) attribute.Value {
	switch value := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return attribute.StringValue(value.StringValue)
	case *commonpb.AnyValue_BytesValue:
		return attribute.ByteSliceValue(value.BytesValue)
	case *commonpb.AnyValue_BoolValue:
		return attribute.BoolValue(value.BoolValue)
	case *commonpb.AnyValue_IntValue:
		return attribute.Int64Value(value.IntValue)
	case *commonpb.AnyValue_DoubleValue:
		return attribute.Float64Value(value.DoubleValue)
	case *commonpb.AnyValue_ArrayValue:
		var members []attribute.Value
		for _, member := range value.ArrayValue.Values {
			members = append(members, attributeValue(member))
		}
		return attribute.SliceValue(members...)
	case *commonpb.AnyValue_KvlistValue:
		var members []attribute.KeyValue
		for _, kv := range value.KvlistValue.Values {
			members = append(members, attribute.KeyValue{Key: attribute.Key(kv.Key), Value: attributeValue(kv.Value)})
		}
		return attribute.MapValue(members...)
	}
	return attribute.Value{}
}

// TestAttributesMany: the cost of an action for an attribute does not depend on the number
// of attributes.
func TestAttributesMany(t *testing.T) {
	for action, want := range map[string]string{"delete": "", "hash": "k", "rename": "x.", "update": "k"} {
		a := AttributeAction{Key: "k*", Action: action}
		switch action {
		case "rename":
			a.To = "x.*"
		case "update":
			a.Value = 1
		}
		p := construct(t, Attributes(AttributesConfig{Actions: []AttributeAction{a}}), pluginsdk.Setup{})
		const few = 2_000
		wantLinear(t, action, few, func(n int) {
			out, err := process(t, p, manyAttributes(n))
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for s := range pluginsdk.NewBatch(out).Spans() {
				for kv := range s.Attributes() {
					if strings.HasPrefix(string(kv.Key), want) && kv.Value.String() != "v" == (action != "rename") {
						got++
					}
				}
			}
			if action == "delete" && got != 0 || action != "delete" && got != n {
				t.Errorf("%s: %d attributes of %d are right", action, got, n)
			}
		})
	}
}

// manyAttributes returns a batch with a span of n attributes.
func manyAttributes(n int) []byte {
	var span []byte
	for i := range n {
		span = append(span, attributeField(fieldSpanAttributes, fmt.Sprint("k", i), textField(fieldString, "v"))...)
	}
	return requestOf(span)
}

// wantLinear runs f for n and for 16n. It fails if the second run takes more than 100 times
// the CPU time of the first: work in proportion to the square would take 256 times. It tries three times, because of garbage collections.
func wantLinear(t *testing.T, name string, n int, f func(n int)) {
	t.Helper()
	const times, most, tries = 16, 100, 3
	var ratios []float64
	for range tries {
		ratio := float64(cpuTime(t, func() { f(times * n) })) / float64(cpuTime(t, func() { f(n) }))
		if ratio <= most {
			return
		}
		ratios = append(ratios, ratio)
	}
	t.Errorf("%s: %d times the size takes %.0f times as long", name, times, ratios)
}

// cpuTime returns the CPU time of this process during f, at least a microsecond.
func cpuTime(t *testing.T, f func()) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	f()
	return max(time.Microsecond, used()-before)
}
