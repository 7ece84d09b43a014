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

// Batch is a list of finished spans, as one encoded ExportTraceServiceRequest of OTLP. The
// spans have the order in which the host encoded them. Nothing is decoded until a reader
// asks, so an exporter that forwards Bytes costs next to nothing. A Batch is not safe for
// concurrent use. It is valid until the call that received it returns; slices and
// strings that were read from it may be kept.
//
// A malformed batch has no spans, or spans without the malformed fields. The SDK then
// answers the host with a final error, whatever the plugin returned.
type Batch struct {
	id      string
	attempt int
	raw     []byte // as it arrived, or as Replace has set it
	// replaced reports that raw is an argument of Replace.
	replaced bool
	// request is nil until the first read. It stays nil, and fault is set, if raw is
	// malformed.
	request *otlpwire.Request
	fault   error
	// filtered holds the counts of CountFiltered by name.
	filtered map[string]int
}

// NewBatch returns a batch of an encoded ExportTraceServiceRequest, or of TracesData, which
// has the same encoding. It is for tests of processors and exporters. encoded must not
// change afterwards.
func NewBatch(encoded []byte) *Batch { return &Batch{attempt: 1, raw: encoded} }

// ID returns the batch's id. It is the same on every attempt and unique among all hosts.
// It is empty if the sender is not a servetrace host.
func (b *Batch) ID() string { return b.id }

// CountFiltered records that an exporter omits spans on purpose, for example because of
// a sampler in a back end's library. The host counts them as filtered by name instead of
// delivered. name is as in [Named]; a count below 1 or an invalid name is ignored. The
// counts take effect only if Export returns nil or [Partial], and not in an exporter of
// a [Tee].
func (b *Batch) CountFiltered(name string, spans int) {
	if spans <= 0 || name == "" || strings.ContainsFunc(name, notInName) {
		return
	}
	if b.filtered == nil {
		b.filtered = map[string]int{}
	}
	b.filtered[name] += spans
}

// Attempt returns the number of times that the host has sent the batch, from 1. If it is
// above 1, some or all of the spans may have been delivered before.
func (b *Batch) Attempt() int { return b.attempt }

// Len returns the number of spans, without dropped spans.
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

// Bytes returns the encoded batch with the edits applied. The result may be kept, and must
// not be changed. Without edits it is the received slice; with edits each call encodes
// the batch again. It is empty if every span was dropped.
func (b *Batch) Bytes() []byte {
	if b.request == nil || !b.request.Edited() {
		return b.raw
	}
	return b.AppendTo(nil)
}

// Replace makes encoded, an ExportTraceServiceRequest, the content of the batch, in place of
// the received spans and all edits. It is for a [Processor] around a library that needs
// whole batches; edits of spans are cheaper. Later processors may edit the new spans. It
// returns an error, and leaves the batch as it was, if encoded is malformed or has more
// spans than the batch. The error is final. Spans that were read earlier must not be used
// afterwards. encoded must not change.
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

// AppendTo appends the encoded batch with the edits to dst and returns the longer slice.
// An exporter that reuses dst does not allocate for edited batches. dst must not overlap
// a result of Bytes.
func (b *Batch) AppendTo(dst []byte) []byte {
	if b.request == nil {
		return append(dst, b.raw...)
	}
	return b.request.AppendTo(dst)
}

// Edited reports whether a processor has changed the batch or dropped spans. If not, Bytes
// returns the received slice.
func (b *Batch) Edited() bool { return b.replaced || b.request != nil && b.request.Edited() }

// Spans returns the spans in order, without dropped spans. Any span may be edited during
// the iteration.
func (b *Batch) Spans() iter.Seq[Span] {
	return eachOf(b, (*otlpwire.Request).Spans, func(raw otlpwire.Span) Span { return Span{message{raw.View}} })
}

// Resources returns the resources in order. The same resource may occur several times.
func (b *Batch) Resources() iter.Seq[Resource] {
	return eachOf(b, (*otlpwire.Request).Resources, func(raw otlpwire.Resource) Resource { return Resource{message{raw.View}} })
}

// Scopes returns the instrumentation scopes in order. The same scope may occur several
// times.
func (b *Batch) Scopes() iter.Seq[Scope] {
	return eachOf(b, (*otlpwire.Request).Scopes, func(raw otlpwire.Scope) Scope { return Scope{message{raw.View}} })
}

// eachOf returns the converted messages of one kind. It parses the batch when the iteration
// starts. It returns nothing for a malformed batch.
func eachOf[Raw, V any](b *Batch, all func(*otlpwire.Request) iter.Seq[Raw], convert func(Raw) V) iter.Seq[V] {
	return func(yield func(V) bool) {
		if b.parse() {
			views(all(b.request), convert)(yield)
		}
	}
}

// Decode returns the batch as OTLP's messages, with the edits applied, in the form that
// an otlptrace.Client takes. The messages belong to the caller. Each call decodes the
// whole batch again, which costs much more than reading single fields of its spans. The
// error is final: the batch is malformed.
func (b *Batch) Decode() ([]*tracepb.ResourceSpans, error) {
	// TracesData has the encoding of ExportTraceServiceRequest, and its package does not
	// link an HTTP gateway.
	var data tracepb.TracesData
	if err := proto.Unmarshal(b.Bytes(), &data); err != nil {
		b.fault = fmt.Errorf("decode batch: %w", err)
		return nil, b.malformed()
	}
	return data.GetResourceSpans(), nil
}

// Undecoded returns the batch as OTLP's messages without decoding it, with the edits
// applied. It is for an otlptrace.Client that only encodes and sends, such as the clients
// of otlptracehttp and otlptracegrpc. The only content of each ResourceSpans is its
// unknown fields, which hold the encoded bytes: proto.Marshal writes them unchanged, and
// getters return nothing. A client that reads fields, for example to write JSON, needs
// [Batch.Decode].
//
// The result has one message for each ResourceSpans of the batch, in order; it is empty
// if every span was dropped. It shares the memory of Bytes: it may be kept, and must not
// be changed. The error is final: the batch is malformed.
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

// parse parses the batch in the first call. It returns false if the batch is malformed.
func (b *Batch) parse() bool {
	if b.request == nil && b.fault == nil {
		b.request, b.fault = otlpwire.Parse(b.raw)
		if b.fault != nil {
			b.request = nil
		}
	}
	return b.request != nil
}

// release ends the use of the batch. An edited batch is empty afterwards, because the
// received bytes hold the data that processors removed.
func (b *Batch) release() {
	if b.request == nil {
		return
	}
	if b.Edited() {
		defer func() { b.raw, b.request = nil, nil }()
	}
	b.request.Release()
}

// malformed returns a final error if a read found malformed bytes, nil otherwise.
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
