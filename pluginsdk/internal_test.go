package pluginsdk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
)

// deaf is an exporter that hears nothing until release is closed.
type deaf struct {
	// on is the call that does not return: "export" or "shutdown".
	on                     string
	entered, release, left chan struct{}
}

func (d *deaf) Export(context.Context, *Batch) error { return d.call("export") }
func (d *deaf) Shutdown(context.Context) error       { return d.call("shutdown") }
func (d *deaf) call(name string) error {
	if name == d.on {
		close(d.entered)
		<-d.release
		close(d.left)
	}
	return nil
}

func TestEndIsBounded(t *testing.T) {
	for _, c := range []struct {
		name, deafOn string
		orphan       bool
		drain        time.Duration
		want         string
	}{
		{"export", "export", false, 200 * time.Millisecond, "1 calls in flight did not end in time"},
		{"shutdown", "shutdown", false, 200 * time.Millisecond, "the exporter's shutdown did not end in time"},
		{"orphan", "export", true, 0, "1 calls in flight did not end in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			exporter := &deaf{c.deafOn, make(chan struct{}), make(chan struct{}), make(chan struct{})}
			orphaned, orphan := context.WithCancel(t.Context())
			defer orphan()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			shake, shaken := io.Pipe()
			env := Env{
				Environ:      []string{wire.CookieKey + "=" + wire.CookieValue},
				Handshake:    shaken,
				orphaned:     orphaned,
				drainTimeout: c.drain,
			}
			ended := make(chan error, 1)
			go func() {
				ended <- Run(ctx, env, Spec{Name: "deaf", Exporter: func(context.Context, Setup) (Exporter, error) { return exporter, nil }})
			}()
			conn := dial(t, shake)
			var answered sync.WaitGroup
			if _, err := pluginv1.NewLifecycleClient(conn).Configure(t.Context(), &pluginv1.ConfigureRequest{}); err != nil {
				t.Fatal(err)
			}
			if c.deafOn == "export" {
				answered.Go(func() {
					_, _ = coltracepb.NewTraceServiceClient(conn).Export(t.Context(), &coltracepb.ExportTraceServiceRequest{})
				})
				<-exporter.entered
			}
			if c.orphan {
				orphan()
			} else {
				cancel()
			}
			err := <-ended
			if err == nil || err.Error() != c.want {
				t.Errorf("Run gives %v, want %s", err, c.want)
			}
			close(exporter.release)
			<-exporter.left
			answered.Wait()
		})
	}
}

// dial connects to the plugin that writes its handshake to shake.
func dial(t *testing.T, shake io.Reader) *grpc.ClientConn {
	t.Helper()
	line, err := bufio.NewReader(shake).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix:"+strings.Split(line, "|")[3], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestErrorsBecomeAnswers(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		name  string
		err   error
		code  string
		final bool
		after time.Duration
	}{
		{"plain", cause, "UNAVAILABLE", false, 0},
		{"permanent", Permanent(cause), "INVALID_ARGUMENT", true, 0},
		{"permanent, wrapped", fmt.Errorf("send: %w", Permanent(cause)), "INVALID_ARGUMENT", true, 0},
		{"permanent status keeps its code", Permanent(status.Error(codes.PermissionDenied, "no")), "PERMISSION_DENIED", true, 0},
		{"permanent around a code that is not", Permanent(status.Error(codes.Unavailable, "no")), "INVALID_ARGUMENT", true, 0},
		{"permanent after all", Permanent(RetryAfter(cause, time.Second)), "INVALID_ARGUMENT", true, 0},
		{"retry", RetryAfter(cause, time.Minute), "UNAVAILABLE", false, time.Minute},
		{"retry, no time", RetryAfter(cause, -1), "UNAVAILABLE", false, 0},
		{"status", fmt.Errorf("send: %w", status.Error(codes.Unauthenticated, "no")), "UNAUTHENTICATED", true, 0},
		{"cancelled", context.Canceled, "CANCELLED", false, 0},
		{"deadline", fmt.Errorf("send: %w", context.DeadlineExceeded), "DEADLINE_EXCEEDED", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := wire.FromStatus(wire.ToStatus(c.err))
			if got.Code != c.code || got.Final != c.final || got.After != c.after {
				t.Errorf("answer is %s, final %v, after %v; want %s, %v, %v", got.Code, got.Final, got.After, c.code, c.final, c.after)
			}
			words := strings.Replace(c.err.Error(), "rpc error: code = Unauthenticated desc = ", "", 1) // gRPC's, for nobody who has the code
			if !strings.Contains(got.Error(), "cause") && !strings.Contains(words, got.Error()) {
				t.Errorf("text is %q, want %q", got, words)
			}
		})
	}
	if Permanent(nil) != nil || RetryAfter(nil, time.Second) != nil {
		t.Error("nil does not stay nil")
	}
	if !errors.Is(Permanent(cause), cause) || !errors.Is(RetryAfter(cause, 0), cause) {
		t.Error("the cause is lost")
	}
}

func TestAsPartialWantsItAlone(t *testing.T) {
	partial := Partial(2, "old")
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"itself", partial, true},
		{"wrapped", fmt.Errorf("send: %w", partial), true},
		{"joined", errors.Join(partial, errors.New("other")), false},
		{"joined with nothing", fmt.Errorf("upload: %w", errors.Join(nil, partial)), true},
		{"permanent", Permanent(partial), false},
		{"none", errors.New("other"), false},
		{"nil", nil, false},
	} {
		if got := asPartial(c.err) != nil; got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := asPartial(Partial(-3, "")).rejected; got != 0 {
		t.Errorf("fewer than none rejected is %d", got)
	}
}

func TestLogHasHclogsNames(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&out)
	log.Debug("not shown")
	log.With("msg", "with", "k", 1).Warn("first", "level", "mine", "@message", 5, "time", time.Unix(0, 0).UTC())
	log.WithGroup("g").Error("second", "msg", "inside")
	log.Info("third", slog.Group("", "msg", "inlined"), slog.Group("@level", "a", 1))
	var got []map[string]any
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		at, _ := fields["@timestamp"].(string)
		if _, err := time.Parse(hclogTime, at); err != nil {
			t.Errorf("timestamp: %v", err)
		}
		delete(fields, "@timestamp")
		got = append(got, fields)
	}
	want := []map[string]any{
		{
			"@level": "warn", "@message": "first", "_msg": "with", "k": 1.0, "_level": "mine", "_@message": 5.0,
			"_time": "1970-01-01T00:00:00Z",
		},
		{"@level": "error", "@message": "second", "g": map[string]any{"msg": "inside"}},
		{"@level": "info", "@message": "third", "_msg": "inlined", "_@level": map[string]any{"a": 1.0}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	for level, want := range map[slog.Level]string{-8: "trace", -4: "debug", 0: "info", 4: "warn", 8: "error", 12: "error"} {
		if got := levelName(level); got != want {
			t.Errorf("level %d is %q, want %q", level, got, want)
		}
	}
}

func TestConfigError(t *testing.T) {
	cause := errors.New("is missing")
	for _, c := range []struct {
		err  *ConfigError
		want string
	}{
		{&ConfigError{Path: "a.b", Err: cause}, "a.b: is missing"},
		{&ConfigError{Err: cause}, "is missing"},
	} {
		if c.err.Error() != c.want || !errors.Is(c.err, cause) {
			t.Errorf("%q, want %q", c.err, c.want)
		}
	}
}

func TestProgramPathIsEscapedForTheList(t *testing.T) {
	got := program(Env{Args: []string{"/a,b/c=d/e@f"}}, Spec{})
	if want := "/a%2Cb/c%3Dd/e%40f"; got != want {
		t.Errorf("path is %q, want %q", got, want)
	}
	if got := program(Env{}, Spec{Name: "x"}); got != "./x" {
		t.Errorf("path is %q, want ./x", got)
	}
}

func TestDefaultsOfEnv(t *testing.T) {
	env := Env{Environ: []string{"A=1", "odd", "B=2", "A=3"}}
	for name, want := range map[string]string{"A": "3", "B": "2", "odd": "", "C": ""} {
		if got := env.lookup(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	stdout, stderr := sharedWriters(nil, nil)
	if _, err := fmt.Fprint(stdout, "x"); err != nil || stdout != stderr {
		t.Errorf("defaults do not write: %v", err)
	}
}

func TestPartialSuccessIsReadableWhateverTheMessage(t *testing.T) {
	var answer coltracepb.ExportTraceServiceResponse
	if err := proto.Unmarshal(otlpwire.PartialSuccess(3, "odd \xe4\xf6"), &answer); err != nil {
		t.Fatal(err)
	}
	if p := answer.GetPartialSuccess(); p.GetRejectedSpans() != 3 || p.GetErrorMessage() != "odd \uFFFD" {
		t.Errorf("partial success is %v", p)
	}
}

// TestKeptBatch: a plugin that keeps a batch beyond its call, against the rules, cannot
// read data that processors removed.
func TestKeptBatch(t *testing.T) {
	edited, read := teeBatch("1", 1), teeBatch("2", 1)
	for span := range edited.Spans() {
		span.SetName("redacted")
	}
	raw, bytesBefore := read.Bytes(), edited.Bytes()
	for range read.Spans() {
	}
	edited.release()
	read.release()
	if got := edited.Bytes(); edited.Len() != 0 || len(got) != 0 || !bytes.Contains(bytesBefore, []byte("redacted")) {
		t.Errorf("an edited batch has %d spans, in %q", edited.Len(), got)
	}
	for span := range edited.Spans() {
		t.Errorf("an edited batch still has %q", span.Name())
	}
	if got := read.Bytes(); read.Len() != 1 || !bytes.Equal(got, raw) {
		t.Errorf("a batch that was only read has %d spans, in %q", read.Len(), got)
	}
	NewBatch(nil).release() // nobody has looked into it
}
