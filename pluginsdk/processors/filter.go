package processors

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// FilterConfig configures [Filter].
type FilterConfig struct {
	// Name is the processor's name in the delivery accounting, in which the host counts
	// dropped spans. Empty means "filter".
	Name string `yaml:"name"`
	// Drop describes the spans to drop. A span is dropped if it matches at least one entry.
	// There must be at least one entry.
	Drop []SpanMatch `yaml:"drop"`
}

// SpanMatch describes spans. A span matches if it meets all given conditions. At least
// one condition must be given.
type SpanMatch struct {
	// Name is a glob of the span's name: "GET /health*".
	Name string `yaml:"name"`
	// Kind is "internal", "server", "client", "producer", "consumer", or
	// "unspecified".
	Kind string `yaml:"kind"`
	// Status is "unset", "ok" or "error".
	Status string `yaml:"status"`
	// Attributes holds a condition for each key; keys are not globs. A string is a glob for
	// the attribute's value as text, in which arrays and maps are JSON. A number or a bool
	// must equal the value; an integer equals a float of the same number. nil matches every
	// value, but not a missing attribute.
	Attributes map[string]any `yaml:"attributes"`
	// Resource holds conditions on the attributes of the span's resource, in the form of
	// Attributes.
	Resource map[string]any `yaml:"resource"`
}

// Validate returns all errors joined, each a [*pluginsdk.ConfigError].
func (c FilterConfig) Validate() error {
	_, err := c.compile()
	return err
}

func (c FilterConfig) compile() ([]spanRule, error) {
	var f faults
	f.checkName(c.Name)
	if len(c.Drop) == 0 {
		f.add("drop", "is empty: say which spans to drop, such as {name: \"GET /health*\"}")
	}
	var rules []spanRule
	for i, m := range c.Drop {
		rules = append(rules, m.compile(fmt.Sprintf("drop[%d]", i), &f))
	}
	return rules, f.err()
}

var (
	kinds = map[string]trace.SpanKind{
		"unspecified": trace.SpanKindUnspecified, "internal": trace.SpanKindInternal, "server": trace.SpanKindServer,
		"client": trace.SpanKindClient, "producer": trace.SpanKindProducer, "consumer": trace.SpanKindConsumer,
	}
	statuses = map[string]codes.Code{"unset": codes.Unset, "ok": codes.Ok, "error": codes.Error}
)

// spanRule is a compiled SpanMatch. A field that is nil or empty matches every span.
type spanRule struct {
	name       *glob
	kind       *trace.SpanKind
	status     *codes.Code
	attributes []valueRule
	resource   []valueRule
}

func (m SpanMatch) compile(path string, f *faults) spanRule {
	var rule spanRule
	if m.Name != "" {
		rule.name = newGlob(m.Name)
	}
	rule.kind = oneOf(path+".kind", m.Kind, kinds, f)
	rule.status = oneOf(path+".status", m.Status, statuses, f)
	rule.attributes = compileValues(path+".attributes", m.Attributes, f)
	rule.resource = compileValues(path+".resource", m.Resource, f)
	if m.Name == "" && m.Kind == "" && m.Status == "" && len(m.Attributes) == 0 && len(m.Resource) == 0 {
		f.add(path, "has no condition and would drop every span: give name, kind, status, attributes or resource")
	}
	return rule
}

// oneOf returns a pointer to the value of word in table, or nil if word is empty. For an
// unknown word it returns nil and adds an error to f.
func oneOf[T any](path, word string, table map[string]T, f *faults) *T {
	if word == "" {
		return nil
	}
	value, ok := table[word]
	if !ok {
		f.add(path, "%q: want one of %s", word, strings.Join(slices.Sorted(maps.Keys(table)), ", "))
		return nil
	}
	return &value
}

// valueRule is a condition on the value of one attribute. At most one of text and want is
// set. If neither is set, every value meets the condition.
type valueRule struct {
	key  attribute.Key
	text *glob
	want attribute.Value // an integer, a float or a bool; empty if there is no such condition
}

func compileValues(path string, conditions map[string]any, f *faults) []valueRule {
	var rules []valueRule
	for _, key := range slices.Sorted(maps.Keys(conditions)) { // sorted, so that errors have the same order at each start
		rule := valueRule{key: attribute.Key(key)}
		switch want := conditions[key].(type) {
		case nil:
		case string:
			rule.text = newGlob(want)
		default:
			value, ok := valueOf(want)
			if t := value.Type(); !ok || t != attribute.BOOL && t != attribute.INT64 && t != attribute.FLOAT64 {
				f.add(path+"."+key, "%v: want a text, a number, true or false, or nothing for any value", want)
			}
			rule.want = value
		}
		rules = append(rules, rule)
	}
	return rules
}

// Filter returns the constructor of a processor that drops spans. The host counts them as
// filtered under the processor's name. The children of a dropped span lose their parent,
// and back ends show their trace in several parts. So drop only spans without children,
// or drop whole traces by an attribute that all their spans have.
//
// Conditions on name, kind and status allocate no memory, except for names longer than 64
// characters. A condition on an attribute copies its value.
func Filter(c FilterConfig) pluginsdk.NewProcessor {
	return constructor(kindFilter, c.Name, func(pluginsdk.Setup) (func(*pluginsdk.Batch), error) {
		rules, err := c.compile()
		return func(b *pluginsdk.Batch) {
			for span := range b.Spans() {
				if slices.ContainsFunc(rules, func(r spanRule) bool { return r.matches(span) }) {
					span.Drop()
				}
			}
		}, err
	})
}

// matches reports whether the span meets all conditions of the rule. It checks cheap
// conditions first.
func (r *spanRule) matches(span pluginsdk.Span) bool {
	if r.kind != nil && span.Kind() != *r.kind {
		return false
	}
	if r.status != nil {
		if code, _ := span.Status(); code != *r.status {
			return false
		}
	}
	if r.name != nil && !r.name.matches(span.Name()) {
		return false
	}
	for i := range r.attributes {
		if value, ok := span.Attribute(r.attributes[i].key); !ok || !r.attributes[i].matches(value) {
			return false
		}
	}
	for i := range r.resource {
		if value, ok := span.Resource().Attribute(r.resource[i].key); !ok || !r.resource[i].matches(value) {
			return false
		}
	}
	return true
}

func (r *valueRule) matches(value attribute.Value) bool {
	if r.text != nil {
		return r.text.matches(value.String())
	}
	switch r.want.Type() {
	case attribute.BOOL:
		return value.Type() == attribute.BOOL && value.AsBool() == r.want.AsBool()
	case attribute.INT64:
		return value.Type() == attribute.INT64 && value.AsInt64() == r.want.AsInt64() ||
			value.Type() == attribute.FLOAT64 && equalNumbers(r.want.AsInt64(), value.AsFloat64())
	case attribute.FLOAT64:
		return value.Type() == attribute.FLOAT64 && value.AsFloat64() == r.want.AsFloat64() ||
			value.Type() == attribute.INT64 && equalNumbers(value.AsInt64(), r.want.AsFloat64())
	default:
		return true
	}
}

// equalNumbers reports whether i and f are the same number, without rounding. It converts
// f to an integer, because a float64 cannot hold every integer beyond 2^53. It checks the
// range first, because the conversion of a float beyond the range of int64 is undefined.
func equalNumbers(i int64, f float64) bool {
	return f >= math.MinInt64 && f < math.MaxInt64 && f == math.Trunc(f) && int64(f) == i
}
