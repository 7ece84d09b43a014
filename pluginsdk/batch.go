package pluginsdk

import (
	"fmt"
	"iter"
	"strings"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
)

// Batch is a list of finished spans, encoded as one ExportTraceServiceRequest of OTLP.
// The spans have the order in which the host encoded them. A Batch decodes only the
// fields that are read, so an exporter that forwards Bytes costs next to nothing. A Batch
// is not safe for concurrent use. It may be used until the call of Export or Process that
// got it returns. Slices and strings that were read from it may be kept.
//
// A malformed batch has no spans, or spans without the malformed fields. If a read found
// malformed bytes, the SDK answers the host with a final error, even if the plugin
// returned nil.
type Batch struct {
	id      string
	attempt int
	raw     []byte // the bytes that arrived, or the bytes that Replace has set
	// replaced reports that Replace has set raw.
	replaced bool
	// request is the parsed batch. It is nil before the first read of a span. If raw is
	// malformed, request stays nil and fault is set.
	request *otlpwire.Request
	fault   error
	// filtered holds the sums of CountFiltered by name. Nil if CountFiltered was not called.
	filtered map[string]int
}

// NewBatch returns a batch with the spans of an encoded ExportTraceServiceRequest, or of
// an encoded TracesData, which has the same form. It is for tests of processors and
// exporters. encoded must not change afterwards.
func NewBatch(encoded []byte) *Batch { return &Batch{attempt: 1, raw: encoded} }

// ID returns the batch's id. It is the same whenever the host sends the batch again, and
// no other batch of any host has it. It is empty if the sender is not a servetrace host.
func (b *Batch) ID() string { return b.id }

// CountFiltered records that an exporter omits some spans on purpose, for example because
// a back end's library samples. The host counts these spans as filtered under name, and
// not as delivered. name has the form of [Named]. A number below 1 or an invalid name is
// ignored. The numbers take effect only if Export returns nil or [Partial]. An exporter
// inside of [Tee] cannot use it.
func (b *Batch) CountFiltered(name string, spans int) {
	if spans <= 0 || name == "" || strings.ContainsFunc(name, notInName) {
		return
	}
	if b.filtered == nil {
		b.filtered = map[string]int{}
	}
	b.filtered[name] += spans
}

// Attempt returns how many times the host has sent the batch, counted from 1. If it is
// above 1, spans of the batch may already have been delivered.
func (b *Batch) Attempt() int { return b.attempt }

// Len returns the number of spans in the batch. Dropped spans do not count.
func (b *Batch) Len() int {
	if b.request != nil {
		return b.request.Len()
	}
	n, err := otlpwire.CountSpans(b.raw)
	if err != nil {
		b.fault = err
		return 0
	}
	return n
}

// Bytes returns the encoded batch with the edits applied. The result may be kept, but
// must not be changed. If the batch has no edits, it is the received slice. Otherwise
// each call of Bytes encodes the batch again. The result is empty if every span was
// dropped.
func (b *Batch) Bytes() []byte {
	if b.request == nil || !b.request.Edited() {
		return b.raw
	}
	return b.AppendTo(nil)
}

// Replace replaces all spans and edits of the batch by encoded, an encoded
// ExportTraceServiceRequest. It is for a [Processor] that wraps a library for whole
// batches. Edits of single spans are cheaper. Later processors may edit the new spans.
// Replace returns an error if encoded is malformed or has more spans than the batch. The
// batch is then unchanged, and the error is final. Spans that were read before must not
// be used afterwards. encoded must not change afterwards.
func (b *Batch) Replace(encoded []byte) error {
	request, err := otlpwire.Parse(encoded)
	if err != nil {
		return Permanent(fmt.Errorf("replace batch: %w", err))
	}
	if before := b.Len(); request.Len() > before {
		request.Release()
		return Permanent(fmt.Errorf("replace batch: %d spans in place of %d: a processor may drop spans and must not add any", request.Len(), before))
	}
	if b.request != nil {
		b.request.Release()
	}
	b.raw, b.replaced, b.request = encoded, true, request
	return nil
}

// AppendTo appends the encoded batch, with the edits applied, to dst and returns the
// extended slice. If an exporter reuses dst, an edited batch costs no allocation. dst
// must not share memory with a result of Bytes.
func (b *Batch) AppendTo(dst []byte) []byte {
	if b.request == nil {
		return append(dst, b.raw...)
	}
	return b.request.AppendTo(dst)
}

// Edited reports whether a processor has changed the batch or dropped spans. If it
// returns false, Bytes returns the received slice.
func (b *Batch) Edited() bool { return b.replaced || b.request != nil && b.request.Edited() }

// Spans returns the spans in order, without dropped spans. Any span may be edited during
// the iteration.
func (b *Batch) Spans() iter.Seq[Span] {
	return eachOf(b, (*otlpwire.Request).Spans, func(raw otlpwire.Span) Span { return Span{message{raw.View}} })
}

// Resources returns the resources of the batch in order. Two of them may have the same
// content.
func (b *Batch) Resources() iter.Seq[Resource] {
	return eachOf(b, (*otlpwire.Request).Resources, func(raw otlpwire.Resource) Resource { return Resource{message{raw.View}} })
}

// Scopes returns the instrumentation scopes of the batch in order. Two of them may have
// the same content.
func (b *Batch) Scopes() iter.Seq[Scope] {
	return eachOf(b, (*otlpwire.Request).Scopes, func(raw otlpwire.Scope) Scope { return Scope{message{raw.View}} })
}

// eachOf returns the spans, resources or scopes of a batch: the messages that all
// returns, converted by convert. The iteration parses the batch first, and is empty if it
// is malformed.
func eachOf[Raw, V any](b *Batch, all func(*otlpwire.Request) iter.Seq[Raw], convert func(Raw) V) iter.Seq[V] {
	return func(yield func(V) bool) {
		if b.parse() {
			views(all(b.request), convert)(yield)
		}
	}
}

// Decode returns the batch, with the edits applied, as OTLP's generated messages, which
// an otlptrace.Client takes. The caller owns the messages. Each call decodes the whole
// batch again, which costs much more than reading single fields of its spans. If the
// batch is malformed, Decode returns a final error.
func (b *Batch) Decode() ([]*tracepb.ResourceSpans, error) {
	// TracesData has the same encoding as ExportTraceServiceRequest, but the package of
	// ExportTraceServiceRequest would link an HTTP gateway into every plugin.
	var data tracepb.TracesData
	if err := proto.Unmarshal(b.Bytes(), &data); err != nil {
		b.fault = fmt.Errorf("decode batch: %w", err)
		return nil, b.malformed()
	}
	return data.GetResourceSpans(), nil
}

// Undecoded returns the batch, with the edits applied, as OTLP's generated messages, but
// does not decode it. It is for an otlptrace.Client that only encodes and sends, such as
// the clients of otlptracehttp and otlptracegrpc. Each message holds its encoded bytes as
// unknown fields, so proto.Marshal writes them unchanged, but getters return zero values.
// For a client that reads fields, for example to write JSON, use [Batch.Decode].
//
// The result has a message for each ResourceSpans of the batch, in order. It is empty if
// every span was dropped. It shares memory with the batch: it may be kept, but must not
// be changed. If the batch is malformed, Undecoded returns a final error.
func (b *Batch) Undecoded() ([]*tracepb.ResourceSpans, error) {
	contents, err := otlpwire.ResourceSpans(b.Bytes())
	if err != nil {
		b.fault = err
		return nil, b.malformed()
	}
	list := make([]*tracepb.ResourceSpans, len(contents))
	for i, content := range contents {
		list[i] = &tracepb.ResourceSpans{}
		list[i].ProtoReflect().SetUnknown(content)
	}
	return list, nil
}

// parse parses the batch, unless that was done before. It returns false if the batch is
// malformed.
func (b *Batch) parse() bool {
	if b.request == nil && b.fault == nil {
		b.request, b.fault = otlpwire.Parse(b.raw)
		if b.fault != nil {
			b.request = nil
		}
	}
	return b.request != nil
}

// release returns the memory of the parsed batch to its pool, at the end of a call. It
// also empties an edited batch, so that a plugin that keeps the batch cannot read the
// data that processors have removed.
func (b *Batch) release() {
	if b.request == nil {
		return
	}
	if b.Edited() {
		defer func() { b.raw, b.request = nil, nil }()
	}
	b.request.Release()
}

// malformed returns a final error if a read has found malformed bytes, and otherwise nil.
func (b *Batch) malformed() error {
	fault := b.fault
	if fault == nil && b.request != nil {
		fault = b.request.Err()
	}
	if fault == nil {
		return nil
	}
	return &wire.Error{Code: wire.CodeFinal, Final: true, Err: fmt.Errorf("malformed batch: %w", fault)}
}
