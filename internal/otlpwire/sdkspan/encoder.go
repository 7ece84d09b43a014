// Package sdkspan turns the OpenTelemetry SDK's finished spans straight into
// the bytes of an OTLP ExportTraceServiceRequest, without the objects between.
//
// The life of an Encoder:
//
//  1. Append encodes one span and files it under its resource and scope, whose
//     own encoding is made once and kept.
//  2. DropLast takes that span back, if it turned out too long.
//  3. AppendRequest gives the whole request: each resource and scope once, with
//     its spans in the order in which they were appended.
//  4. Reset empties the encoder, which keeps buffers for the next batch.
//
// What comes out decodes to what the SDK's own OTLP exporter sends, with three
// differences, each of which keeps what that one loses: text that is not valid
// UTF-8 gets U+FFFD in place of the bad bytes (the SDK's exporter loses the
// whole batch); a link has its trace state; and resources that differ only in
// their schema URL stay apart.
//
// GistOf says of a span what a queue in front of the encoder wants to know.
//
// It does not decide which spans to encode or when a batch is full, and it
// reads no bytes: that is package otlpwire. Open encoder.go first, then span.go.
package sdkspan

import (
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// What Reset keeps, in bytes and entries.
const (
	// maxKeptBuffer bounds the buffer of one scope's spans and that of one span.
	maxKeptBuffer = 1 << 20
	// maxKeptBuffers bounds all of them together.
	maxKeptBuffers = 4 << 20
	// maxIdleScopes bounds the scopes that are remembered although the last
	// batch had no span of theirs. Programs have some tens of scopes.
	maxIdleScopes = 64
)

// Encoder accumulates spans as one ExportTraceServiceRequest. The zero value is
// ready for use. Not safe for concurrent use. In steady state (buffers grown,
// resources and scopes seen before) it allocates for attributes that are slices,
// maps or bytes, which the attribute package copies, and for nothing else.
type Encoder struct {
	w         otlpwire.Writer // the span that is being encoded
	resources []*resourceGroup
	last      *scopeGroup // that of the last Append
	lastSize  int         // what the last Append added; 0: nothing to take back
	spans     int
	bytes     int // of spans, and of the resources and scopes around them
}

// Append encodes s at once, so that s is not referred to afterwards, and gives
// the length of its own encoding, in bytes, with its field tag and length but
// without resource and scope.
func (e *Encoder) Append(s sdktrace.ReadOnlySpan) int {
	e.w.Reset(maxKeptBuffer)
	appendSpan(&e.w, s)
	scope := s.InstrumentationScope()
	g := e.group(s.Resource(), &scope)
	if g.n == 0 {
		e.bytes += g.begin()
	}
	e.last, e.lastSize = g, e.w.Len()
	g.spans = append(g.spans, e.w.Bytes()...)
	g.n++
	e.spans++
	e.bytes += e.lastSize
	return e.lastSize
}

// DropLast takes back the span that the last Append added. It does nothing if
// nothing was appended since Reset or the last DropLast.
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
		e.bytes -= g.end()
	}
	e.lastSize = 0
}

// Spans is the number of spans held.
func (e *Encoder) Spans() int { return e.spans }

// Bytes is what Size is but for some bytes a scope, and looks at nothing.
func (e *Encoder) Bytes() int { return e.bytes }

// Size is the exact number of bytes that AppendRequest would append: 0 if no
// span is held. It looks at each resource and scope, not at spans.
func (e *Encoder) Size() int {
	size := 0
	for _, r := range e.resources {
		if n := r.size(); n > 0 {
			size += sizeField(n)
		}
	}
	return size
}

// AppendRequest appends the request to dst and gives the longer slice. The
// encoder is unchanged.
func (e *Encoder) AppendRequest(dst []byte) []byte {
	for _, r := range e.resources {
		n := r.size()
		if n == 0 {
			continue
		}
		dst = r.appendHead(dst, n)
		for _, g := range r.scopes {
			if g.n == 0 {
				continue
			}
			dst = append(g.appendHead(dst), g.spans...)
		}
	}
	return dst
}

// Reset drops all spans. Buffers are kept for the next batch, but those that
// grew past 1 MiB, or past 4 MiB together, are left to the collector.
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
		r.begun = 0
		for _, g := range r.scopes {
			g.n = 0
			g.spans = g.spans[:0]
			if buffers > maxKeptBuffers {
				g.spans = nil
			}
		}
	}
}
