package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// TestEveryCode checks all codes that gRPC defines: none may be missing, and the retried
// codes are OTLP's.
func TestEveryCode(t *testing.T) {
	retried := map[string]bool{
		"CANCELLED": true, "DEADLINE_EXCEEDED": true, "ABORTED": true,
		"OUT_OF_RANGE": true, "UNAVAILABLE": true, "DATA_LOSS": true,
	}
	for code := codes.Code(1); code <= codes.Unauthenticated; code++ {
		e := FromStatus(status.Error(code, "why"))
		if e.Code == "UNKNOWN" && code != codes.Unknown {
			t.Errorf("code %v is not in the table", code)
		}
		if e.Final == retried[e.Code] {
			t.Errorf("%s: final %v", e.Code, e.Final)
		}
		if e.Error() != "why" {
			t.Errorf("%s: text %q, want why", e.Code, e.Error())
		}
		back := ToStatus(e)
		if status.Code(back) != code || status.Convert(back).Message() != "why" {
			t.Errorf("%s goes back as %v", e.Code, back)
		}
	}
	if e := FromStatus(status.Error(codes.Code(99), "new")); e.Code != "UNKNOWN" || !e.Final {
		t.Errorf("a code that is not defined: %+v, want a final UNKNOWN", e)
	}
	if FromStatus(nil) != nil || ToStatus(nil) != nil {
		t.Error("no error becomes one")
	}
}

func TestRetryInfo(t *testing.T) {
	withInfo := func(code codes.Code, d time.Duration) error {
		st, err := status.New(code, "busy").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	for _, test := range []struct {
		err   error
		final bool
		after time.Duration
	}{
		{status.Error(codes.ResourceExhausted, "busy"), true, 0},
		{withInfo(codes.ResourceExhausted, 3*time.Second), false, 3 * time.Second},
		{withInfo(codes.Unavailable, 2*time.Second), false, 2 * time.Second},
		{withInfo(codes.Unavailable, -time.Second), false, 0},
		{withInfo(codes.InvalidArgument, time.Second), true, time.Second},
	} {
		e := FromStatus(test.err)
		if e.Final != test.final || e.After != test.after {
			t.Errorf("%v: final %v after %v, want %v and %v", test.err, e.Final, e.After, test.final, test.after)
		}
	}
	e := FromStatus(ToStatus(&Error{Code: CodeRetry, After: 5 * time.Second, Err: errors.New("later")}))
	if e.After != 5*time.Second || e.Final {
		t.Errorf("sent and read back: %+v, want 5s and not final", e)
	}
}

func TestToStatus(t *testing.T) {
	for _, test := range []struct {
		err  error
		code codes.Code
		text string
	}{
		{errors.New("down"), codes.Unavailable, "down"},
		{fmt.Errorf("export: %w", &Error{Code: CodeFinal, Final: true, Err: errors.New("bad token")}), codes.InvalidArgument, "export: bad token"},
		{fmt.Errorf("export: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "export: context deadline exceeded"},
		{fmt.Errorf("export: %w", context.Canceled), codes.Canceled, "export: context canceled"},
		{status.Error(codes.PermissionDenied, "no"), codes.PermissionDenied, "no"},
		{fmt.Errorf("export: %w (twice)", status.Error(codes.Aborted, "busy")), codes.Aborted, "export: busy (twice)"},
		{&Error{Code: "NO_SUCH_CODE", Err: errors.New("odd")}, codes.Unknown, "odd"},
	} {
		got := status.Convert(ToStatus(test.err))
		if got.Code() != test.code || got.Message() != test.text {
			t.Errorf("%v becomes %v %q, want %v %q", test.err, got.Code(), got.Message(), test.code, test.text)
		}
	}
}

// TestLongStatusIsCut: a back end's words of megabytes leave an answer that gRPC
// carries, with the code and the pause.
func TestLongStatusIsCut(t *testing.T) {
	much, err := status.New(codes.Unavailable, "busy").WithDetails(
		&errdetails.DebugInfo{Detail: strings.Repeat("d", 1<<20)}, &errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ü", 1<<20)
	for name, err := range map[string]error{
		"text":    &Error{Code: CodeRetry, After: 3 * time.Second, Err: errors.New(long)},
		"plain":   fmt.Errorf("export: %w: %s", much.Err(), long),
		"details": much.Err(),
	} {
		sent := ToStatus(err)
		if size := proto.Size(status.Convert(sent).Proto()); size > 2*maxSent {
			t.Errorf("%s: %d bytes", name, size)
		}
		if back := FromStatus(sent); back.Code != CodeRetry || back.After != 3*time.Second {
			t.Errorf("%s: %s after %v, want %s after 3s", name, back.Code, back.After, CodeRetry)
		}
	}
}

func TestClip(t *testing.T) {
	if got := Clip("short"); got != "short" {
		t.Errorf("Clip cuts %q", got)
	}
	long := Clip(strings.Repeat("ü", 5000))
	if len(long) > maxText+3 || !utf8.ValidString(long) || !strings.HasSuffix(long, "ü…") {
		t.Errorf("Clip gives %d bytes ending in %q", len(long), long[len(long)-6:])
	}
}

func FuzzStatusBothWays(f *testing.F) {
	f.Add(uint32(14), "down", int64(time.Second))
	f.Fuzz(func(t *testing.T, code uint32, text string, after int64) {
		e := FromStatus(status.Error(codes.Code(code%20), text))
		if e == nil {
			return
		}
		e.After = time.Duration(after)
		back := FromStatus(ToStatus(e))
		if back.Code != e.Code || back.After != max(0, e.After) {
			t.Errorf("%+v comes back as %+v", e, back)
		}
	})
}

func TestInvalidUTF8KeepsDetails(t *testing.T) {
	back := ToStatus(&Error{Code: CodeRetry, After: 7 * time.Second, Err: errors.New("busy: \xe4\xf6")})
	sent, err := proto.Marshal(status.Convert(back).Proto()) // as gRPC does, which drops a detail that it cannot marshal
	if err != nil {
		t.Fatal(err)
	}
	arrived := new(statuspb.Status)
	if err := proto.Unmarshal(sent, arrived); err != nil {
		t.Fatal(err)
	}
	e := FromStatus(status.ErrorProto(arrived))
	if e.Code != CodeRetry || e.After != 7*time.Second || e.Error() != "busy: \uFFFD" {
		t.Errorf("arrived as %s after %v: %q", e.Code, e.After, e.Error())
	}
}
