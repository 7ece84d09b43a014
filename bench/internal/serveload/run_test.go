package serveload

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/bench/internal/benchtest"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/internal/otlpwire"
)

func TestMain(m *testing.M) {
	benchtest.Main(sink.Roles, Roles)
	os.Exit(m.Run())
}

// newEnv returns an environment, in which this test binary is every program.
func newEnv(t *testing.T) *suite.Env {
	t.Helper()
	into, err := sink.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = into.Close() })
	bin := benchtest.Bin(t)
	t.Setenv("TMPDIR", bin)
	return &suite.Env{Bin: bin, Sink: into}
}

// TestScenes runs short turns of every kind of row. A lost span or a wrong answer is an
// error.
func TestScenes(t *testing.T) {
	env := newEnv(t)
	for _, s := range scenes {
		t.Run(s.Name, func(t *testing.T) {
			const moment = 20 * time.Millisecond
			s.turns = turns{n: 2, lead: moment, length: moment, warmUp: moment}
			names := slices.DeleteFunc(slices.Clone(s.Rows), func(row string) bool { return row == rowLogged || row == rowCrashing })
			round, err := s.run(t.Context(), env, names)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				metrics := []string{requests, cpuServer}
				if s.calls {
					metrics = []string{calls, cpuCall, allocsCall, p50, p99}
				}
				if rows[name].ratio == "1" && rows[name].by == byOurs && rows[name].broken == "" {
					metrics = append(metrics, cpuPlugin, cpuTotal)
				}
				for _, metric := range metrics {
					if value := round.Get(name, metric); !(value > 0) {
						t.Errorf("%s: %s = %v", name, metric, value)
					}
				}
			}
		})
	}
}

func TestAudit(t *testing.T) {
	at := func(ratio string, ended, delivered uint64) *contender {
		return &contender{name: "a row", row: row{ratio: ratio}, account: account{Ended: ended, Delivered: delivered}, made: made{All: 10}}
	}
	broken := at("1", 30, 0)
	broken.row.broken = "hung"
	for name, c := range map[string]struct {
		all   []*contender
		taken uint64
		fault string
	}{
		"two rows":           {[]*contender{at("1", 30, 30), at("1", 30, 30)}, 60, ""},
		"some are sampled":   {[]*contender{at("0.1", 3, 3)}, 3, ""},
		"beside a broken":    {[]*contender{broken, at("1", 30, 30)}, 31, ""},
		"not delivered":      {[]*contender{at("1", 30, 29)}, 29, "spans were lost"},
		"not at the sink":    {[]*contender{at("1", 30, 30)}, 29, "spans were lost"},
		"fewer than sampled": {[]*contender{at("1", 27, 27)}, 27, `27 spans ended at ratio "1"`},
		"none were due":      {[]*contender{at("0", 3, 3)}, 3, `3 spans ended at ratio "0"`},
		"tracing is off":     {[]*contender{at("", 3, 3)}, 3, `3 spans ended at ratio ""`},
		"more than can be":   {[]*contender{at("0.1", 33, 33)}, 33, `33 spans ended at ratio "0.1"`},
	} {
		err := audit(c.all, c.taken)
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: got %v, want %q", name, err, c.fault)
		}
	}
}

func TestClaimsHaveTheirRows(t *testing.T) {
	benchtest.CheckClaims(t, Shapes(), requests, cpuServer, cpuTotal, allocs, cpuCall, p99)
}

// connect opens connections of 16 callers.
func connect(t *testing.T, app string, addrs ...string) *load {
	t.Helper()
	l, err := dial(t.Context(), byBare, app, 16, addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.close() })
	return l
}

// TestLoadCounts runs several turns on the same connections, and checks that client and
// server count the same calls.
func TestLoadCounts(t *testing.T) {
	var seen atomic.Uint64
	web, err := serveHTTP(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		hello(w, r)
	})
	if err != nil {
		t.Fatal(err)
	}
	backend := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		seen.Add(1)
		return handler(ctx, in)
	}))
	testpb.RegisterTestServiceServer(backend, echo{})
	rpc, err := serveGRPC(backend)
	if err != nil {
		t.Fatal(err)
	}
	for app, s := range map[string]*server{appHello: web, appEcho: rpc} {
		seen.Store(0)
		l := connect(t, app, s.addr, s.addr)
		const moment = 10 * time.Millisecond
		for _, o := range []order{{}, {Length: moment}, {Length: moment, Uncounted: true}, {Length: moment}} {
			if err := l.turn(o); err != nil {
				t.Fatalf("%s: %v", app, err)
			}
		}
		if m := l.made(); m.All != seen.Load() || m.Calls < 2*16 || m.Calls > m.All-16 || m.Took < 2*moment || m.P50 <= 0 || m.P99 < m.P50 {
			t.Errorf("%s: made %+v, the server saw %d", app, m, seen.Load())
		}
		if _, err := s.stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestLoadReportsWrongAnswers(t *testing.T) {
	for want, answer := range map[string]http.HandlerFunc{
		`status 500 and "no"`:     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); _, _ = w.Write([]byte("no")) },
		`status 200 and "hello!"`: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello!")) },
		"EOF":                     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		s := httptest.NewServer(answer)
		if err := connect(t, appHello, s.Listener.Addr().String()).turn(order{Length: time.Hour}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		s.Close()
	}
	if err := checked([]byte("something else"), nil); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("a wrong answer: %v", err)
	}
}

// describe returns the name, kind, status and sorted attribute keys of each span.
func describe(t *testing.T, body io.Reader) (spans []string) {
	t.Helper()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := otlpwire.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	for span := range request.Spans() {
		var keys []string
		for a := range span.Attributes() {
			keys = append(keys, string(a.Key))
		}
		slices.Sort(keys)
		code, _ := span.Status()
		spans = append(spans, fmt.Sprintln(span.Name(), span.Kind(), code, strings.Join(keys, "\n\t")))
	}
	return spans
}

// TestThreeSpansAreOurs compares the spans of the SDK's server with our server's spans
// of the same request.
func TestThreeSpansAreOurs(t *testing.T) {
	spansOf := func(by string) (spans []string) {
		t.Helper()
		var mu sync.Mutex
		sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			spans = append(spans, describe(t, r.Body)...)
			w.Header().Set("Content-Type", "application/x-protobuf")
		}))
		defer sink.Close()
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.URL)
		s, err := start(t.Context(), by, appHello)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.Get("http://" + s.addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK || answer.Header.Get(headerRequestID) == "" {
			t.Errorf("status %d, headers %v", answer.StatusCode, answer.Header)
		}
		if _, err := s.stop(); err != nil {
			t.Error(err)
		}
		slices.Sort(spans)
		return spans
	}
	env := newEnv(t)
	t.Setenv("SERVE_TRACING_EXPORTER_PLUGIN", pluginName+"="+env.Bin+"/plugins/otlp")
	t.Setenv("SERVE_TRACING_PLUGIN_WRITABLE", "allow")
	t.Setenv("SERVE_TRACING_STOP_TIMEOUT", "20s")
	want := spansOf(byOurs)
	if got := spansOf(byThreeSpans); len(want) != spansOfRequest || cmp.Diff(want, got) != "" {
		t.Errorf("spans of ours, %d, and of the other server (-want +got)\n%s", len(want), cmp.Diff(want, got))
	}
}
