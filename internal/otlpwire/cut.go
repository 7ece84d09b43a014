package otlpwire

import (
	"math"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Cut returns a piece of req, which is a request with the spans of req from index skip on.
// The piece has at most maxSpans spans and at most maxBytes bytes, but at least one span if
// req has one at skip. A limit of zero means no limit. The result spans is the number of
// spans in the piece. The caller adds this number to skip for the next piece. Each piece
// repeats the resource and the scope of its spans, and does not refer to req. The spans keep
// their order. Empty ResourceSpans and ScopeSpans are left out. Only the first piece has the
// unknown fields of the request. Cut parses req in each call, and returns an error for
// malformed bytes.
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

// writePiece writes the spans from index start to index end-1, with their resources and scopes.
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

// pieceHead is the largest size of the tag and the length of a ResourceSpans or a ScopeSpans, in
// bytes.
const pieceHead = 6

// pieceEnd returns the index after the last span of the piece that begins with span start. It
// counts pieceHead bytes for each tag and length of a ResourceSpans or a ScopeSpans, so the piece
// may be some bytes smaller than maxBytes.
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
