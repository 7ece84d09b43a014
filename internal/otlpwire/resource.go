package otlpwire

import (
	"iter"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Resource is a view of one ResourceSpans' resource. Its reads see the edits
// recorded so far.
type Resource struct {
	r *Request
	i int
}

// Attribute finds an attribute by its key; of several the last.
func (r Resource) Attribute(key string) (Value, bool) {
	return r.attributes().find(key)
}

// Attributes goes through the attributes as they stand, those that were added
// at the end. Edits are allowed meanwhile.
func (r Resource) Attributes() iter.Seq2[string, Value] { return r.attributes().all() }

// DroppedAttributes is how many attributes were left out for limits.
func (r Resource) DroppedAttributes() uint32 {
	return r.r.count(r.part(), field.ResourceDroppedAttributes)
}

// SchemaURL is that of the ResourceSpans.
func (r Resource) SchemaURL() string {
	return string(r.r.content(r.outer(), field.ResourceSpansSchemaURL))
}

// SetAttribute does what Span.SetAttribute does, for all spans of the resource.
func (r Resource) SetAttribute(kv attribute.KeyValue) {
	r.attributes().set(kv)
}

// DeleteAttribute does what Span.DeleteAttribute does, for all spans of the
// resource.
func (r Resource) DeleteAttribute(key string) {
	r.attributes().remove(key)
}

// outer is the ResourceSpans.
func (r Resource) outer() part {
	entry := &r.r.resources[r.i]
	return r.r.part(entry.start, entry.end)
}

// part is the Resource in it.
func (r Resource) part() part {
	return r.r.remembered(ofResource, r.i, r.outer(), field.ResourceSpansResource)
}

// remembered is message for a resource or a scope. The last of each kind is
// kept: all spans ask for theirs, and to find it takes a walk over all of them.
func (r *Request) remembered(kind ownerKind, i int, outer part, num uint32) part {
	m := &r.messages[kind]
	if m.known != i+1 {
		m.known, m.part = i+1, r.message(outer, num)
	}
	return m.part
}

func (r Resource) attributes() *attributes {
	return &attributes{r.r, r.part(), field.ResourceAttributes, owner{kind: ofResource, i: r.i}}
}

// Scope is a view of one ScopeSpans' instrumentation scope. Its reads see the
// edits recorded so far.
type Scope struct {
	r *Request
	i int
}

// Name is the scope's name, often a package path.
func (s Scope) Name() string { return s.r.intern(s.r.content(s.part(), field.ScopeName)) }

// Version is the scope's version, "" if unknown.
func (s Scope) Version() string { return s.r.intern(s.r.content(s.part(), field.ScopeVersion)) }

// SchemaURL is that of the ScopeSpans.
func (s Scope) SchemaURL() string { return string(s.r.content(s.outer(), field.ScopeSpansSchemaURL)) }

// Attribute finds an attribute by its key; of several the last.
func (s Scope) Attribute(key string) (Value, bool) {
	return s.attributes().find(key)
}

// Attributes goes through the attributes as they stand, those that were added
// at the end. Edits are allowed meanwhile.
func (s Scope) Attributes() iter.Seq2[string, Value] { return s.attributes().all() }

// DroppedAttributes is how many attributes were left out for limits.
func (s Scope) DroppedAttributes() uint32 { return s.r.count(s.part(), field.ScopeDroppedAttributes) }

// SetAttribute does what Span.SetAttribute does, for all spans of the scope.
func (s Scope) SetAttribute(kv attribute.KeyValue) {
	s.attributes().set(kv)
}

// DeleteAttribute does what Span.DeleteAttribute does, for all spans of the
// scope.
func (s Scope) DeleteAttribute(key string) {
	s.attributes().remove(key)
}

func (s Scope) outer() part {
	entry := &s.r.scopes[s.i]
	return s.r.part(entry.start, entry.end)
}

func (s Scope) part() part {
	return s.r.remembered(ofScope, s.i, s.outer(), field.ScopeSpansScope)
}

func (s Scope) attributes() *attributes {
	return &attributes{s.r, s.part(), field.ScopeAttributes, owner{kind: ofScope, i: s.i}}
}
