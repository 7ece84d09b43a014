package tracing

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/servetrace/servetrace/internal/ended"
	"github.com/servetrace/servetrace/semconv"
)

// spanShape is what spans have in common that are started alike in one component:
// the name, and most of the attributes.
type spanShape struct {
	ended.Like
	spanKind

	odd bool // some text of its attributes is not valid UTF-8
}

// spanKind is what a shape is made of.
type spanKind struct {
	family                 *ended.Like // see families
	deployment, app        string
	method, route, modelID string
	rpcMethod              string // full; empty but for gRPC
	protocol               Protocol
	streaming              bool
	naming                 naming
}

// families are what the spans of a provider have in common before they have a shape:
// the name of their family, and where they come from.
type families struct {
	proxyHTTP, proxyWebSocket, proxyGRPC *ended.Like
	router, replica, batch, modelLoad    *ended.Like
}

func newFamilies(o *ended.Origin) families {
	from := ended.Like{Origin: o}
	return families{
		from.Named(semconv.SpanProxyHTTP), from.Named(semconv.SpanProxyWebSocket), from.Named(semconv.SpanProxyGRPC),
		from.Named(semconv.SpanRouter), from.Named(semconv.SpanReplica), from.Named(semconv.SpanBatch), from.Named(semconv.SpanModelLoad),
	}
}

// drawShape adds what spans of a kind begin and end with, inside of c, which may be
// nil, and gives their name.
type drawShape func(start, end *attributes, k spanKind, c *Component) (name string)

// spanShapes keeps the shapes of spans started lately in a component. There are few,
// for they are made of what an application shows, and to put one together costs as much as all
// else that a span's start does. Each has a set for its place, of two, so that those
// of one request do not drive each other out. Where there are many after all, or long
// ones, each is made anew.
type spanShapes [128][2]atomic.Pointer[spanShape]

// longestShape is of what is kept, in bytes: clients of gRPC choose their methods.
const longestShape = 1 << 10

// bytes is the heap that s takes, and text what of it is longer than that of others.
func (s *spanShape) bytes() int { return int(unsafe.Sizeof(*s)) + s.text() }
func (s *spanShape) text() int  { return len(s.Name) + cap(s.Start) + cap(s.End) }

// shape gives the shape of a kind inside of c, which may be nil.
func (p *Provider) shape(c *Component, k *spanKind, draw drawShape) (shape *spanShape, isNew bool) {
	k.naming = p.naming
	if c == nil {
		return p.shapes.of(nil, k, draw)
	}
	return c.shapes.of(c, k, draw)
}

// of gives the shape of a kind inside of in, which draw makes where it is not there.
func (c *spanShapes) of(in *Component, k *spanKind, draw drawShape) (shape *spanShape, isNew bool) {
	hash := mix(mix(mix(uint64(len(k.family.Name)), k.deployment), k.method), k.route)
	set := &c[hash>>32%uint64(len(c))]
	for i := range set {
		if s := set[i].Load(); s != nil && s.spanKind == *k {
			return s, false
		}
	}
	start, end := attributes{naming: k.naming}, attributes{naming: k.naming}
	start.inside(in)
	name := draw(&start, &end, *k, in)
	s := &spanShape{Like: *k.family.Named(name), spanKind: *k, odd: start.odd || end.odd}
	s.Start, s.End = slices.Clip(start.all), slices.Clip(end.all)
	if in != nil {
		s.Task = in.task
	}
	if k.modelID == "" && s.text() <= longestShape { // of models there may be thousands
		set[1].Store(set[0].Swap(s)) // the older one goes
	}
	return s, true
}

// mix adds a text to a hash, of which the upper bits count. For texts as short as
// these it takes half as long as package maphash.
func mix(hash uint64, s string) uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio
	for hash += uint64(len(s)); len(s) > 8; s = s[8:] {
		hash = (hash ^ binary.NativeEndian.Uint64(unsafe.Slice(unsafe.StringData(s), 8))) * odd
		hash ^= hash >> 32
	}
	var last uint64
	for i := range len(s) {
		last = last<<8 | uint64(s[i])
	}
	return (hash ^ last) * odd
}
