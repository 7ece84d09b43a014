package host

import (
	"context"
	"fmt"

	"github.com/servetrace/servetrace/host/internal/pipeline"
)

// These are the errors of Consume and Deliver. After each of them, the Host has taken
// no span of the request.
var (
	// ErrFull means that the memory for batches, or the spool, has too few free bytes for
	// the request, or that the sender has used up its share. The same request may be
	// accepted later. Its spans count as Stats.PushedBack.
	ErrFull = pipeline.ErrFull
	// ErrMalformed means that the bytes are not a valid ExportTraceServiceRequest. The error
	// names the offset of the first fault.
	ErrMalformed = pipeline.ErrMalformed
	// ErrTooLarge means that the request has more than 65,536 spans, or more bytes than a
	// sender may ever hold. This limit is about 40 % of Config.QueueBytes, or 65 % of
	// Config.SpoolBytes if that is less. The error names the limit.
	ErrTooLarge = pipeline.ErrTooLarge
	// ErrClosed means that Shutdown has begun, or that the list of plugins is empty.
	ErrClosed = pipeline.ErrClosed
)

// Taken has the numbers of spans of a request that a Host accepted and refused.
type Taken struct {
	// Spans is the number of spans that were accepted.
	Spans int
	// TooLarge is the number of spans above Config.MaxSpanBytes. They were refused,
	// and count as Stats.Refused["too_large"].
	TooLarge int
}

// Outcome has the counts of a request's spans, summed over all exporters. A span counts
// once for each exporter.
type Outcome struct {
	Taken
	Delivered, Rejected, Filtered, Dropped uint64
	// Spooled is the number of spans that Shutdown has left in the spool: the next
	// process sends them.
	Spooled uint64
}

// Consume takes the spans of an encoded ExportTraceServiceRequest. The spans go into
// the same queues as the spans of OnEnd, with the same bounds and accounting. Consume
// copies request and checks all of it, but does not decode it. It does not wait for the
// plugins. The spans of several requests may be sent in one batch.
//
// sender is any text that identifies the sending program or connection. A sender may
// hold at most three times as many bytes as are still free, so no sender uses up the
// memory or the spool. Safe for concurrent use.
func (h *Host) Consume(request []byte, sender string) (Taken, error) {
	if !h.enabled {
		return Taken{}, errNoPlugins()
	}
	t, err := h.pipeline.Consume(request, sender)
	return Taken(t), err
}

// Deliver is Consume, but it blocks until each exporter has delivered, rejected,
// filtered or dropped each span. The request is a batch of its own, and is not merged
// with other requests. If ctx ends first, the error wraps the cause of ctx. The Host
// still keeps and sends the spans, so a sender that repeats the request may cause
// duplicates.
func (h *Host) Deliver(ctx context.Context, request []byte, sender string) (Outcome, error) {
	if !h.enabled {
		return Outcome{}, errNoPlugins()
	}
	o, err := h.pipeline.Deliver(ctx, request, sender)
	return Outcome{Taken(o.Taken), o.Delivered, o.Rejected, o.Filtered, o.Dropped, o.Spooled}, err
}

func errNoPlugins() error {
	return fmt.Errorf("%w: %s is empty", ErrClosed, EnvPlugins)
}
