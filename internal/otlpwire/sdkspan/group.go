package sdkspan

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// resourceGroup is a resource with the spans that belong to it.
type resourceGroup struct {
	resource *resource.Resource
	head     []byte // fields of the ResourceSpans except its scopes
	scopes   []*scopeGroup
	active   int // number of scopes that have spans
}

// scopeGroup is a scope of a resource, with the spans that belong to it.
type scopeGroup struct {
	in    *resourceGroup
	scope instrumentation.Scope
	head  []byte // fields of the ScopeSpans except its spans
	spans []byte // the encoded spans, each with tag and length
	n     int    // number of spans
}

// group returns the group of a span with this resource and scope. Most spans belong to the same
// group as the previous span. The search for another group is linear, because programs have few
// resources and scopes.
func (e *Encoder) group(res *resource.Resource, scope *instrumentation.Scope) *scopeGroup {
	if g := e.last; g != nil && g.in.resource == res && sameScope(&g.scope, scope) {
		return g
	}
	r := e.resourceGroup(res)
	for _, g := range r.scopes {
		if sameScope(&g.scope, scope) {
			return g
		}
	}
	g := &scopeGroup{in: r, scope: *scope, head: scopeHead(*scope)}
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

// forgetIdle removes the scopes and resources without spans.
func (e *Encoder) forgetIdle() {
	for _, r := range e.resources {
		r.scopes = slices.DeleteFunc(r.scopes, func(g *scopeGroup) bool { return g.n == 0 })
	}
	e.resources = slices.DeleteFunc(e.resources, func(r *resourceGroup) bool { return len(r.scopes) == 0 })
	e.last = nil // this scope may be among the removed scopes
}

// heads returns the size of the heads that the request has only because this scope has spans:
// the head of the scope, and the head of its resource if no other scope of the resource has
// spans.
func (g *scopeGroup) heads() int {
	if g.in.active == 1 {
		return len(g.in.head) + len(g.head)
	}
	return len(g.head)
}

func (r *resourceGroup) size() int {
	size := len(r.head)
	for _, g := range r.scopes {
		if g.n > 0 {
			size += otlpwire.SizeField(len(g.head) + len(g.spans))
		}
	}
	return size
}

func (r *resourceGroup) write(w *otlpwire.Writer) {
	end := w.Len()
	for _, g := range slices.Backward(r.scopes) {
		if g.n == 0 {
			continue
		}
		scopeEnd := w.Len()
		w.Raw(g.spans)
		w.Raw(g.head)
		w.Message(field.ResourceSpansScopeSpans, scopeEnd)
	}
	w.Raw(r.head)
	w.Message(field.RequestResourceSpans, end)
}

// sameResource reports whether two resources have the same attributes and schema URL. Like the
// SDK's exporter, it compares a hash of the attributes. A nil resource differs from an empty
// resource.
func sameResource(a, b *resource.Resource) bool {
	return a == b || a != nil && b != nil && a.Equivalent() == b.Equivalent() && a.SchemaURL() == b.SchemaURL()
}

func sameScope(a, b *instrumentation.Scope) bool {
	return a.Name == b.Name && a.Version == b.Version && a.SchemaURL == b.SchemaURL &&
		a.Attributes.Equivalent() == b.Attributes.Equivalent()
}

// resourceHead returns the fields of a ResourceSpans except its scopes.
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

// scopeHead returns the fields of a ScopeSpans except its spans. Like the SDK's exporter,
// it omits an empty scope.
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
