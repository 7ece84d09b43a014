package faults

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
)

// secret is in the headers of each call, and nowhere else.
const secret = "s3cr3t-t0ken-that-nobody-may-see"

// refusal is an answer of the back end, by status or code.
type refusal struct {
	name string
	script
	// code is the code in the ledgers, and reason a part of the text for operators.
	code, reason string
	// final: it costs the batch. twice: it may have been taken.
	final, twice bool
	// held: the status says that the back end is left alone.
	held bool
}

// says is an HTTP answer with headers, name and value in turns.
func says(code int, text string, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
	}
}

// hangs until the client gives up.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func inTwoSeconds(w http.ResponseWriter, r *http.Request) {
	says(http.StatusServiceUnavailable, "we restart", "Retry-After", time.Now().UTC().Add(2*time.Second).Format(http.TimeFormat))(w, r)
}

// echoes quotes the caller's own key, as careless back ends do.
func echoes(w http.ResponseWriter, r *http.Request) {
	says(http.StatusUnauthorized, "the key "+r.Header.Get("X-Key")+" is unknown")(w, r)
}

var httpRefusals = []refusal{
	{name: "429", script: script{http: says(429, "slow down")}, code: "UNAVAILABLE", reason: "slow down"},
	{name: "429 retry after", script: script{http: says(429, "quota is used up", "Retry-After", "1")}, code: "UNAVAILABLE", reason: "quota is used up", held: true},
	{name: "503", script: script{http: says(503, "no shard")}, code: "UNAVAILABLE", reason: "no shard"},
	{name: "503 retry after", script: script{http: says(503, "we deploy", "Retry-After", "1")}, code: "UNAVAILABLE", reason: "we deploy", held: true},
	{name: "503 retry at", script: script{http: inTwoSeconds}, code: "UNAVAILABLE", reason: "we restart", held: true},
	{name: "502", script: script{http: says(502, "upstream gone")}, code: "UNAVAILABLE", reason: "502"},
	{name: "504", script: script{http: says(504, "upstream slow"), unsaid: true}, code: "UNAVAILABLE", reason: "504", twice: true},
	{name: "400", script: script{http: says(400, "span has no name")}, code: "INVALID_ARGUMENT", reason: "span has no name", final: true},
	{name: "401", script: script{http: echoes}, code: "UNAUTHENTICATED", reason: "is unknown", final: true},
	{name: "403", script: script{http: says(403, "wrong tenant")}, code: "PERMISSION_DENIED", reason: "wrong tenant", final: true},
	{name: "404", script: script{http: says(404, "no such path")}, code: "NOT_FOUND", reason: "no such path", final: true},
	{name: "413", script: script{http: says(413, "too large")}, code: "RESOURCE_EXHAUSTED", reason: "too large", final: true},
	{name: "500", script: script{http: says(500, "nil pointer")}, code: "INTERNAL", reason: "nil pointer", final: true},
	{name: "partial", script: script{rejects: 3, message: "three are too old"}, code: "PARTIAL_SUCCESS", reason: "three are too old", final: true},
	{name: "hangs", script: script{http: hangs}, code: "DEADLINE_EXCEEDED", reason: "no answer from"},
	{name: "answers late", script: script{http: hangs, unsaid: true}, code: "DEADLINE_EXCEEDED", reason: "no answer from", twice: true},
	{
		name: "cuts the connection", code: "UNAVAILABLE", reason: "cut the connection before it answered", twice: true,
		script: script{http: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, unsaid: true},
	},
}

// fails is an error of gRPC, with RetryInfo where after is not zero.
func fails(code codes.Code, text string, after time.Duration) func(context.Context) error {
	st := status.New(code, text)
	if after > 0 {
		st, _ = st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}) // neither is OK
	}
	return func(context.Context) error { return st.Err() }
}

func waits(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

var grpcRefusals = []refusal{
	{name: "unavailable", script: script{grpc: fails(codes.Unavailable, "no shard", 0)}, code: "UNAVAILABLE", reason: "no shard"},
	{name: "retry info", script: script{grpc: fails(codes.Unavailable, "we deploy", time.Second)}, code: "UNAVAILABLE", reason: "we deploy", held: true},
	{name: "exhausted with retry info", script: script{grpc: fails(codes.ResourceExhausted, "slow down", time.Second)}, code: "RESOURCE_EXHAUSTED", reason: "slow down", held: true},
	{name: "exhausted", script: script{grpc: fails(codes.ResourceExhausted, "quota is used up", 0)}, code: "RESOURCE_EXHAUSTED", reason: "quota is used up", final: true},
	{name: "invalid", script: script{grpc: fails(codes.InvalidArgument, "span has no name", 0)}, code: "INVALID_ARGUMENT", reason: "span has no name", final: true},
	{name: "unauthenticated", script: script{grpc: fails(codes.Unauthenticated, "unknown key", 0)}, code: "UNAUTHENTICATED", reason: "unknown key", final: true},
	{name: "denied", script: script{grpc: fails(codes.PermissionDenied, "wrong tenant", 0)}, code: "PERMISSION_DENIED", reason: "wrong tenant", final: true},
	{name: "internal", script: script{grpc: fails(codes.Internal, "nil pointer", 0)}, code: "INTERNAL", reason: "nil pointer", final: true},
	{name: "aborted", script: script{grpc: fails(codes.Aborted, "conflict", 0)}, code: "ABORTED", reason: "conflict"},
	{name: "partial", script: script{rejects: 3, message: "three are too old"}, code: "PARTIAL_SUCCESS", reason: "three are too old", final: true},
	{name: "hangs", script: script{grpc: waits}, code: "DEADLINE_EXCEEDED", reason: "no answer from"},
	{name: "answers late", script: script{grpc: waits, unsaid: true}, code: "DEADLINE_EXCEEDED", reason: "no answer from", twice: true},
}

func TestAnswersOverHTTP(t *testing.T) {
	for _, r := range httpRefusals {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			b := startBackend(t)
			list, env := otlp(t, "http/protobuf", b.http, "OTEL_EXPORTER_OTLP_HEADERS", "x-key="+secret, host.EnvExportTimeout, "3s")
			r.test(t, "otlp", b, startService(t, list, env))
		})
	}
}

func TestAnswersOverGRPC(t *testing.T) {
	for _, r := range grpcRefusals {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			b := startBackend(t)
			list, env := otlp(t, "grpc", b.grpc, "OTEL_EXPORTER_OTLP_HEADERS", "x-key="+secret, host.EnvExportTimeout, "3s")
			r.test(t, "otlp", b, startService(t, list, env))
		})
	}
}

// test has spans flow, the back end refuse, and then take them again.
func (r refusal) test(t *testing.T, name string, b *backend, s *service) {
	stop := s.load()
	defer func() { stop() }()
	s.delivers(name)
	b.act(r.script)
	s.await(name, "answers "+r.code, func(p admin.Plugin) bool {
		n := uint64(0)
		for _, f := range p.Failures {
			if f.Code == r.code {
				n += f.Calls
			}
		}
		return n >= 3 && (p.Spans.Rejected[r.code] > 0) == r.final
	})
	if r.held {
		s.await(name, "the pause that was asked for", func(p admin.Plugin) bool { return !p.HeldUntil.IsZero() })
	}
	b.act(script{})
	s.delivers(name)
	stop()
	stop = func() {}
	s.settled(name)
	s.wantAt(name, b.received(), r.twice)
	s.wantReason(name, r.code, r.reason)
	p := s.plugin(name)
	if lost := p.Spans.Lost(); (lost > 0) != r.final || lost != p.Spans.Rejected[r.code] {
		t.Errorf("books: %+v; want losses as %s only: %v", p.Spans, r.code, r.final)
	}
	for _, place := range []string{s.log.String(), s.get("/-/tracing.json"), s.get("/metrics"), s.get("/-/tracing")} {
		if strings.Contains(place, secret) {
			t.Error("the key is shown")
		}
	}
}
