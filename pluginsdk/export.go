package pluginsdk

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/wire"
)

// pipeline is what the constructors built.
type pipeline struct {
	stages   []stage
	exporter Exporter
}

// stage is a processor and what the books call it.
type stage struct {
	name      string
	processor Processor
}

// export serves one Export call: OTLP bytes in, the state of delivery out.
func (p *plugin) export(ctx context.Context, in *wire.Incoming) (*wire.Outgoing, error) {
	batch := incomingBatch(ctx, in.Data)
	defer batch.release()
	built, err := p.enter(ready, ready)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	defer p.leave()
	ctx, early := inTimeToAnswer(p.patient(ctx))
	defer early()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.abort, func() { cancel(context.Cause(p.abort)) })()
	free, err := p.slot(ctx)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	defer free()

	filtered, err := p.deliver(ctx, built, batch)
	answer, err := answerOf(batch, err)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	// Only with an OK: under an error the host counts the whole batch.
	if len(filtered) > 0 {
		if err := grpc.SetTrailer(ctx, filtered); err != nil {
			return nil, fmt.Errorf("name filtered spans: %w", err) // only outside a call
		}
	}
	return answer, nil
}

// mostForAnswer is the most of a call's time that is kept for its answer.
const mostForAnswer = 500 * time.Millisecond

// inTimeToAnswer ends ctx a tenth before the host gives the call up, so that a
// back end that does not answer is told of in the plugin's own words: who hears
// nothing can only guess whether it is the back end or the plugin that hangs.
func inTimeToAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(mostForAnswer, time.Until(deadline)/10)))
}

// incomingBatch makes a batch of a call's bytes and metadata.
func incomingBatch(ctx context.Context, encoded []byte) *Batch {
	batch := NewBatch(encoded)
	if ids := metadata.ValueFromIncomingContext(ctx, wire.MetaBatchID); len(ids) > 0 {
		batch.id = ids[0]
	}
	if counts := metadata.ValueFromIncomingContext(ctx, wire.MetaAttempt); len(counts) > 0 {
		if n, err := strconv.Atoi(counts[0]); err == nil && n > 1 {
			batch.attempt = n
		}
	}
	return batch
}

// deliver runs the processors and the exporter over the batch. It gives what
// each processor dropped, as metadata. A batch that has no spans left goes no
// further.
func (p *plugin) deliver(ctx context.Context, built *pipeline, batch *Batch) (metadata.MD, error) {
	var filtered metadata.MD
	left := -1 // not counted: no processor has looked into the batch
	for _, stage := range built.stages {
		if left < 0 {
			left = batch.Len()
		}
		err := p.guard("processor "+strconv.Quote(stage.name), func() error { return stage.processor.Process(ctx, batch) })
		if asPartial(err) != nil {
			// It would acknowledge a batch that no exporter has seen.
			err = Permanent(fmt.Errorf("%w: only an exporter can deliver in part", err))
		}
		if err != nil {
			return nil, err
		}
		if err := batch.malformed(); err != nil {
			return nil, err
		}
		before := left
		left = batch.Len()
		if dropped := before - left; dropped > 0 {
			if filtered == nil {
				filtered = metadata.MD{}
			}
			filtered.Append(wire.MetaFiltered, stage.name+"="+strconv.Itoa(dropped))
		}
		if left == 0 {
			return filtered, nil
		}
	}
	err := p.guard("export", func() error { return built.exporter.Export(ctx, batch) })
	for name, spans := range batch.filtered {
		if filtered == nil {
			filtered = metadata.MD{}
		}
		filtered.Append(wire.MetaFiltered, name+"="+strconv.Itoa(spans))
	}
	return filtered, err
}

// answerOf turns the outcome of deliver into OTLP's answer, or an error.
func answerOf(batch *Batch, err error) (*wire.Outgoing, error) {
	if malformed := batch.malformed(); malformed != nil {
		return nil, malformed
	}
	partial := asPartial(err)
	if partial == nil {
		return &wire.Outgoing{}, err // an empty ExportTraceServiceResponse
	}
	rejected := min(partial.rejected, batch.Len())
	answer := mem.BufferSlice{mem.SliceBuffer(partialSuccess(rejected, wire.Sent(partial.message)))}
	return &wire.Outgoing{Buffers: func() mem.BufferSlice { return answer }}, nil
}

// partialSuccess is an ExportTraceServiceResponse:
// https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/collector/trace/v1/trace_service.proto
// Written by hand, because its package brings an HTTP gateway along.
func partialSuccess(rejected int, message string) []byte {
	const fieldPartialSuccess, fieldRejectedSpans, fieldErrorMessage = 1, 1, 2
	var inner []byte
	inner = protowire.AppendTag(inner, fieldRejectedSpans, protowire.VarintType)
	inner = protowire.AppendVarint(inner, uint64(rejected))
	inner = protowire.AppendTag(inner, fieldErrorMessage, protowire.BytesType)
	inner = protowire.AppendString(inner, wire.Text(message))
	outer := protowire.AppendTag(nil, fieldPartialSuccess, protowire.BytesType)
	return protowire.AppendBytes(outer, inner)
}
