package sdkspan

import (
	"encoding/binary"
	"slices"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/ended"
	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// isPlain tells whether l has nothing but what most spans have, so that it can be
// encoded by appendPlain.
func isPlain(l *ended.Light) bool {
	return l.More == nil && l.State == nil && l.Start > 0 && l.End > 0 && !l.Like.Odd
}

// Heads of fields, of one byte each.
const (
	headSpan     = field.ScopeSpansSpans<<3 | byte(protowire.BytesType)
	headTraceID  = field.SpanTraceID<<3 | byte(protowire.BytesType)
	headSpanID   = field.SpanSpanID<<3 | byte(protowire.BytesType)
	headParentID = field.SpanParentID<<3 | byte(protowire.BytesType)
	headName     = field.SpanName<<3 | byte(protowire.BytesType)
	headKind     = field.SpanKind<<3 | byte(protowire.VarintType)
	headStart    = field.SpanStart<<3 | byte(protowire.Fixed64Type)
	headEnd      = field.SpanEnd<<3 | byte(protowire.Fixed64Type)
	headStatus   = field.SpanStatus<<3 | byte(protowire.BytesType)
	headCode     = field.StatusCode<<3 | byte(protowire.VarintType)
)

// appendPlain appends what appendSpan writes of l, which is plain: all of it has its
// place and its length, so that it is written forwards, and once.
func appendPlain(dst []byte, l *ended.Light) []byte {
	kind, status, remote := kind(trace.SpanKind(l.Kind)), statusCode(codes.Code(l.Code)), l.Outer != nil && l.Outer.IsRemote()
	n := (2 + len(l.TraceID)) + (2 + len(l.SpanID)) + 2*(1+8) + l.Size() + 2 + (2 + 4)
	if l.ParentID.IsValid() {
		n += 2 + len(l.ParentID)
	}
	name := l.Like.Name
	if name != "" {
		n += sizeField(len(name))
	}
	if kind != 0 {
		n += 2
	}
	if status != 0 {
		n += 2
	}
	dst = slices.Grow(dst, n+1+binary.MaxVarintLen32)
	dst = binary.AppendUvarint(append(dst, headSpan), uint64(n))
	dst = append(append(dst, headTraceID, byte(len(l.TraceID))), l.TraceID[:]...)
	dst = append(append(dst, headSpanID, byte(len(l.SpanID))), l.SpanID[:]...)
	if l.ParentID.IsValid() {
		dst = append(append(dst, headParentID, byte(len(l.ParentID))), l.ParentID[:]...)
	}
	if name != "" {
		dst = append(binary.AppendUvarint(append(dst, headName), uint64(len(name))), name...)
	}
	if kind != 0 {
		dst = append(dst, headKind, byte(kind))
	}
	dst = binary.LittleEndian.AppendUint64(append(dst, headStart), uint64(l.Start))
	dst = binary.LittleEndian.AppendUint64(append(dst, headEnd), uint64(l.End))
	dst = l.AppendTo(dst)
	if status == 0 {
		dst = append(dst, headStatus, 0)
	} else {
		dst = append(dst, headStatus, 2, headCode, byte(status))
	}
	dst = protowire.AppendTag(dst, field.SpanFlags, protowire.Fixed32Type)
	return binary.LittleEndian.AppendUint32(dst, flags(l.Flags, remote))
}
