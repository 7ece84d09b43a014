package serving_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/tracing"
)

// onlyOne has one replica with one slot.
func onlyOne() []serving.DeploymentOption {
	return []serving.DeploymentOption{serving.WithMaxOngoingRequests(1)}
}

// TestGRPCStatus holds the rows G1 to G4 of the table of spans, and what a
// handler may do beyond: what its client is told, and what the spans say.
func TestGRPCStatus(t *testing.T) {
	withDetails, err := status.New(codes.NotFound, "no such word").WithDetails(&errdetails.ErrorInfo{Reason: "SPELLING"})
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		err  error
		told string
		// The spans of proxy and replica.
		proxy, replica string
	}{
		"G1 success": {
			nil, "OK: ", "code=OK OK", "",
		},
		"G2 error": {
			boom, "INTERNAL: boom",
			"code=INTERNAL ERROR(boom) event(*errors.errorString True)", " event(*errors.errorString False)",
		},
		"G3 code wrapped in an error": {
			fmt.Errorf("translate: %w", withDetails.Err()), "NOT_FOUND: translate: rpc error: code = NotFound desc = no such word",
			"code=NOT_FOUND ERROR(translate: rpc error: code = NotFound desc = no such word) event(*status.Error True)", " event(*status.Error False)",
		},
		"G4 code of the client's doing": {
			withDetails.Err(), "NOT_FOUND: no such word",
			"code=NOT_FOUND OK", "",
		},
		"G4 code of the server's fault": {
			status.Error(codes.DataLoss, "a disk is gone"), "DATA_LOSS: a disk is gone",
			"code=DATA_LOSS ERROR(rpc error: code = DataLoss desc = a disk is gone) event(*status.Error True)", " event(*status.Error False)",
		},
		"a code that is none": {
			status.Error(codes.Code(99), "odd"), "UNKNOWN: odd",
			"code=UNKNOWN ERROR(rpc error: code = Code(99) desc = odd) event(*status.Error True)", " event(*status.Error False)",
		},
		"an error that says OK": {
			okError{}, "UNKNOWN: not OK at all",
			"code=UNKNOWN ERROR(not OK at all) event(serving_test.okError True)", " event(serving_test.okError False)",
		},
		"a deadline of its own": {
			fmt.Errorf("ask: %w", context.DeadlineExceeded), "DEADLINE_EXCEEDED: ask: context deadline exceeded",
			"code=DEADLINE_EXCEEDED ERROR(ask: context deadline exceeded) event(context.DeadlineExceeded True)", " event(context.DeadlineExceeded False)",
		},
		"queue of another deployment": {
			fmt.Errorf("ask: %w", &serving.QueueFullError{Queued: 2, Limit: 1}), "RESOURCE_EXHAUSTED: Request dropped due to backpressure (num_queued_requests=2, max_queued_requests=1).",
			"code=RESOURCE_EXHAUSTED ERROR(ask: Request dropped due to backpressure (num_queued_requests=2, max_queued_requests=1).) event(*serving.QueueFullError True)", " event(*serving.QueueFullError False)",
		},
		"panic": {
			&tracing.PanicError{Value: "secret"}, "INTERNAL: Internal server error.",
			"code=INTERNAL ERROR(panic: secret) event(panic True)", " event(panic False)",
		},
		"Goexit": {
			errGoexit, "INTERNAL: Internal server error.",
			"code=INTERNAL ERROR(handler called runtime.Goexit) event(*errors.errorString True)", " event(*errors.errorString False)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startGRPC(t, serving.Config{}, testService{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				if p, ok := test.err.(*tracing.PanicError); ok {
					panic(p.Value)
				}
				if test.err == errGoexit {
					runtime.Goexit()
				}
				return &pb.SimpleResponse{}, test.err
			}}, onlyOne()...)
			err := r.unaryCall()
			if got := told(err); got != test.told {
				t.Errorf("client was told %q, want %q", got, test.told)
			}
			if strings.HasPrefix(test.told, "NOT_FOUND") {
				if d := status.Convert(err).Details(); len(d) != 1 || d[0].(*errdetails.ErrorInfo).GetReason() != "SPELLING" {
					t.Errorf("details %v, want those of the handler's status", d)
				}
			}
			want := []string{"proxy_grpc_request " + test.proxy, "route_to_replica", "replica_handle_request" + test.replica}
			if diff := cmp.Diff(want, rpcDigests(r.spans.take(t, 3))); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
			code, _, _ := strings.Cut(test.told, ":")
			if line := r.access.take(t, "request", 1)[0]; line["code"] != code {
				t.Errorf("access log: status %v, want %s", line["code"], code)
			}
			r.slotsFree()
		})
	}
}

// okError claims to be success.
type okError struct{}

func (okError) Error() string              { return "not OK at all" }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// TestGRPCLongText: an error's text that clients could not take is shortened, at
// a whole character.
func TestGRPCLongText(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{strings.Repeat("x", maxStatusText), strings.Repeat("x", maxStatusText)},
		{strings.Repeat("x", maxStatusText+1), strings.Repeat("x", maxStatusText-15) + "... [truncated]"},
		{"x" + strings.Repeat("é", maxStatusText), "x" + strings.Repeat("é", (maxStatusText-16)/2) + "... [truncated]"},
	} {
		r := startGRPC(t, serving.Config{}, failing(errors.New(test.text)))
		if got := status.Convert(r.unaryCall()).Message(); got != test.want {
			t.Errorf("%d bytes %.3q…: got %d bytes ending %q, want %d ending %q",
				len(test.text), test.text, len(got), tail(got), len(test.want), tail(test.want))
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-20):] }
