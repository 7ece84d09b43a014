package tracing

import (
	"hash/maphash"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/servetrace/servetrace/internal/ended"
)

// spanShape is what spans have in common that are started alike: the name, and most
// of the attributes.
type spanShape struct {
	spanKind

	name string
	all  ended.Attributes
	odd  bool // some text of all is not valid UTF-8
}

// spanKind is what a shape is made of.
type spanKind struct {
	family, deployment, app string
	method, route, modelID  string
	protocol                Protocol
	streaming               bool
}

// spanShapes keeps the shapes of spans started lately. There are few, for they are
// made of what an application shows, and to put one together costs as much as all
// else that a span's start does. Each has a set for its place, of two, so that those
// of one request do not drive each other out. Where there are many after all, or long
// ones, each is made anew.
type spanShapes [128][2]atomic.Pointer[spanShape]

// longestShape is of what is kept, in bytes: clients of gRPC choose their methods.
const longestShape = 1 << 10

var spanShapesSeed = maphash.MakeSeed()

// bytes is the heap that s takes.
func (s *spanShape) bytes() int { return int(unsafe.Sizeof(*s)) + len(s.name) + cap(s.all) }

// of gives the shape of a kind, which draw makes where it is not there: it adds the
// attributes, and gives the name.
func (c *spanShapes) of(n naming, k spanKind, draw func(a *attributes, k spanKind) (name string)) (shape *spanShape, isNew bool) {
	sum := maphash.String(spanShapesSeed, k.deployment) + 3*maphash.String(spanShapesSeed, k.method) +
		5*maphash.String(spanShapesSeed, k.route) + uint64(len(k.family))
	set := &c[sum%uint64(len(c))]
	for i := range set {
		if s := set[i].Load(); s != nil && s.spanKind == k {
			return s, false
		}
	}
	a := attributes{naming: n}
	name := draw(&a, k)
	s := &spanShape{spanKind: k, name: name, all: slices.Clip(a.all), odd: a.odd}
	if k.modelID == "" && len(name)+len(s.all) <= longestShape { // of models there may be thousands
		set[1].Store(set[0].Swap(s)) // the older one goes
	}
	return s, true
}
