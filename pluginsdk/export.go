package pluginsdk

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
)

// export serves one Export call. It takes OTLP bytes and returns OTLP's answer.
func (p *plugin) export(ctx context.Context, in *wire.Incoming) (*wire.Outgoing, error) {
	if p.spec.isProcessor() {
		return nil, wrongKind(p.spec.Name, "a processor plugin, which exports no spans", processorVariable)
	}
	return p.call(ctx, in.Data, answerOf)
}

// process serves one Process call of a processor plugin.
func (p *plugin) process(ctx context.Context, in *wire.Incoming) (*wire.Outgoing, error) {
	if !p.spec.isProcessor() {
		return nil, wrongKind(p.spec.Name, "an exporter plugin, which returns no spans", exporterVariable)
	}
	_, encoded, err := wire.ReadProcess(in.Data, wire.RequestBatch)
	if err != nil {
		return nil, wire.ToStatus(&wire.Error{Code: wire.CodeFinal, Final: true, Err: fmt.Errorf("read request: %w", err)})
	}
	return p.call(ctx, encoded, resultOf)
}

// The variables in which a host lists its plugins.
const (
	exporterVariable  = "SERVE_TRACING_EXPORTER_PLUGIN"
	processorVariable = "SERVE_TRACING_PROCESSOR_PLUGIN"
)

// wrongKind returns the final error for a host that uses a plugin as the other kind.
func wrongKind(plugin, kind, variable string) error {
	return wire.ToStatus(&wire.Error{
		Code: codeUnimplemented, Final: true,
		Err: fmt.Errorf("plugin %q is %s: name it in %s", plugin, kind, variable),
	})
}

// call runs the pipeline with an encoded batch. answer makes the response from the result.
func (p *plugin) call(ctx context.Context, encoded []byte, answer func(*Batch, error) (*wire.Outgoing, error)) (*wire.Outgoing, error) {
	batch := incomingBatch(ctx, encoded)
	defer batch.release()
	built, err := p.calls.enter(ready, ready)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	defer p.calls.leave()
	ctx, stop := inTimeToAnswer(p.callContext(ctx))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.abort, func() { cancel(context.Cause(p.abort)) })()
	free, err := p.slot(ctx)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	defer free()

	filtered, err := built.run(ctx, batch)
	out, err := answer(batch, err)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	// The counts are sent only with OK: after an error, the host counts the whole batch
	// itself.
	if len(filtered) > 0 {
		if err := grpc.SetTrailer(ctx, filtered); err != nil {
			return nil, fmt.Errorf("name filtered spans: %w", err) // can only happen outside of a call
		}
	}
	return out, nil
}

// callContext returns the context for the work of a call. With --debug this context does
// not end.
func (p *plugin) callContext(ctx context.Context) context.Context {
	if p.listening != nil && p.listening.debug {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// slot waits for a slot among the plugin's concurrent calls. Each host obeys the
// Spec's limit, but several hosts do not coordinate.
func (p *plugin) slot(ctx context.Context) (free func(), err error) {
	if p.slots == nil {
		return func() {}, nil
	}
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// within returns ctx with the timeout of a request, if there is one. With --debug there is
// no bound.
func (p *plugin) within(ctx context.Context, timeout *durationpb.Duration) (context.Context, context.CancelFunc) {
	if p.callContext(ctx) != ctx || timeout.AsDuration() <= 0 {
		return context.WithCancel(p.callContext(ctx))
	}
	return context.WithTimeout(ctx, timeout.AsDuration())
}

// mostForAnswer bounds the part of a call's time that is reserved for its answer.
const mostForAnswer = 500 * time.Millisecond

// inTimeToAnswer returns ctx with a deadline that is earlier by a tenth of the remaining
// time, at most by mostForAnswer. So the plugin can report that its back end does not
// answer, before the host ends the call without a reason.
func inTimeToAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(mostForAnswer, time.Until(deadline)/10)))
}

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

// answerOf returns OTLP's answer for the result of pipeline.run, or an error.
func answerOf(batch *Batch, err error) (*wire.Outgoing, error) {
	if malformed := batch.malformed(); malformed != nil {
		return nil, malformed
	}
	partial := asPartial(err)
	if partial == nil {
		return &wire.Outgoing{}, err // an empty ExportTraceServiceResponse
	}
	rejected := min(partial.rejected, batch.Len())
	return outgoing(otlpwire.PartialSuccess(rejected, wire.Sent(partial.message))), nil
}

// resultOf returns the ProcessResponse for the result of pipeline.run, or an error. The
// response is empty if the batch is unchanged.
func resultOf(batch *Batch, err error) (*wire.Outgoing, error) {
	if malformed := batch.malformed(); malformed != nil {
		return nil, malformed
	}
	if err != nil || !batch.Edited() {
		return &wire.Outgoing{}, err
	}
	if batch.replaced {
		whole := batch.Bytes()
		return outgoing(wire.ProcessHead(wire.ResponseBatch, len(whole)), whole), nil
	}
	patch := batch.request.AppendPatch(nil)
	return outgoing(wire.ProcessHead(wire.ResponsePatch, len(patch)), patch), nil
}

// outgoing returns a message in several pieces.
func outgoing(pieces ...[]byte) *wire.Outgoing {
	var buffers mem.BufferSlice
	for _, piece := range pieces {
		buffers = append(buffers, mem.SliceBuffer(piece))
	}
	return &wire.Outgoing{Buffers: func() mem.BufferSlice { return buffers }}
}
