package tracing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/tracing"
)

const logTrace = "0af7651916cd43dd8448eb211c80319c"

// logContext returns the context of user code in a replica.
func logContext(t *testing.T, flags trace.TraceFlags) context.Context {
	t.Helper()
	trace128, err := trace.TraceIDFromHex(logTrace)
	if err != nil {
		t.Fatal(err)
	}
	ctx := identity.ContextWithRequest(t.Context(), &identity.Request{
		ID: "r-1", App: "a", Deployment: "D", Component: identity.NewReplica("0a1b2c3d", "a", "D"),
	})
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace128, SpanID: trace.SpanID{1, 2}, TraceFlags: flags,
	}))
}

func TestLogHandler(t *testing.T) {
	for _, tt := range []struct {
		name string
		log  func(*slog.Logger, context.Context)
		want string // without time, level and msg; the replica is R
	}{
		{
			"line",
			func(l *slog.Logger, ctx context.Context) { l.InfoContext(ctx, "m", "k", "v") },
			`{"app":"a","deployment":"D","k":"v","replica":"R","request_id":"r-1","span_id":"0102000000000000","trace_id":"` + logTrace + `"}`,
		},
		{
			"without context",
			func(l *slog.Logger, _ context.Context) { l.Info("m", "k", "v") },
			`{"k":"v"}`,
		},
		{
			"group stays below",
			func(l *slog.Logger, ctx context.Context) {
				l.With("x", 1).WithGroup("g").With("y", 2).WithGroup("h").InfoContext(ctx, "m", "z", 3)
			},
			`{"app":"a","deployment":"D","g":{"h":{"z":3},"y":2},"replica":"R","request_id":"r-1","span_id":"0102000000000000","trace_id":"` + logTrace + `","x":1}`,
		},
		{
			"own keys stay",
			func(l *slog.Logger, ctx context.Context) {
				l.With("app", "mine").InfoContext(ctx, "m", "request_id", "mine", "trace_id", "mine")
			},
			`{"app":"mine","deployment":"D","replica":"R","request_id":"mine","span_id":"0102000000000000","trace_id":"mine"}`,
		},
		{
			"own keys in a group are others",
			func(l *slog.Logger, ctx context.Context) {
				l.With("replica", "mine").WithGroup("g").With("app", "below").InfoContext(ctx, "m", "request_id", "below")
			},
			`{"app":"a","deployment":"D","g":{"app":"below","request_id":"below"},"replica":"mine","request_id":"r-1","span_id":"0102000000000000","trace_id":"` + logTrace + `"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			ctx := logContext(t, trace.FlagsSampled)
			tt.log(slog.New(tracing.NewLogHandler(slog.NewJSONHandler(&out, nil))), ctx)
			text := strings.ReplaceAll(out.String(), identity.RequestFromContext(ctx).Component.UniqueID(), "R")
			for key := range strings.SplitSeq(tt.want, `"`) { // a key that is there twice is no JSON to some
				if n := strings.Count(text, `"`+key+`":`); strings.HasSuffix(key, "_id") && n > strings.Count(tt.want, `"`+key+`":`) {
					t.Errorf("%s is there %d times in %s", key, n, text)
				}
			}
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			for _, key := range []string{"time", "level", "msg"} {
				delete(line, key)
			}
			got, err := json.Marshal(line)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

// An unsampled request has the trace id that its caller knows, and no span.
func TestLogHandlerUnsampled(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(tracing.NewLogHandler(slog.NewTextHandler(&out, nil)))
	log.InfoContext(logContext(t, 0), "m")
	if text := out.String(); !strings.Contains(text, "trace_id="+logTrace) || strings.Contains(text, "span_id") {
		t.Errorf("line %q", text)
	}
}

// A record that several handlers get is the same to all of them.
// TestLogHandlerOutsideOfRequests: of a replica's own code one sees which replica
// it is, and a request that it makes goes over it.
func TestLogHandlerOutsideOfRequests(t *testing.T) {
	replica, other := identity.NewReplica("0a1b2c3d", "a", "D"), identity.NewReplica("0a1b2c3d", "a", "E")
	var out bytes.Buffer
	log := slog.New(tracing.NewLogHandler(slog.NewTextHandler(&out, nil)))
	ctx := identity.ContextWithReplica(t.Context(), replica)
	log.InfoContext(ctx, "m")
	log.InfoContext(identity.ContextWithRequest(ctx, &identity.Request{ID: "r-1", App: "a", Deployment: "E", Component: other}), "m")
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{
		"app=a deployment=D replica=" + replica.UniqueID(),
		"request_id=r-1 app=a deployment=E replica=" + other.UniqueID(),
	} {
		if !strings.HasSuffix(lines[i], "msg=m "+want) {
			t.Errorf("line %q, want it to end in %q", lines[i], want)
		}
	}
}

func TestLogHandlerLeavesTheRecord(t *testing.T) {
	h := tracing.NewLogHandler(slog.DiscardHandler)
	r := slog.Record{}
	r.AddAttrs(slog.Int("a", 1))
	if err := h.Handle(logContext(t, trace.FlagsSampled), r); err != nil {
		t.Fatal(err)
	}
	if n := r.NumAttrs(); n != 1 {
		t.Errorf("the record has %d attributes", n)
	}
}

// The rules for any handler, with a context that has ids.
func TestLogHandlerIsAHandler(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return tracing.NewLogHandler(slog.NewJSONHandler(&out, nil))
	}, func(t *testing.T) map[string]any {
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return line
	})
}
