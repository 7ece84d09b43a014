package pluginsdk

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
)

// export answers one Export call of a host. in is an encoded ExportTraceServiceRequest of
// OTLP, and the result is an encoded ExportTraceServiceResponse. The gRPC server calls export,
// see traceService in server.go.
func (p *plugin) export(ctx context.Context, in *wire.Incoming) (*wire.Outgoing, error) {
	if p.spec.isProcessor() {
		return nil, wrongKind(p.spec.Name, "a processor plugin, which exports no spans", processorVariable)
	}
	return p.call(ctx, in.Data, answerOf)
}

// call passes an encoded batch to the processors and the exporter. answer makes the
// response from the batch and the error of the pipeline.
func (p *plugin) call(ctx context.Context, encoded []byte, answer func(*Batch, error) (*wire.Outgoing, error)) (*wire.Outgoing, error) {
	batch := incomingBatch(ctx, encoded)
	defer batch.release()
	built, err := p.calls.enter(ready, ready) // admits the call if the plugin is ready, and leaves it ready
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	defer p.calls.leave()
	ctx, stop := inTimeToAnswer(p.callContext(ctx))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.abort, func() { cancel(context.Cause(p.abort)) })() // abort ends when calls in flight must give up
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
	// The numbers of filtered spans are sent only with OK, because after an error the host
	// counts the whole batch itself.
	if len(filtered) > 0 {
		if err := grpc.SetTrailer(ctx, filtered); err != nil {
			return nil, fmt.Errorf("name filtered spans: %w", err) // cannot happen inside of a gRPC call
		}
	}
	return out, nil
}

// incomingBatch returns the encoded batch of a call, with the id and the number of the attempt
// from the call's metadata.
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

// answerOf returns the encoded response to an Export call, from the batch and the error
// of pipeline.run. A partial success is a response, any other error is returned.
func answerOf(batch *Batch, err error) (*wire.Outgoing, error) {
	if malformed := batch.malformed(); malformed != nil {
		return nil, malformed
	}
	partial := asPartial(err)
	if partial == nil {
		return &wire.Outgoing{}, err // an ExportTraceServiceResponse without fields means that all spans are delivered
	}
	rejected := min(partial.rejected, batch.Len())
	return outgoing(otlpwire.PartialSuccess(rejected, wire.Sent(partial.message))), nil
}

// slot waits until the number of concurrent calls is below the Spec's limit. Each host
// obeys the limit, but several hosts together may exceed it. The caller must call free at
// the end of the call.
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

// inTimeToAnswer returns a context that ends before the deadline of ctx: earlier by a
// tenth of the remaining time, but at most by mostForAnswer. So if the back end does not
// answer, the plugin can still send the reason to the host.
func inTimeToAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(mostForAnswer, time.Until(deadline)/10)))
}

// mostForAnswer bounds the time before a call's deadline that is reserved for sending the
// answer.
const mostForAnswer = 500 * time.Millisecond

// callContext returns the context for the work of a call. With --debug it has no deadline
// and is never cancelled, so that a breakpoint does not end the call.
func (p *plugin) callContext(ctx context.Context) context.Context {
	if p.debugging() {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// debugging reports whether the plugin runs with --debug, so that calls have no deadlines.
func (p *plugin) debugging() bool { return p.listening != nil && p.listening.debug }

// process answers one Process call of a host: it returns the edits of a processor plugin
// to a batch.
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

// resultOf returns the encoded response to a Process call, from the batch and the error
// of pipeline.run: a patch, or the whole batch after Batch.Replace. The response is empty
// if the batch is unchanged.
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

// outgoing returns an encoded message that consists of several pieces. It does not copy
// them.
func outgoing(pieces ...[]byte) *wire.Outgoing {
	var buffers mem.BufferSlice
	for _, piece := range pieces {
		buffers = append(buffers, mem.SliceBuffer(piece))
	}
	return &wire.Outgoing{Buffers: func() mem.BufferSlice { return buffers }}
}

// The environment variables in which an operator lists the plugins of a host.
const (
	exporterVariable  = "SERVE_TRACING_EXPORTER_PLUGIN"
	processorVariable = "SERVE_TRACING_PROCESSOR_PLUGIN"
)

// wrongKind returns the error for a host that uses an exporter plugin as a processor
// plugin, or the reverse. The error is final and names the right variable.
func wrongKind(plugin, kind, variable string) error {
	return wire.ToStatus(&wire.Error{
		Code: codeUnimplemented, Final: true,
		Err: fmt.Errorf("plugin %q is %s: name it in %s", plugin, kind, variable),
	})
}
