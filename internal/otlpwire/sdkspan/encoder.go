// Package sdkspan encodes the OpenTelemetry SDK's finished spans as an OTLP
// ExportTraceServiceRequest, without intermediate objects.
//
// The life of an Encoder:
//
//  1. Append encodes one span and stores it under its resource and scope. Both are
//     encoded once and kept.
//  2. DropLast removes that span again, for example because it is too long.
//  3. AppendRequest returns the whole request: each resource and scope once, with its
//     spans in the order of the Append calls.
//  4. Reset empties the encoder. Buffers are kept for the next batch.
//
// The result decodes to the same messages that the SDK's OTLP exporter sends, except that
// it keeps three things which the exporter loses: text that is not valid UTF-8 gets
// U+FFFD in place of the bad bytes (the exporter loses the batch); links have their trace
// state; resources that differ only in their schema URL stay apart.
//
// GistOf returns the size and the status of a span, for a queue before the encoder.
//
// The package does not decide which spans are encoded or when a batch is full. It reads
// no OTLP: that is package otlpwire. Open encoder.go first, then span.go.
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

// Encoder collects spans for one ExportTraceServiceRequest. The zero value is ready for
// use. It is not safe for concurrent use. When its buffers have grown and it knows the
// resources and scopes, it allocates only for trace states and for some attributes. These
// are slices, maps and bytes, which the attribute package copies.
type Encoder struct {
	w         otlpwire.Writer // the span that is being encoded
	resources []*resourceGroup
	last      *scopeGroup // the scope of the last Append
	lastSize  int         // size of the last span; 0: DropLast has nothing to remove
	spans     int
	bytes     int // size of the spans, and of the content of their resources and scopes
}

// Append encodes s. It returns the size of the encoded span in bytes, with its field tag
// and length, without resource and scope. It keeps no reference to s.
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

// DropLast removes the span of the last Append. It does nothing if there was no Append
// since Reset or the last DropLast.
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

// Spans returns the number of spans held.
func (e *Encoder) Spans() int { return e.spans }

// Bytes returns Size without the tags and lengths of resources and scopes.
func (e *Encoder) Bytes() int { return e.bytes }

// Size returns the number of bytes that AppendRequest appends: 0 if no span is held. It
// walks over resources and scopes, not over spans.
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
