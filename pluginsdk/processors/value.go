package processors

import (
	"math"

	"go.opentelemetry.io/otel/attribute"
)

// valueOf converts a value of a config, read from YAML or set in Go, to an attribute's
// value. It accepts strings, bools, numbers, and lists of one of these types. ok is false
// for other values.
func valueOf(v any) (value attribute.Value, ok bool) {
	switch v := v.(type) {
	case string:
		return attribute.StringValue(v), true
	case bool:
		return attribute.BoolValue(v), true
	case int:
		return attribute.IntValue(v), true
	case int64:
		return attribute.Int64Value(v), true
	case uint64: // the YAML decoder returns this type for values above the range of int64
		return attribute.Int64Value(int64(v)), v <= math.MaxInt64
	case float64:
		return attribute.Float64Value(v), true
	case []string:
		return attribute.StringSliceValue(v), true
	case []bool:
		return attribute.BoolSliceValue(v), true
	case []int:
		return attribute.IntSliceValue(v), true
	case []int64:
		return attribute.Int64SliceValue(v), true
	case []float64:
		return attribute.Float64SliceValue(v), true
	case attribute.Value:
		return v, v.Type() != attribute.EMPTY
	case []any:
		return listOf(v)
	default:
		return attribute.Value{}, false
	}
}

// listOf converts a list to an attribute's value. ok is false unless all members have the
// same simple type, as OpenTelemetry requires.
func listOf(list []any) (attribute.Value, bool) {
	members := make([]attribute.Value, 0, len(list))
	for _, one := range list {
		member, ok := valueOf(one)
		switch member.Type() {
		case attribute.STRING, attribute.BOOL, attribute.INT64, attribute.FLOAT64:
		default:
			return attribute.Value{}, false
		}
		members = append(members, member)
		if !ok || member.Type() != members[0].Type() {
			return attribute.Value{}, false
		}
	}
	return attribute.SliceValue(members...), true
}
