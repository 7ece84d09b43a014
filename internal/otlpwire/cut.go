package otlpwire

import (
	"math"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Cut returns a request with the spans of req from index skip on, at most maxSpans spans.
// They are nearly as many as fit into maxBytes bytes, but at least one if there is one. A
// limit of zero means no limit. spans is the number of returned spans; the caller adds it
// to skip for the next piece. Each piece repeats the resource and the scope of its spans
// and owns its memory. The spans keep their order. ResourceSpans and ScopeSpans without
// spans are left out. Unknown fields of the request are in the first piece. Each call
// parses req; malformed bytes are an error.
func Cut(req []byte, skip, maxSpans, maxBytes int) (piece []byte, spans int, err error) {
	r, err := Parse(req)
	if err != nil {
		return nil, 0, err
	}
	defer r.Release()
	var unknown []byte
	if skip == 0 {
		unknown = r.without(part{req, 0}, func(c cursor) bool { return c.is(field.RequestResourceSpans) })
	}
	if maxBytes <= 0 {
		maxBytes = math.MaxInt
	}
	skip = min(skip, len(r.entries[ofSpan]))
	end := r.pieceEnd(skip, maxSpans, maxBytes-len(unknown))
	var w Writer
	r.writePiece(&w, skip, end)
	w.Raw(unknown)
	return w.Bytes(), end - skip, nil
}

// writePiece writes the spans from index start up to index end-1, and the resources and
// scopes of these spans.
func (r *Request) writePiece(w *Writer, start, end int) {
	scopeEnd, resourceEnd := 0, 0
	for i := end - 1; i >= start; i-- {
		w.Content(field.ScopeSpansSpans, r.entryPart(owner{kind: ofSpan, i: int32(i)}).raw)
		scope, resource := r.holders(i)
		before, resourceBefore := int32(-1), int32(-1)
		if i > start {
			before, resourceBefore = r.holders(i - 1)
		}
		if before == scope {
			continue
		}
		w.Raw(r.head(owner{kind: ofScope, i: scope}))
		w.Message(field.ResourceSpansScopeSpans, scopeEnd)
		if resourceBefore != resource {
			w.Raw(r.head(owner{kind: ofResource, i: resource}))
			w.Message(field.RequestResourceSpans, resourceEnd)
			resourceEnd = w.Len()
		}
		scopeEnd = w.Len()
	}
}

// holders returns the indexes of the ScopeSpans and the ResourceSpans of span i.
func (r *Request) holders(i int) (scope, resource int32) {
	scope = r.entries[ofSpan][i].parent
	return scope, r.entries[ofScope][scope].parent
}

// head returns the content of a ResourceSpans without its ScopeSpans, or of a
// ScopeSpans without its spans.
func (r *Request) head(o owner) []byte {
	return r.without(r.entryPart(o), func(c cursor) bool { return c.is(forms[o.kind+1].field) })
}

// pieceHead bounds the bytes of the tag and the length of a ResourceSpans or ScopeSpans.
const pieceHead = 6

// pieceEnd returns the end of the piece that begins with span start, within the limits. It
// counts pieceHead bytes for each head, so the piece may be some bytes smaller than the
// limit.
func (r *Request) pieceEnd(start, maxSpans, maxBytes int) int {
	size, lastScope, lastResource := 0, int32(-1), int32(-1)
	for i := start; i < len(r.entries[ofSpan]); i++ {
		scope, resource := r.holders(i)
		if resource != lastResource {
			size += pieceHead + len(r.head(owner{kind: ofResource, i: resource}))
		}
		if scope != lastScope {
			size += pieceHead + len(r.head(owner{kind: ofScope, i: scope}))
		}
		lastScope, lastResource = scope, resource
		span := &r.entries[ofSpan][i]
		size += SizeField(int(span.end - span.start))
		if i > start && (size > maxBytes || maxSpans > 0 && i-start >= maxSpans) {
			return i
		}
	}
	return len(r.entries[ofSpan])
}
