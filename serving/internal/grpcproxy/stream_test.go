package grpcproxy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// doneStream is grpc's stream in the moment between its end and that of its
// context.
type doneStream struct {
	grpc.ServerStream
	ctx context.Context
}

var errStreamDone = status.FromContextError(context.Canceled).Err()

func (s doneStream) Context() context.Context   { return s.ctx }
func (doneStream) SendHeader(metadata.MD) error { return errStreamDone }
func (doneStream) SendMsg(any) error            { return errStreamDone }
func (doneStream) RecvMsg(any) error            { return errStreamDone }

// TestGRPCClientGoneBeforeItsContextEnds: the handler returns what a message of
// its own has failed with, which is no answer of the handler's.
func TestGRPCClientGoneBeforeItsContextEnds(t *testing.T) {
	for name, operation := range map[string]func(*callStream) error{
		"Send":       func(s *callStream) error { return s.SendMsg(nil) },
		"Recv":       func(s *callStream) error { return s.RecvMsg(nil) },
		"SendHeader": func(s *callStream) error { return s.SendHeader(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				c := &call{stream: callStream{stream: doneStream{ctx: ctx}, info: new(grpc.StreamServerInfo), arrived: time.Now()}}
				s := &c.stream
				release := s.beginCall(0)
				defer release()
				if _, err := c.End(s.call, operation(s)); err != cause.ErrClientGone {
					t.Errorf("the call was ended by %v, want %v", err, cause.ErrClientGone)
				}
			})
		})
	}
}

// TestGRPCContextDeadline: a call has the client's deadline or ours, whichever is
// sooner.
func TestGRPCContextDeadline(t *testing.T) {
	limited, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	theirs, _ := limited.Deadline()
	for _, test := range []struct {
		client context.Context
		ours   time.Duration
		sooner bool // than the client's
		has    bool
	}{
		{t.Context(), 0, false, false},
		{t.Context(), time.Minute, true, true},
		{limited, 0, false, true},
		{limited, time.Minute, true, true},
		{limited, 24 * time.Hour, false, true},
	} {
		s := &callStream{stream: doneStream{ctx: test.client}}
		release := s.beginCall(test.ours)
		at, has := s.call.Deadline()
		if has != test.has || has && at.Before(theirs) != test.sooner {
			t.Errorf("with %v, and %v of ours: %v, %v", test.client, test.ours, at, has)
		}
		release()
	}
}

// TestCodeNames: the names are those of the specification, which package codes
// can read.
func TestCodeNames(t *testing.T) {
	for c := range codes.Code(17) {
		var read codes.Code
		if err := read.UnmarshalJSON([]byte(`"` + codeName(c) + `"`)); err != nil || read != c {
			t.Errorf("%d is %q, which reads as %d (%v)", c, codeName(c), read, err)
		}
	}
	if got := codeName(17); got != "UNKNOWN" {
		t.Errorf("17 is %q, want UNKNOWN", got)
	}
}
