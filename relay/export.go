package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/servetrace/servetrace/host"
)

// HeaderWait is the metadata of a gRPC call, or the header of an HTTP request, by which a
// sender chooses the time of the answer: WaitDelivered or WaitAccepted. Without it,
// Config.WaitForResult decides.
const HeaderWait = "servetrace-wait"

// Values of HeaderWait.
const (
	// WaitDelivered asks for the answer after each plugin has delivered, rejected or
	// filtered the spans. It is for senders that keep the request until its answer.
	WaitDelivered = "delivered"
	// WaitAccepted asks for the answer when the relay has accepted the spans.
	WaitAccepted = "accepted"
)

// headerBatchID is the gRPC metadata or HTTP header with the id of a batch. A host and the
// plugin otlp send it.
const headerBatchID = "servetrace-batch-id"

// asked has the values of HeaderWait and headerBatchID of a request. They are empty if the
// request does not have them.
type asked struct{ wait, batchID string }

// retryDelay is the pause that the relay asks a sender to make before it sends a request
// again.
const retryDelay = time.Second

// service takes the requests of all listeners. Safe for concurrent use.
type service struct {
	cfg      Config
	host     *host.Host
	instance string // identifies the host; ids of its batches begin with it
	log      *slog.Logger
	counts   *counts
	decoder  *decoder
	token    func() token // returns the token of senders; nil if they need none
	stopping atomic.Bool  // set by Shutdown; further requests are then refused

	compressionOnce sync.Once // guards the log line of compressionCheck, which is logged once
}

// export passes a request to the host and returns the answer of OTLP. The error is a
// gRPC status.
func (s *service) export(ctx context.Context, c *conn, request []byte, a asked) (*coltracepb.ExportTraceServiceResponse, error) {
	var out host.Outcome
	var err error
	switch wait := a.wait; {
	case s.stopping.Load():
		err = host.ErrClosed
	case strings.HasPrefix(a.batchID, s.instance+"-"): // the code is final, so that the plugin does not send the batch again
		return nil, status.Error(codes.FailedPrecondition, "the spans come from this relay: one of its plugins sends to the relay itself; set the plugin's endpoint to a back end, for example by OTEL_EXPORTER_OTLP_ENDPOINT")
	case wait == WaitDelivered, wait == "" && s.cfg.WaitForResult:
		out, err = s.host.Deliver(ctx, request, c.sender)
	case wait == WaitAccepted, wait == "":
		out.Taken, err = s.host.Consume(request, c.sender)
	default:
		return nil, status.Errorf(codes.InvalidArgument, "%s: %q: want %s or %s", HeaderWait, wait, WaitDelivered, WaitAccepted)
	}
	if errors.Is(err, host.ErrFull) {
		c.tally.pushedBack.Add(1)
	}
	if err != nil {
		return nil, statusOf(err)
	}
	s.counts.addSpans(c, out.Spans)
	if out.Dropped > 0 {
		return nil, status.Errorf(codes.Unavailable, "%d of %d spans were dropped before a plugin delivered them; send the request again", out.Dropped, out.Spans)
	}
	return answerOf(out), nil
}

// statusOf returns the gRPC status for an error of the host.
func statusOf(err error) error {
	switch {
	case errors.Is(err, host.ErrFull):
		st, detailErr := status.New(codes.ResourceExhausted, err.Error()).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retryDelay)})
		if detailErr != nil { // cannot happen: the code is not OK, and the detail is valid
			return status.Error(codes.Unavailable, err.Error())
		}
		return st.Err()
	case errors.Is(err, host.ErrMalformed):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, host.ErrTooLarge): // without RetryInfo, this code is final
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, host.ErrClosed):
		return status.Error(codes.Unavailable, "the relay stops: "+err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Canceled, err.Error())
}

// answerOf returns the answer for spans that the host has accepted.
func answerOf(out host.Outcome) *coltracepb.ExportTraceServiceResponse {
	rejected := min(out.Rejected, uint64(out.Spans)) // a span counts once for each plugin that rejects it
	lost := int64(out.TooLarge) + int64(rejected)    //nolint:gosec // lengths
	if lost == 0 {
		return &coltracepb.ExportTraceServiceResponse{}
	}
	text := fmt.Sprintf("%d spans were rejected by a plugin; its log has the reason", rejected)
	if out.TooLarge > 0 {
		text = fmt.Sprintf("%d spans are larger than %s", out.TooLarge, host.EnvMaxSpanBytes)
	}
	return &coltracepb.ExportTraceServiceResponse{
		PartialSuccess: &coltracepb.ExportTracePartialSuccess{RejectedSpans: lost, ErrorMessage: text},
	}
}
