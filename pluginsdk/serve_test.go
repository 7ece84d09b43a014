package pluginsdk_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

func TestHandshakeLine(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		if want := "1|1|unix|" + r.socket + "|grpc|"; r.handshake != want {
			t.Errorf("handshake is %q, want %q", r.handshake, want)
		}
	})
}

func TestDescribeSaysWhatTheSpecSays(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		got, err := r.lifecycle.Describe(t.Context(), &pluginv1.DescribeRequest{HostVersion: "1"})
		if err != nil {
			t.Fatal(err)
		}
		if pluginsdk.Version() == "" {
			t.Error("no SDK version")
		}
		want := &pluginv1.DescribeResponse{
			Name: "test", Version: "1.2.3", Description: "does what the names of spans say",
			Sdk: &pluginv1.Sdk{
				Name: "github.com/servetrace/servetrace/pluginsdk", Version: pluginsdk.Version(), Language: "go",
			},
			Kind:        pluginv1.Kind_KIND_EXPORTER,
			Limits:      &pluginv1.Limits{MaxBatchSpans: 100, MaxConcurrency: 32},
			EnvPatterns: []string{"TEST_*", "DD_SITE"},
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("Describe (-want +got):\n%s", diff)
		}
	})
}

func TestHealth(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		answer, err := healthpb.NewHealthClient(r.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: wire.HealthService})
		if err != nil || answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health is %v, %v", answer.GetStatus(), err)
		}
		// A watch that stayed open would hold up the plugin's end.
		watch, err := healthpb.NewHealthClient(r.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: wire.HealthService})
		if err == nil {
			_, err = watch.Recv()
		}
		want := "rpc error: code = Unimplemented desc = health checks by Watch are not served: call Check"
		if err == nil || err.Error() != want {
			t.Errorf("Watch: %v, want %s", err, want)
		}
	})
}

func TestConfigureGrantsVariables(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		answer, err := r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{
			Env:    map[string]string{"TEST_VALUE": "granted"},
			Config: []byte("level: 3"),
			Context: &pluginv1.StaticContext{
				Application: "app", Deployment: "dep", Replica: "rep", Node: "10.0.0.1",
				Job: "01000000", ServiceName: "shop", PluginName: "main", SamplingRatio: 0.25,
				Terminal: true, TerminalColumns: 80,
			},
		})
		if err != nil || len(answer.GetDiagnostics()) > 0 {
			t.Fatalf("Configure: %v, %v", answer, err)
		}
		if _, err := r.traces.Export(t.Context(), named("environment")); err != nil {
			t.Fatal(err)
		}
		inProcess := "granted" // libraries find it in a real process
		if r.process == nil {
			inProcess = ""
		}
		r.stdout.await(t, fmt.Sprintf("Getenv \"granted\" os %q HOME \"/nowhere\" other \"\"\n", inProcess))
		r.stderr.await(t, `"context":"{Application:app Deployment:dep Replica:rep Node:10.0.0.1 Job:01000000 ServiceName:shop PluginName:main SamplingRatio:0.25 Terminal:true TerminalColumns:80}","config":"level: 3"`)
	})
}

func TestConfigureAnswersDiagnostics(t *testing.T) {
	const warning, fault = pluginv1.Severity_SEVERITY_WARNING, pluginv1.Severity_SEVERITY_ERROR
	for _, c := range []struct {
		construct string
		want      []*pluginv1.Diagnostic
		// export is the code of an Export afterwards.
		export string
	}{
		{"warn", []*pluginv1.Diagnostic{{Severity: warning, Path: "TEST_CONSTRUCT", Text: "is odd"}}, "OK"},
		{"fail", []*pluginv1.Diagnostic{
			{Severity: warning, Text: "worse follows"},
			{Severity: fault, Path: "TEST_CONSTRUCT", Text: `"fail" is not allowed`},
			{Severity: fault, Path: "a.b", Text: "document: a.b: is missing"},
			{Severity: fault, Text: "and more"},
		}, "FAILED_PRECONDITION"},
		{"panic", []*pluginv1.Diagnostic{
			{Severity: fault, Text: "construct exporter: panic: constructor's panic"},
		}, "FAILED_PRECONDITION"},
		{"nothing", []*pluginv1.Diagnostic{
			{Severity: fault, Text: "constructor gave neither a value nor an error"},
		}, "FAILED_PRECONDITION"},
	} {
		t.Run(c.construct, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, r *running) {
				got, err := r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{Env: map[string]string{"TEST_CONSTRUCT": c.construct}})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, got.GetDiagnostics(), protocmp.Transform()); diff != "" {
					t.Errorf("diagnostics (-want +got):\n%s", diff)
				}
				_, err = r.traces.Export(t.Context(), named("fine"))
				if code := codeOf(err); code != c.export {
					t.Errorf("Export answers %s (%v), want %s", code, err, c.export)
				}
			})
		})
	}
}

// codeOf is the name of the code of a call's error.
func codeOf(err error) string {
	if err == nil {
		return "OK"
	}
	return wire.FromStatus(err).Code
}

func TestOrderOfCalls(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		call := func(what, want string, err error) {
			t.Helper()
			if got := codeOf(err); got != want {
				t.Errorf("%s answers %s (%v), want %s", what, got, err, want)
			}
		}
		_, err := r.traces.Export(t.Context(), named("early"))
		call("Export before Configure", "FAILED_PRECONDITION", err)
		_, err = r.lifecycle.Flush(t.Context(), &pluginv1.FlushRequest{})
		call("Flush before Configure", "FAILED_PRECONDITION", err)
		r.configure(t, nil)
		_, err = r.lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{})
		call("second Configure", "FAILED_PRECONDITION", err)
		_, err = r.lifecycle.Flush(t.Context(), &pluginv1.FlushRequest{Timeout: durationpb.New(time.Second)})
		call("Flush", "OK", err)
		_, err = r.traces.Export(t.Context(), named("fine"))
		call("Export", "OK", err)
		for range 2 {
			_, err = r.lifecycle.Shutdown(t.Context(), &pluginv1.ShutdownRequest{Timeout: durationpb.New(time.Second)})
			call("Shutdown", "OK", err)
		}
		_, err = r.traces.Export(t.Context(), named("late"))
		call("Export after Shutdown", "UNAVAILABLE", err)
		r.closeStdin()
		if err := r.wait(); err != nil {
			t.Errorf("end: %v", err)
		}
		// Once by Flush, once before the one Shutdown.
		if got, want := r.stdout.String(), "flushed\nflushed\nshut down\n"; got != want {
			t.Errorf("exporter saw %q, want %q", got, want)
		}
	})
}

func TestAnswersToExport(t *testing.T) {
	for _, c := range []struct {
		spans    []string
		code     string
		final    bool
		after    time.Duration
		message  string
		rejected int64
		filtered []string
		log      string
	}{
		{spans: []string{"fine"}, code: "OK"},
		{spans: []string{"fail"}, code: "UNAVAILABLE", message: "export: back end says no"},
		{spans: []string{"fail for ever"}, code: "INVALID_ARGUMENT", final: true, message: "export: back end says no"},
		{spans: []string{"fail for a while"}, code: "UNAVAILABLE", after: 1500 * time.Millisecond, message: "export: back end says no"},
		{spans: []string{"partial"}, code: "OK", rejected: 1, message: "one was too old"},
		{spans: []string{"partial beyond"}, code: "OK", rejected: 1, message: "all were too old"},
		// Joined with an error, a partial success is none.
		{spans: []string{"partial", "fail"}, code: "UNAVAILABLE", message: "export: 1 spans rejected: one was too old\nback end says no"},
		{spans: []string{"panic"}, code: "INTERNAL", final: true, message: "export: panic: exporter's panic", log: "testExporter"},
		{spans: []string{"process: panic"}, code: "INTERNAL", final: true, message: `processor "processor-2": panic: processor's panic`, log: "faultyProcessor"},
		{spans: []string{"process: fail"}, code: "UNAVAILABLE", message: `processor "processor-2": cannot process`},
		{
			spans: []string{"process: partial"}, code: "INVALID_ARGUMENT", final: true,
			message: `processor "processor-2": 1 spans rejected: not a processor's word: only an exporter can deliver in part`,
		},
		{spans: []string{"health 1", "a", "health 2", "process: drop"}, code: "OK", filtered: []string{"health=2", "processor-2=1"}},
		{spans: []string{"sample", "a", "sample"}, code: "OK", filtered: []string{"test.sampler=2"}},
		{spans: []string{"health 1", "sample", "partial"}, code: "OK", rejected: 1, message: "one was too old", filtered: []string{"health=1", "test.sampler=1"}},
		{spans: []string{"sample", "fail"}, code: "UNAVAILABLE", message: "export: back end says no"},
		{spans: []string{"health 1"}, code: "OK", filtered: []string{"health=1"}},
		// The host counts the whole batch under the error.
		{spans: []string{"health 1", "fail"}, code: "UNAVAILABLE", message: "export: back end says no"},
	} {
		t.Run(strings.Join(c.spans, ","), func(t *testing.T) {
			forEachKind(t, func(t *testing.T, r *running) {
				r.configure(t, nil)
				var trailer metadata.MD
				answer, err := r.traces.Export(t.Context(), named(c.spans...), grpc.Trailer(&trailer))
				if diff := cmp.Diff(c.filtered, trailer.Get(wire.MetaFiltered)); diff != "" {
					t.Errorf("filtered (-want +got):\n%s", diff)
				}
				if err == nil {
					if c.code != "OK" {
						t.Errorf("answer is OK, want %s", c.code)
					}
					partial := answer.GetPartialSuccess()
					if partial.GetRejectedSpans() != c.rejected || partial.GetErrorMessage() != c.message {
						t.Errorf("partial success is %v, want %d %q", partial, c.rejected, c.message)
					}
					return
				}
				got := wire.FromStatus(err)
				if got.Code != c.code || got.Final != c.final || got.After != c.after || got.Error() != c.message {
					t.Errorf("answer is %+v, want %+v", got, c)
				}
				if c.log != "" {
					r.stderr.await(t, c.log) // the stack names the culprit
				}
			})
		})
	}
}

// TestExporterHasTimeToAnswer: an exporter that waits for its back end until the end of
// the call returns its own error, and not gRPC's.
func TestExporterHasTimeToAnswer(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var trailer metadata.MD
		_, err := r.traces.Export(ctx, named("until told"), grpc.Trailer(&trailer))
		if got := wire.FromStatus(err); got == nil || got.Code != "DEADLINE_EXCEEDED" || len(trailer) == 0 {
			t.Errorf("answer is %v with trailer %v, want the exporter's own DEADLINE_EXCEEDED", err, trailer)
		}
	})
}

func TestExportKnowsTheBatch(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		request := named("who", "health", "other")
		want := named("who", "other")
		want.ResourceSpans[0].ScopeSpans[0].Spans[1].SpanId[7] = 3
		ctx := metadata.AppendToOutgoingContext(t.Context(), wire.MetaBatchID, "host-1", wire.MetaAttempt, "3")
		if _, err := r.traces.Export(ctx, request); err != nil {
			t.Fatal(err)
		}
		r.stdout.await(t, fmt.Sprintf("id \"host-1\" attempt 3 spans 2 bytes %d\n", len(encode(t, want))))
		if _, err := r.traces.Export(t.Context(), named("who")); err != nil {
			t.Fatal(err)
		}
		r.stdout.await(t, "id \"\" attempt 1 spans 1")
	})
}

func TestMalformedBatchIsFinal(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		err := r.conn.Invoke(t.Context(), wire.ExportMethod, rawMessage("\x0a\x7fno"), new(rawMessage), grpc.ForceCodecV2(rawCodec{}))
		if got := wire.FromStatus(err); got == nil || got.Code != "INVALID_ARGUMENT" || !strings.Contains(got.Error(), "malformed batch") {
			t.Errorf("answer is %v, want INVALID_ARGUMENT, malformed batch", err)
		}
	})
}

func TestBigMessage(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		request := named("who")
		span := request.ResourceSpans[0].ScopeSpans[0].Spans[0]
		span.Attributes = append(span.Attributes, text("big", strings.Repeat("x", 20<<20)))
		if _, err := r.traces.Export(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		r.stdout.await(t, fmt.Sprintf("spans 1 bytes %d\n", len(encode(t, request))))
	})
}

func TestExportConcurrentSafe(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		const callers, calls = 16, 20
		var group sync.WaitGroup
		for caller := range callers {
			group.Go(func() {
				for call := range calls {
					ctx := metadata.AppendToOutgoingContext(t.Context(), wire.MetaBatchID, fmt.Sprintf("%d-%d", caller, call))
					if _, err := r.traces.Export(ctx, named("who", "health")); err != nil {
						t.Errorf("call %d of %d: %v", call, caller, err)
					}
				}
			})
		}
		group.Wait()
		for caller := range callers {
			for call := range calls {
				r.stdout.await(t, fmt.Sprintf("id \"%d-%d\" attempt 1 spans 1", caller, call))
			}
		}
	})
}

func TestRunTwiceAtOnce(t *testing.T) {
	first, second := startRun(t, testSpec), startRun(t, testSpec)
	first.configure(t, map[string]string{"TEST_VALUE": "one"})
	second.configure(t, map[string]string{"TEST_VALUE": "two"})
	for _, r := range []*running{first, second} {
		if _, err := r.traces.Export(t.Context(), named("environment")); err != nil {
			t.Fatal(err)
		}
	}
	first.stdout.await(t, `Getenv "one"`)
	second.stdout.await(t, `Getenv "two"`)
}
