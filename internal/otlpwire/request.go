package otlpwire

import (
	"fmt"
	"iter"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/attribute"
)

// Request is a view over the bytes of one ExportTraceServiceRequest, and the
// edits recorded on it. Parse makes one. Not safe for concurrent use, not even
// for reading. Span, Resource, Scope, Event, Link and Value are small views
// into it, to be passed by value; Span, Resource and Scope can be compared and
// used as keys of a map: equal means the same entry of the same request.
type Request struct {
	raw       []byte
	resources []resourceEntry
	scopes    []scopeEntry
	spans     []spanEntry
	dropped   int // spans

	*storage
	reading  reading    // see offset
	finger   int32      // the childEdit that was looked at last, see seek
	messages [2]message // of a resource and of a scope, see remembered

	names map[string]string // see intern
	err   error
}

// storage is what edits and searches need. It serves one request after another:
// it is a third of what an edited batch would leave to the garbage collector.
type storage struct {
	edits     []edit     // an entry's edit field is 1 + an index
	attrEdits []attrEdit // likewise, and each names the next
	indexes   []map[string]int32
	children  []childEdit // likewise
	encoded   []byte      // what is set or added; never overwritten, for edits refer to it
	directory directory   // of the message whose attributes were asked for last
	writer    Writer      // encodes what is set or added

	scratch attribute.KeyValue // see encode
	// What encode wrote last that was a text; lastEnd is 0 where there is none.
	lastKey            attribute.Key
	lastText           string
	lastStart, lastEnd int32
}

var storages = sync.Pool{New: func() any { return new(storage) }}

// Release ends the use of the Request's edits, whose memory is for another
// Request then. What was read from it stays. Of one that was edited nothing else
// does: who reads on finds its spans empty, and not what edits have taken out.
func (r *Request) Release() {
	if r.Edited() {
		clear(r.resources)
		clear(r.scopes)
		clear(r.spans)
		*r = Request{resources: r.resources, scopes: r.scopes, spans: r.spans, dropped: len(r.spans), storage: r.storage}
	}
	s := r.storage
	r.storage = new(storage)
	s.edits, s.attrEdits, s.children = emptied(s.edits), emptied(s.attrEdits), emptied(s.children)
	s.encoded = emptied(s.encoded)
	s.lastKey, s.lastText, s.lastStart, s.lastEnd = "", "", 0, 0
	s.indexes = nil
	s.directory = directory{places: emptied(s.directory.places)}
	storages.Put(s)
}

// emptied is a list for use again, and nil in place of a very long one.
func emptied[T any](list []T) []T {
	const most = 2 << 20 // bytes
	if cap(list) > most/int(reflect.TypeFor[T]().Size()) {
		return nil
	}
	clear(list)
	return list[:0]
}

// A resourceEntry is one ResourceSpans. Entries stand in the order of the
// bytes, so that a walk over the bytes meets them by counting.
type resourceEntry struct {
	start, end int32 // of the message's content in raw
	spans      int32 // all spans in it
	alive      int32 // those that are not dropped
	edit       int32
	touched    bool // it, or something in it, is edited
}

type scopeEntry struct {
	start, end int32
	resource   int32
	spans      int32
	alive      int32
	edit       int32
	touched    bool
}

type spanEntry struct {
	start, end int32
	scope      int32
	edit       int32
}

// maxRequest is the longest request that Parse takes: offsets are kept in 32
// bits. gRPC's own limit of 64 MiB stands far below.
const maxRequest = 1<<31 - 1

// Parse notes where the spans of req lie. The Request and all that is read
// from it refer to req, which must not change while they are in use. Malformed
// bytes in the three outer levels give an error that names the offset; those
// inside a span, a resource or a scope are found when that is read, see Err.
// Its allocations are a fixed number, 24 bytes of index a span.
func Parse(req []byte) (*Request, error) {
	if len(req) > maxRequest {
		return nil, fmt.Errorf("request of %d bytes: at most %d are read", len(req), maxRequest)
	}
	var n tally
	if err := walk(req, &n); err != nil {
		return nil, err
	}
	r := &Request{
		raw:       req,
		storage:   storages.Get().(*storage),
		resources: make([]resourceEntry, 0, n.resources),
		scopes:    make([]scopeEntry, 0, n.scopes),
		spans:     make([]spanEntry, 0, n.spans),
	}
	if err := walk(req, (*index)(r)); err != nil {
		return nil, err
	}
	return r, nil
}

// message is the content of an entry's message, perhaps merged.
type message struct {
	known int // 1 + index of the entry, 0: none is known
	part  part
}

// index fills a Request's entries while its bytes are walked.
type index Request

func (x *index) resource(p part) {
	start, end := p.bounds()
	x.resources = append(x.resources, resourceEntry{start: start, end: end})
}

func (x *index) scope(p part) {
	start, end := p.bounds()
	x.scopes = append(x.scopes, scopeEntry{start: start, end: end, resource: int32(len(x.resources) - 1)})
}

func (x *index) span(p part) {
	start, end := p.bounds()
	scope := int32(len(x.scopes) - 1)
	x.spans = append(x.spans, spanEntry{start: start, end: end, scope: scope})
	sc := &x.scopes[scope]
	sc.spans++
	sc.alive++
	res := &x.resources[sc.resource]
	res.spans++
	res.alive++
}

// bounds are the offsets of a part of a request that maxRequest allows.
func (p part) bounds() (start, end int32) {
	return int32(p.base), int32(p.base + len(p.raw))
}

// Len is the number of spans that are not dropped.
func (r *Request) Len() int { return len(r.spans) - r.dropped }

// Spans goes through the spans that are not dropped, in the order of the
// bytes. Edits are allowed meanwhile, to any span.
func (r *Request) Spans() iter.Seq[Span] {
	return func(yield func(Span) bool) {
		for i := range r.spans {
			if s := (Span{r, i}); !s.Dropped() && !yield(s) {
				return
			}
		}
	}
}

// Span is the i-th span of the bytes, dropped ones counted.
func (r *Request) Span(i int) Span { return Span{r, i} }

// Resources goes through the resources in the order of the bytes, one for each
// ResourceSpans. After a merge the same resource may come several times.
func (r *Request) Resources() iter.Seq[Resource] {
	return func(yield func(Resource) bool) {
		for i := range r.resources {
			if !yield(Resource{r, i}) {
				return
			}
		}
	}
}

// Scopes goes through the scopes in the order of the bytes, one for each
// ScopeSpans.
func (r *Request) Scopes() iter.Seq[Scope] {
	return func(yield func(Scope) bool) {
		for i := range r.scopes {
			if !yield(Scope{r, i}) {
				return
			}
		}
	}
}

// Edited tells whether any edit was recorded.
func (r *Request) Edited() bool { return len(r.edits) > 0 }

// Err is the first fault that reading or writing met inside a span, a resource
// or a scope, with its offset; nil if none so far. The read that met it saw
// what lies before the fault. It is final: the bytes do not get better.
func (r *Request) Err() error { return r.err }

// note keeps the first fault.
func (r *Request) note(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *Request) part(start, end int32) part {
	return part{r.raw[start:end:end], int(start)}
}

// Bounds of the interned names: more or longer ones are copied each time.
const (
	maxNames      = 256
	maxNameLength = 64
)

// intern gives b as a string, for keys and names, of which a request has few
// that come often: each is allocated once.
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
