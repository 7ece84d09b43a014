package otlpwire

import (
	"fmt"
	"iter"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Request gives access to the bytes of one ExportTraceServiceRequest, and records edits of it.
// Parse makes a Request. It is not safe for concurrent use, not even for reading. Span,
// Resource, Scope, Event and Link are views: small values that refer to a message in the
// Request. Two views are equal (==) if they refer to the same message.
type Request struct {
	raw      []byte
	entries  [ofEvent][]entry // entries of resources, scopes and spans, in the order of the bytes
	dropped  int              // number of dropped spans
	released bool             // Release was called after an edit; all spans then count as dropped

	*storage
	merged [ofSpan]mergedMessage // the resource and the scope that were read last

	names map[string]string // interned strings
	err   error
}

// storage is the memory of the edits and searches of a Request. It comes from a pool, because it
// would otherwise be a third of the garbage of an edited batch.
type storage struct {
	edits      []edit
	attrEdits  []attrEdit
	childEdits map[int32]int32 // 1 + index in edits, by the field owner.at of an event or a link
	added      []addedChild
	encoded    []byte         // encoded attributes, events and links that edits set or added; it only grows
	attrIndex  attributeIndex // index of the message in which an attribute was searched last
	writer     Writer
	scratch    attribute.KeyValue // attribute that the writer encodes
	kept       []keptRange        // memory for the next patch
	inserts    []byte             // memory for the next patch
}

var storages = sync.Pool{New: func() any { return new(storage) }}

// Release returns the memory of the edits to a pool. Results of earlier reads stay valid. If the
// request was edited, later reads find empty spans: without the edits, they would return text
// that an edit has removed.
func (r *Request) Release() {
	if r.Edited() {
		for _, list := range r.entries {
			clear(list)
		}
		*r = Request{entries: r.entries, dropped: len(r.entries[ofSpan]), released: true, storage: r.storage}
	}
	s := r.storage
	r.storage = new(storage)
	s.edits, s.attrEdits, s.added = emptied(s.edits), emptied(s.attrEdits), emptied(s.added)
	s.encoded, s.inserts, s.kept = emptied(s.encoded), emptied(s.inserts), emptied(s.kept)
	s.childEdits = nil
	s.attrIndex = attributeIndex{places: emptied(s.attrIndex.places)}
	storages.Put(s)
}

// emptied clears a list and returns it with length 0, to use its memory again. It returns nil if
// the memory is larger than 2 MiB.
func emptied[T any](list []T) []T {
	const most = 2 << 20 // limit in bytes
	if cap(list) > most/int(reflect.TypeFor[T]().Size()) {
		return nil
	}
	clear(list)
	return list[:0]
}

// kind is the type of a message of which there are views.
type kind uint8

const (
	ofResource kind = iota // also the kind of a ResourceSpans, which contains the resource
	ofScope                // also the kind of a ScopeSpans, which contains the scope
	ofSpan
	ofEvent
	ofLink
)

// forms lists field numbers for each kind of message. field is the number of the field that
// holds the message. For a resource or a scope, it is the number of the field that holds its
// ResourceSpans or ScopeSpans. attributes, dropped and name are the numbers of fields in the
// message, or 0 if the kind has no such field. dropped counts dropped attributes.
var forms = [...]struct{ field, attributes, dropped, name uint32 }{
	ofResource: {field.RequestResourceSpans, field.ResourceAttributes, field.ResourceDroppedAttributes, 0},
	ofScope:    {field.ResourceSpansScopeSpans, field.ScopeAttributes, field.ScopeDroppedAttributes, field.ScopeName},
	ofSpan:     {field.ScopeSpansSpans, field.SpanAttributes, field.SpanDroppedAttributes, field.SpanName},
	ofEvent:    {field.SpanEvents, field.EventAttributes, field.EventDroppedAttributes, field.EventName},
	ofLink:     {field.SpanLinks, field.LinkAttributes, field.LinkDroppedAttributes, 0},
}

// An entry is a ResourceSpans, a ScopeSpans or a Span.
type entry struct {
	start, end int32 // range of the content in raw
	parent     int32 // index of the entry that contains this entry
	first      int32 // index of the first entry that this entry contains
	dropped    int32 // number of dropped spans in this entry; 1 for a dropped span
	edit       int32 // 1 + index in edits; 0 if there is none
	touched    bool  // this entry, or a message inside it, was edited
}

// maxRequest is the size in bytes of the largest request that Parse accepts, because offsets
// have 32 bits. Requests by gRPC are smaller, because they have at most 64 MiB.
const maxRequest = 1<<31 - 1

// Parse finds the spans of req. The Request, and bytes that are read from it, refer to req,
// which must not change while they are used. Parse returns an error, with the offset, for
// malformed bytes outside of spans, resources and scopes. A fault inside a span, a resource or a
// scope is found when this message is read, see Err. The number of allocations does not depend
// on the request.
func Parse(req []byte) (*Request, error) {
	if len(req) > maxRequest {
		return nil, fmt.Errorf("request of %d bytes: at most %d are read", len(req), maxRequest)
	}
	var counts [ofEvent]int
	if err := walk(part{req, 0}, ofResource, func(k kind, _ part) { counts[k]++ }); err != nil {
		return nil, err
	}
	r := &Request{raw: req, storage: storages.Get().(*storage)}
	for k, n := range counts {
		r.entries[k] = make([]entry, 0, n)
	}
	return r, walk(part{req, 0}, ofResource, r.index) // cannot fail: the same walk succeeded before
}

// index adds an entry for the message p, which is of kind k.
func (r *Request) index(k kind, p part) {
	e := entry{start: int32(p.base), end: int32(p.base + len(p.raw))}
	if k > ofResource {
		e.parent = int32(len(r.entries[k-1]) - 1)
	}
	if k < ofSpan {
		e.first = int32(len(r.entries[k+1]))
	}
	r.entries[k] = append(r.entries[k], e)
}

// firstSpan returns the index of the first span inside the i-th entry of kind k. If the entry has
// no span, it returns the index of the next span after the entry.
func (r *Request) firstSpan(k kind, i int32) int {
	for ; k < ofSpan; k++ {
		if int(i) == len(r.entries[k]) {
			return len(r.entries[ofSpan])
		}
		i = r.entries[k][i].first
	}
	return int(i)
}

// isEmptied reports whether the entry o has spans, and all of them are dropped.
func (r *Request) isEmptied(o owner) bool {
	n := r.entries[o.kind][o.i].dropped
	return n > 0 && int(n) == r.firstSpan(o.kind, o.i+1)-r.firstSpan(o.kind, o.i)
}

// Len returns the number of spans that are not dropped.
func (r *Request) Len() int { return len(r.entries[ofSpan]) - r.dropped }

// Spans returns the spans that are not dropped, in the order of the request. Each span may be
// edited or dropped during the iteration.
func (r *Request) Spans() iter.Seq[Span] {
	return func(yield func(Span) bool) {
		for i := range r.entries[ofSpan] {
			if s := r.Span(i); !s.Dropped() && !yield(s) {
				return
			}
		}
	}
}

// Span returns the i-th span of the request. Dropped spans count, too.
func (r *Request) Span(i int) Span { return Span{View{r, owner{kind: ofSpan, i: int32(i)}}} }

// Resources returns the resource of each ResourceSpans, in the order of the request.
// If several requests were merged into one, a resource may occur several times.
func (r *Request) Resources() iter.Seq[Resource] {
	return func(yield func(Resource) bool) {
		for i := range r.entries[ofResource] {
			if !yield(Resource{View{r, owner{kind: ofResource, i: int32(i)}}}) {
				return
			}
		}
	}
}

// Scopes returns the scope of each ScopeSpans, in the order of the request.
func (r *Request) Scopes() iter.Seq[Scope] {
	return func(yield func(Scope) bool) {
		for i := range r.entries[ofScope] {
			if !yield(Scope{View{r, owner{kind: ofScope, i: int32(i)}}}) {
				return
			}
		}
	}
}

// Edited reports whether an edit was recorded.
func (r *Request) Edited() bool { return len(r.edits) > 0 }

// Err returns the first fault that a read or a write has found inside a span, a resource or a
// scope, with its offset. It returns nil if none was found so far. A read that finds a fault
// returns the fields before the fault.
func (r *Request) Err() error { return r.err }

// note records err for Err, unless an earlier fault is recorded. err may be nil.
func (r *Request) note(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Bounds of the interned strings: their number, and the length of each in bytes. intern copies
// any further or longer string in each call.
const (
	maxNames      = 256
	maxNameLength = 64
)

// intern returns b as a string. A request has few keys and names, so each of them is
// allocated once.
func (r *Request) intern(b []byte) string {
	if s, ok := r.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(b) > maxNameLength || len(r.names) >= maxNames {
		return s
	}
	if r.names == nil {
		r.names = make(map[string]string)
	}
	r.names[s] = s
	return s
}
