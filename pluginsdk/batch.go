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

// Batch is some finished spans, in the order in which the host put them, as
// one encoded ExportTraceServiceRequest of OTLP. Nothing is decoded before
// someone looks into it, so an exporter that forwards Bytes costs next to
// nothing. It is for one goroutine, and lives until the call that was given it
// returns; slices and strings read from it may be kept.
//
// Bytes that are malformed read as spans that are not there; the SDK then
// answers the host with a final error, whatever the plugin made of it.
type Batch struct {
	id      string
	attempt int
	raw     []byte // as it arrived
	// request is nil until someone looks into the batch, and stays so, with
	// fault set, if raw is malformed.
	request *otlpwire.Request
	fault   error
	// filtered has the counts of CountFiltered by name.
	filtered map[string]int
}

// NewBatch makes a batch of an encoded ExportTraceServiceRequest, or of
// TracesData, which is the same on the wire: for tests of processors and
// exporters. encoded must not change any more.
func NewBatch(encoded []byte) *Batch { return &Batch{attempt: 1, raw: encoded} }

// ID names the batch, the same on every attempt, unique among all hosts. It is
// empty where the sender is no servetrace host.
func (b *Batch) ID() string { return b.id }

// CountFiltered reports that an exporter leaves spans out on purpose, as a
// sampler in a back end's library does: the span account of the host counts so
// many spans as filtered by name, and not as delivered. name is as in [Named]. Only
// the counts of an Export that ends with nil or [Partial] count, and those of an
// exporter behind [Tee] do not.
func (b *Batch) CountFiltered(name string, spans int) {
	if spans <= 0 || name == "" || strings.ContainsFunc(name, notInName) {
		return
	}
	if b.filtered == nil {
		b.filtered = map[string]int{}
	}
	b.filtered[name] += spans
}

// Attempt counts how often the host has sent the batch, from 1. Beyond 1 some
// or all of it may have been delivered before.
func (b *Batch) Attempt() int { return b.attempt }

// Len is the number of spans, without those dropped.
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

// Bytes is the batch encoded, edits applied. It may be kept, and must not be
// changed. Without edits it is what arrived, uncopied; with edits it is encoded
// anew by every call. It is empty where every span was dropped.
func (b *Batch) Bytes() []byte {
	if !b.Edited() {
		return b.raw
	}
	return b.AppendTo(nil)
}

// AppendTo appends what Bytes gives to dst, and gives the longer slice: for an
// exporter that keeps memory from one batch to the next, and to which an edited
// batch so costs none. dst must not overlap what Bytes has given.
func (b *Batch) AppendTo(dst []byte) []byte {
	if b.request == nil {
		return append(dst, b.raw...)
	}
	return b.request.AppendTo(dst)
}

// Edited tells whether a processor has changed the batch, or dropped spans of it.
// Of one that is not Bytes gives what arrived.
func (b *Batch) Edited() bool { return b.request != nil && b.request.Edited() }

// Spans returns the spans in order, without the dropped ones. Any span may be edited
// during the iteration.
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

// eachOf returns the messages of one kind, converted. It parses the batch when the
// iteration starts. A malformed batch has none.
func eachOf[Raw, V any](b *Batch, all func(*otlpwire.Request) iter.Seq[Raw], convert func(Raw) V) iter.Seq[V] {
	return func(yield func(V) bool) {
		if b.parse() {
			views(all(b.request), convert)(yield)
		}
	}
}

// Decode gives the batch as OTLP's own messages, edits applied: what an
// otlptrace.Client takes. They are the caller's. Every call decodes anew; it
// costs some six times what reading two attributes of each span does.
func (b *Batch) Decode() ([]*tracepb.ResourceSpans, error) {
	// TracesData is ExportTraceServiceRequest on the wire, and its package does
	// not bring an HTTP gateway into every plugin.
	var data tracepb.TracesData
	if err := proto.Unmarshal(b.Bytes(), &data); err != nil {
		b.fault = fmt.Errorf("decode batch: %w", err)
		return nil, b.malformed()
	}
	return data.GetResourceSpans(), nil
}

// Undecoded returns the batch as OTLP's own messages without decoding it, edits
// applied: what an otlptrace.Client takes that only encodes and sends it, such as
// otlptracehttp's and otlptracegrpc's. Each ResourceSpans is empty but for its
// unknown fields, which hold its encoded content; proto.Marshal writes them
// unchanged, and its getters return nothing. A client that reads fields, such as
// one that writes JSON, needs [Batch.Decode].
//
// The result has one message for each ResourceSpans of the batch, in order; it is
// empty if every span was dropped. It aliases Bytes: it may be kept, and must not
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

// parse tells whether the spans can be looked at.
func (b *Batch) parse() bool {
	if b.request == nil && b.fault == nil {
		b.request, b.fault = otlpwire.Parse(b.raw)
		if b.fault != nil {
			b.request = nil
		}
	}
	return b.request != nil
}

// release ends the call that the batch was for. Who keeps an edited one, against
// the rules, finds it empty: as it arrived it has what processors took out.
func (b *Batch) release() {
	if b.request == nil {
		return
	}
	if b.Edited() {
		defer func() { b.raw, b.request = nil, nil }()
	}
	b.request.Release()
}

// malformed is the final error to answer with if anyone met bytes that are not
// OTLP; nil if nobody did.
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
