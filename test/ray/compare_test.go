package ray

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// nothing stands for a value that one side lacks.
const nothing = "(nothing)"

// found is one difference between Ray Serve's span and ours.
type found struct {
	scenario  string
	family    string
	what      string
	ray, ours string

	call *span // Ray's router span of the same call, if it has one
}

func (f found) String() string {
	return fmt.Sprintf("%s: %s: %s: Ray Serve %s, ours %s", f.scenario, f.family, f.what, f.ray, f.ours)
}

// comparison gathers the differences of a scenario.
type comparison struct {
	scenario string
	found    []found
}

// compare returns the differences between the traces of Ray Serve and ours.
func compare(scenario string, ray, ours []*span) []found {
	c := &comparison{scenario: scenario}
	c.siblings(ray, ours)
	return c.found
}

func (c *comparison) add(s *span, what, ray, ours string) {
	if ray == ours {
		return
	}
	f := found{scenario: c.scenario, family: s.family(), what: what, ray: ray, ours: ours}
	for _, child := range s.Children {
		if child.family() == "route_to_replica" {
			f.call = child
		}
	}
	c.found = append(c.found, f)
}

func (c *comparison) siblings(ray, ours []*span) {
	ours = c.withoutAdditions(ours)
	inOrder(ray)
	inOrder(ours)
	for len(ray) > 0 || len(ours) > 0 {
		switch {
		case len(ours) == 0 || len(ray) > 0 && ray[0].key() < ours[0].key():
			c.add(ray[0], "span", strconv.Quote(ray[0].Name), nothing)
			ray = ray[1:]
		case len(ray) == 0 || ours[0].key() < ray[0].key():
			c.add(ours[0], "span", nothing, strconv.Quote(ours[0].Name))
			ours = ours[1:]
		default:
			c.spans(ray[0], ours[0])
			ray, ours = ray[1:], ours[1:]
		}
	}
}

// withoutAdditions takes the spans away that Ray Serve does not have, and has
// their children in their places.
func (c *comparison) withoutAdditions(siblings []*span) (out []*span) {
	for _, s := range siblings {
		if !additions[s.family()] {
			out = append(out, s)
			continue
		}
		c.add(s, "span", nothing, strconv.Quote(s.Name))
		out = append(out, c.withoutAdditions(s.Children)...)
	}
	return out
}

func (c *comparison) spans(ray, ours *span) {
	for _, field := range []struct{ what, ray, ours string }{
		{"name", ray.Name, ours.Name},
		{"kind", ray.Kind, ours.Kind},
		{"status", ray.Status, ours.Status},
		{"description", ray.Description, ours.Description},
		{"tracestate", ray.TraceState, ours.TraceState},
		{"parent", ray.Parent, ours.Parent},
		{"trace", ray.Trace, ours.Trace},
	} {
		c.add(ray, field.what, strconv.Quote(field.ray), strconv.Quote(field.ours))
	}
	c.add(ray, "links", strconv.Itoa(ray.Links), strconv.Itoa(ours.Links))
	c.attributes(ray, "", ray.Attributes, ours.Attributes)
	for i := range max(len(ray.Events), len(ours.Events)) {
		var r, o event
		if i < len(ray.Events) {
			r = ray.Events[i]
		}
		if i < len(ours.Events) {
			o = ours.Events[i]
		}
		if r.Name != o.Name {
			c.add(ray, "event", strconv.Quote(r.Name), strconv.Quote(o.Name))
			continue
		}
		c.attributes(ray, "event's ", r.Attributes, o.Attributes)
	}
	c.siblings(ray.Children, ours.Children)
}

func (c *comparison) attributes(s *span, prefix string, ray, ours map[string]any) {
	keys := slices.Collect(maps.Keys(ray))
	for key := range ours {
		if _, both := ray[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		c.add(s, prefix+key, text(ray, key), text(ours, key))
	}
}

// text gives a value with its type: "200" is not 200.
func text(attributes map[string]any, key string) string {
	value, ok := attributes[key]
	if !ok {
		return nothing
	}
	b, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// difference is one that may be. Ray and ours are the values as text prints them,
// or patterns: * is anything.
type difference struct {
	topic     string   // the row of "Where we differ from Ray Serve" in docs/reference/spans.md
	scenarios []string // empty: any; a * at the end stands for any end
	families  []string // empty: any
	what      string
	ray, ours string
}

// allows reports whether f is such a difference.
func (d difference) allows(f found) bool {
	return (len(d.scenarios) == 0 || slices.ContainsFunc(d.scenarios, func(s string) bool { return fits(s, f.scenario) })) &&
		(len(d.families) == 0 || slices.ContainsFunc(d.families, func(s string) bool { return fits(s, f.family) })) &&
		fits(d.what, f.what) && fits(f.filled(d.ray), f.ray) && fits(f.filled(d.ours), f.ours)
}

// filled has the route of the call in a pattern's {route}.
func (f found) filled(pattern string) string {
	if f.call == nil {
		return pattern
	}
	route, _ := f.call.Attributes["route"].(string)
	return strings.ReplaceAll(pattern, "{route}", route)
}

// fits reports whether s is as the pattern says, in which * is any text.
func fits(pattern, s string) bool {
	first, rest, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == s
	}
	if !strings.HasPrefix(s, first) {
		return false
	}
	for i := len(first); i <= len(s); i++ {
		if fits(rest, s[i:]) {
			return true
		}
	}
	return false
}
