package sdkspan

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// resourceGroup is one ResourceSpans.
type resourceGroup struct {
	resource *resource.Resource
	head     []byte // its fields but the scopes
	scopes   []*scopeGroup
	begun    int // scopes that have spans
}

// scopeGroup is one ScopeSpans.
type scopeGroup struct {
	in       *resourceGroup
	resource *resource.Resource // that of in
	scope    instrumentation.Scope
	head     []byte // its fields but the spans
	spans    []byte // the spans, as fields
	n        int    // how many
}

// group gives the place of a span. Most spans belong where the one before them
// did; else the search is linear, for programs have few resources and scopes.
func (e *Encoder) group(res *resource.Resource, scope *instrumentation.Scope) *scopeGroup {
	if g := e.last; g != nil && g.resource == res && sameScope(&g.scope, scope) {
		return g
	}
	r := e.resourceGroup(res)
	for _, g := range r.scopes {
		if sameScope(&g.scope, scope) {
			return g
		}
	}
	g := &scopeGroup{in: r, resource: r.resource, scope: *scope, head: scopeHead(*scope)}
	r.scopes = append(r.scopes, g)
	return g
}

func (e *Encoder) resourceGroup(res *resource.Resource) *resourceGroup {
	for _, r := range e.resources {
		if sameResource(r.resource, res) {
			return r
		}
	}
	r := &resourceGroup{resource: res, head: resourceHead(res)}
	e.resources = append(e.resources, r)
	return r
}

// forgetIdle forgets the scopes and resources without spans.
func (e *Encoder) forgetIdle() {
	for _, r := range e.resources {
		r.scopes = slices.DeleteFunc(r.scopes, func(g *scopeGroup) bool { return g.n == 0 })
	}
	e.resources = slices.DeleteFunc(e.resources, func(r *resourceGroup) bool { return len(r.scopes) == 0 })
	e.last = nil // may be one of them
}

// size is the length of the content of the ScopeSpans, which has spans.
func (g *scopeGroup) size() int { return len(g.head) + len(g.spans) }

// begin notes that the scope gets its first span, and gives the length of what
// comes with it: the scope itself, and its resource if that had no spans.
func (g *scopeGroup) begin() int {
	g.in.begun++
	return g.heads()
}

// end takes begin back.
func (g *scopeGroup) end() int {
	n := g.heads()
	g.in.begun--
	return n
}

func (g *scopeGroup) heads() int {
	if g.in.begun == 1 {
		return len(g.in.head) + len(g.head)
	}
	return len(g.head)
}

// size is the length of the content of the ResourceSpans, 0 if it has no spans.
func (r *resourceGroup) size() int {
	size := 0
	for _, g := range r.scopes {
		if g.n > 0 {
			size += sizeField(g.size())
		}
	}
	if size == 0 {
		return 0
	}
	return len(r.head) + size
}

// appendHead appends what comes before the first scope, where the content is of that
// size.
func (r *resourceGroup) appendHead(dst []byte, size int) []byte {
	return append(appendHead(dst, field.RequestResourceSpans, size), r.head...)
}

// appendHead appends what comes before the first span.
func (g *scopeGroup) appendHead(dst []byte) []byte {
	return append(appendHead(dst, field.ResourceSpansScopeSpans, g.size()), g.head...)
}

// sameResource compares as the SDK's exporter does, by the hash of the
// attributes, and by schema URL too. None is not the same as an empty one.
func sameResource(a, b *resource.Resource) bool {
	return a == b || a != nil && b != nil && a.Equivalent() == b.Equivalent() && a.SchemaURL() == b.SchemaURL()
}

func sameScope(a, b *instrumentation.Scope) bool {
	return a.Name == b.Name && a.Version == b.Version && a.SchemaURL == b.SchemaURL &&
		a.Attributes.Equivalent() == b.Attributes.Equivalent()
}

func resourceHead(res *resource.Resource) []byte {
	var w otlpwire.Writer
	if res == nil {
		return nil
	}
	w.Text(field.ResourceSpansSchemaURL, res.SchemaURL())
	end := w.Len()
	w.KeyValues(field.ResourceAttributes, res.Attributes())
	w.Message(field.ResourceSpansResource, end)
	return slices.Clone(w.Bytes())
}

// scopeHead leaves the scope out if it says nothing, as the SDK's exporter does.
func scopeHead(scope instrumentation.Scope) []byte {
	var w otlpwire.Writer
	w.Text(field.ScopeSpansSchemaURL, scope.SchemaURL)
	if empty := (instrumentation.Scope{Attributes: *attribute.EmptySet()}); sameScope(&scope, &empty) {
		return nil
	}
	end := w.Len()
	w.KeyValues(field.ScopeAttributes, scope.Attributes.ToSlice())
	w.Text(field.ScopeVersion, scope.Version)
	w.Text(field.ScopeName, scope.Name)
	w.Message(field.ScopeSpansScope, end)
	return slices.Clone(w.Bytes())
}

// appendHead appends tag and length of a field of n bytes of content.
func appendHead(dst []byte, num protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.BytesType), uint64(n))
}

// sizeField is the length of a field of n bytes of content.
func sizeField(n int) int { return 1 + protowire.SizeBytes(n) }
