// Package sdkspan encodes the OpenTelemetry SDK's finished spans as an OTLP
// ExportTraceServiceRequest, without intermediate objects.
//
// The life of an Encoder:
//
//  1. Append encodes one span and stores it under its resource and scope. A resource and a
//     scope are encoded at their first span, and kept for later batches.
//  2. DropLast removes that span again, for example because it is too long.
//  3. AppendRequest returns the whole request: each resource and scope once, with its
//     spans in the order of the Append calls.
//  4. Reset empties the encoder. Buffers are kept for the next batch.
//
// The result decodes to the same messages that the SDK's OTLP exporter sends, with three
// exceptions. In a text that is not valid UTF-8, U+FFFD replaces the wrong bytes, but the
// exporter would lose the whole batch. Links have their trace state, which the exporter omits.
// Resources that differ only in their schema URL are not merged.
//
// GistOf returns the size of a span in memory and whether it has failed, for the queue in which
// spans wait for the encoder.
//
// The package does not decide which spans are encoded or when a batch is full. Package otlpwire
// reads OTLP. Open encoder.go first, then span.go.
package sdkspan

import (
	"slices"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// Limits of the memory that Reset keeps, in bytes and entries.
const (
	// maxKeptBuffer bounds the size of the kept buffer for the spans of a scope, and of the
	// kept buffer for a single span.
	maxKeptBuffer = 1 << 20
	// maxKeptBuffers bounds the sum of the kept buffers.
	maxKeptBuffers = 4 << 20
	// maxIdleScopes bounds the number of kept scopes that had no spans in the last batch.
	// Programs have some tens of scopes.
	maxIdleScopes = 64
)

// Encoder collects spans for one ExportTraceServiceRequest. The zero value is ready for use. It
// is not safe for concurrent use. After the first batches, it allocates only for trace states
// and for attributes that are slices, maps or bytes, which the attribute package copies.
type Encoder struct {
	w         otlpwire.Writer // the span that is being encoded
	resources []*resourceGroup
	last      *scopeGroup // the scope of the last Append
	lastSize  int         // size of the last span; 0 if DropLast has nothing to remove
	spans     int         // number of spans
	bytes     int         // size of the spans, and of the content of their resources and scopes
}

// Append encodes s and adds it to the request. It returns the size of the encoded span in bytes,
// with its tag and length, but without its resource and scope. It keeps no reference to s.
func (e *Encoder) Append(s sdktrace.ReadOnlySpan) int {
	e.w.Reset(maxKeptBuffer)
	appendSpan(&e.w, s)
	scope := s.InstrumentationScope()
	g := e.group(s.Resource(), &scope)
	if g.n == 0 {
		g.in.active++
		e.bytes += g.heads()
	}
	e.last, e.lastSize = g, e.w.Len()
	g.spans = append(g.spans, e.w.Bytes()...)
	g.n++
	e.spans++
	e.bytes += e.lastSize
	return e.lastSize
}

// DropLast removes the span that Append has added last. It does nothing if Append was not called
// since the last call of Reset or DropLast.
func (e *Encoder) DropLast() {
	if e.lastSize == 0 {
		return
	}
	g := e.last
	g.spans = g.spans[:len(g.spans)-e.lastSize]
	g.n--
	e.spans--
	e.bytes -= e.lastSize
	if g.n == 0 {
		e.bytes -= g.heads()
		g.in.active--
	}
	e.lastSize = 0
}

// Spans returns the number of spans in the request.
func (e *Encoder) Spans() int { return e.spans }

// Bytes returns the size of the request in bytes without the tags and lengths of resources and
// scopes. Unlike Size, it needs no walk.
func (e *Encoder) Bytes() int { return e.bytes }

// Size returns the number of bytes that AppendRequest appends. It is 0 if there is no span. Its
// cost depends on the number of resources and scopes, but not on the number of spans.
func (e *Encoder) Size() int {
	size := 0
	for _, r := range e.resources {
		if r.active > 0 {
			size += otlpwire.SizeField(r.size())
		}
	}
	return size
}

// AppendRequest appends the request to dst and returns the longer slice. The encoder is
// unchanged.
func (e *Encoder) AppendRequest(dst []byte) []byte {
	start, size := len(dst), e.Size()
	dst = slices.Grow(dst, size)[:start+size]
	w := otlpwire.NewWriter(dst[start:])
	for _, r := range slices.Backward(e.resources) {
		if r.active > 0 {
			r.write(w)
		}
	}
	return dst
}

// Reset removes all spans. Buffers are kept for the next batch, except buffers of more
// than 1 MiB, or all buffers if they exceed 4 MiB together.
func (e *Encoder) Reset() {
	e.spans, e.bytes, e.lastSize = 0, 0, 0
	scopes, buffers := 0, 0
	for _, r := range e.resources {
		for _, g := range r.scopes {
			scopes++
			if cap(g.spans) > maxKeptBuffer {
				g.spans = nil
			}
			buffers += cap(g.spans)
		}
	}
	if scopes > maxIdleScopes {
		e.forgetIdle()
	}
	for _, r := range e.resources {
		r.active = 0
		for _, g := range r.scopes {
			g.n = 0
			g.spans = g.spans[:0]
			if buffers > maxKeptBuffers {
				g.spans = nil
			}
		}
	}
}
