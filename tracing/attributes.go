package tracing

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// attributes gathers what is set on a span at once. The SDK copies what it is
// given and grows its own list with every call, so that one call per moment
// and a list that is used again save a third of a span's memory.
type attributes struct{ list []attribute.KeyValue }

// mostAttributes is what the largest call needs: a router span's start with
// the stamp of the request.
const mostAttributes = 13

var attributesPool = sync.Pool{New: func() any {
	return &attributes{list: make([]attribute.KeyValue, 0, mostAttributes)}
}}

// newAttributes returns an empty list, which setOn takes back.
func newAttributes() *attributes { return attributesPool.Get().(*attributes) }

func (a *attributes) text(key, value string) {
	a.list = append(a.list, attribute.String(key, value))
}

func (a *attributes) flag(key string, value bool) {
	a.list = append(a.list, attribute.Bool(key, value))
}

func (a *attributes) number(key string, value int) {
	a.list = append(a.list, attribute.Int(key, value))
}

func (a *attributes) decimal(key string, value float64) {
	a.list = append(a.list, attribute.Float64(key, value))
}

// stamp adds the identity of r, which may be nil.
func (a *attributes) stamp(r *Request) {
	if r != nil {
		a.list = append(a.list, r.attributes()...)
	}
}

// setOn sets the attributes on span and gives the list back; a must not be
// used again.
func (a *attributes) setOn(span trace.Span) {
	span.SetAttributes(a.list...)
	clear(a.list) // the pool keeps no strings alive
	a.list = a.list[:0]
	attributesPool.Put(a)
}
