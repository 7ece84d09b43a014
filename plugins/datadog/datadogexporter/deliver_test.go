package datadogexporter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
)

// traces makes a batch of n traces of one span each. from makes them differ from the
// traces of other batches.
func traces(from, n int) *pluginsdk.Batch {
	spans := make([]*tracepb.Span, 0, n)
	for i := range n {
		spans = append(spans, span(1, 1, 0, func(s *tracepb.Span) {
			binary.BigEndian.PutUint64(s.GetTraceId()[8:], uint64(from+i+1))
			binary.BigEndian.PutUint64(s.GetSpanId(), uint64(from+i+1))
		}))
	}
	return batch(nil, spans...)
}

// distinct counts the spans that the agent has, each once.
func distinct(spans []got) int {
	ids := make([]uint64, 0, len(spans))
	for _, s := range spans {
		ids = append(ids, s.span)
	}
	slices.Sort(ids)
	return len(slices.Compact(ids))
}

func TestManyTracesAreAllAcknowledged(t *testing.T) {
	const batches, size = 10, 2000
	a := startAgent(t)
	e := open(t, a)
	for i := range batches {
		if err := export(t, e, traces(i*size, size)); err != nil {
			t.Fatal(err)
		}
		// Acknowledged means there, now, and each once.
		if all := a.taken(); len(all) != (i+1)*size || distinct(all) != len(all) {
			t.Fatalf("the agent has %d spans, %d of them distinct, after %d", len(all), distinct(all), (i+1)*size)
		}
	}
	a.mu.Lock() // statistics may still come
	paths, head := slices.Clone(a.paths), a.heads[0]
	a.mu.Unlock()
	for _, path := range paths {
		if path != "GET /info" && path != "POST /v0.4/traces" && path != "POST /v0.6/stats" {
			t.Errorf("the plugin also asks for %s", path)
		}
	}
	if head.Get(headerRealStatus) != "true" || head.Get("Datadog-Client-Computed-Top-Level") == "" || head.Get("Datadog-Client-Computed-Stats") != "yes" ||
		head.Get("Datadog-Meta-Lang") != "go" {
		t.Errorf("headers are %v", head)
	}
}

// TestFaultyAgent: one payload fails in many ways. An error that another attempt can mend
// is retryable, any other is final, and nothing arrives twice.
func TestFaultyAgent(t *testing.T) {
	for name, c := range map[string]struct {
		now   func(http.ResponseWriter, *http.Request)
		final bool
		want  string
	}{
		"503":        {status(503), false, "answers 503 Service Unavailable to /v0.4/traces"},
		"429":        {status(429, "Retry-After", "7"), false, "answers 429 Too Many Requests"},
		"500":        {status(500), false, "answers 500"},
		"408":        {status(408), false, "answers 408"},
		"reset":      {reset, false, "does not answer: EOF"},
		"400":        {status(400), true, "answers 400 Bad Request"},
		"403":        {status(403), true, "answers 403"},
		"404":        {status(404), true, "is it a Datadog agent?"},
		"redirected": {status(307, "Location", "/elsewhere"), true, "answers 307"},
		"switched":   {switched, true, "answers 101 Switching Protocols"},
		"all header": {status(503, "X-Much", strings.Repeat("x", 1<<20)), false, "response headers exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAgent(t)
			e := open(t, a)
			a.then(c.now, c.now, c.now, c.now) // net/http itself tries a cut connection again
			err := export(t, e, traces(0, 3))
			if err == nil || pluginsdk.Final(err) != c.final || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error is %v, final %v, want final %v and %q", err, pluginsdk.Final(err), c.final, c.want)
			}
			if !strings.Contains(err.Error(), a.URL) {
				t.Errorf("error %v does not say where the agent is", err)
			}
			a.set(func(a *fakeAgent) { a.first = nil })
			if err := export(t, e, traces(0, 3)); err != nil {
				t.Fatal(err)
			}
			if all := a.taken(); len(all) != 3 || distinct(all) != 3 {
				t.Errorf("the agent has %d spans, want 3", len(all))
			}
		})
	}
}

// switched gives the connection away, which from then on has neither an end nor
// a deadline.
func switched(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: any\r\n\r\n")
	_, _ = conn.Read(make([]byte, 1)) // until the plugin hangs up
}

func TestNobodyListens(t *testing.T) {
	a := startAgent(t)
	a.Close()
	err := export(t, open(t, a), traces(0, 1))
	if err == nil || pluginsdk.Final(err) || !strings.Contains(err.Error(), "no Datadog agent listens at "+a.URL+": start it, or set DD_AGENT_HOST or DD_TRACE_AGENT_URL") {
		t.Errorf("error is %v", err)
	}
	s, _ := setup("DD_TRACE_AGENT_URL=unix://" + t.TempDir() + "/apm.socket")
	e, err := New(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Shutdown(t.Context()) }()
	if err := export(t, e, traces(0, 1)); err == nil || pluginsdk.Final(err) || !strings.Contains(err.Error(), "no Datadog agent has its socket at unix://") {
		t.Errorf("error is %v", err)
	}
}

// TestSomethingElseListens: the error names the server, and the setting to change.
func TestSomethingElseListens(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for name, c := range map[string]struct{ url, want string }{
		"no TLS":            {strings.Replace(plain.URL, "http:", "https:", 1), "answers without TLS: write http:// in DD_TRACE_AGENT_URL"},
		"unknown authority": {secure.URL, "set SSL_CERT_FILE to the authority's PEM file"},
		"gRPC":              {"http://" + answering(t, "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00@\x00"), "its port for traces is usually 8126, and 4317 is for OTLP"},
		"gRPC by https":     {"https://" + answering(t, "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00@\x00"), "does not speak TLS: write http:// in DD_TRACE_AGENT_URL"},
		"TLS alert":         {"http://" + answering(t, "\x15\x03\x01\x00\x02\x02\x16"), "wants TLS, which no agent does by itself: write https://"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := setup("DD_TRACE_AGENT_URL=" + c.url)
			e, err := New(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = e.Shutdown(t.Context()) }()
			if err := export(t, e, traces(0, 1)); err == nil || pluginsdk.Final(err) ||
				!strings.Contains(err.Error(), c.url) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q and %q in it", err, c.url, c.want)
			}
		})
	}
}

// answering returns the address of a server that reads a little of each request, answers
// with these bytes and hangs up.
func answering(t *testing.T, with string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4<<10))
			_, _ = io.WriteString(conn, with)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// TestSlowAgentIsLeftInTime: a call whose context ends returns, and the agent's late
// answer counts for no other call.
func TestSlowAgentIsLeftInTime(t *testing.T) {
	a := startAgent(t)
	e := open(t, a)
	arrived := make(chan struct{})
	a.then(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() { answered <- e.Export(ctx, traces(0, 5)) }()
	<-arrived
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) || pluginsdk.Final(err) {
		t.Fatalf("error is %v, want that of the context", err)
	}
	// The next batch is refused, and must not be taken for delivered because of
	// the first.
	a.then(status(503))
	if err := export(t, e, traces(100, 5)); err == nil {
		t.Fatal("a batch that the agent refused counts as delivered")
	}
	if err := export(t, e, traces(100, 5)); err != nil {
		t.Fatal(err)
	}
	all := a.taken()
	for _, s := range all {
		if s.span <= 100 {
			t.Errorf("the agent has span %d of the batch that was given up", s.span)
		}
	}
	if distinct(all) != 5 {
		t.Errorf("the agent has %d spans, want 5", distinct(all))
	}
}

// TestTooLarge: a payload that is refused with 413 is halved, and a trace that is too large
// by itself is rejected.
func TestTooLarge(t *testing.T) {
	a := startAgent(t)
	e := open(t, a)
	a.set(func(a *fakeAgent) {
		a.every = func(w http.ResponseWriter, chunks int) bool {
			if chunks > 3 {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			}
			return chunks <= 3
		}
	})
	if err := export(t, e, traces(0, 100)); err != nil {
		t.Fatal(err)
	}
	if all := a.taken(); len(all) != 100 || distinct(all) != 100 {
		t.Errorf("the agent has %d spans, want 100", len(all))
	}
	a.then(status(413))
	err := export(t, e, traces(200, 1))
	if n, text, ok := pluginsdk.Rejected(err); !ok || n != 1 || text != reasonTooLarge {
		t.Errorf("answer is %v", err)
	}
}

// TestRefusedInPart: of a batch of several payloads the agent refuses one for
// good. The others are not lost, and do not count as lost.
func TestRefusedInPart(t *testing.T) {
	a := startAgent(t)
	e := open(t, a)
	const size = 2*maxChunks + 1 // three payloads or more
	a.then(nil, status(400))
	err := export(t, e, traces(0, size))
	n, text, ok := pluginsdk.Rejected(err)
	if !ok || n == 0 || n >= size || !strings.Contains(text, "answers 400 Bad Request") {
		t.Errorf("answer is %v, want some spans rejected", err)
	}
	if all := a.taken(); len(all) != size-n || distinct(all) != len(all) {
		t.Errorf("the agent has %d spans, %d of them distinct, want %d", len(all), distinct(all), size-n)
	}
	// One that takes nothing says so with its own code.
	a.set(func(a *fakeAgent) {
		a.every = func(w http.ResponseWriter, _ int) bool { w.WriteHeader(http.StatusForbidden); return false }
	})
	if err := export(t, e, traces(5000, 2)); !pluginsdk.Final(err) {
		t.Errorf("answer is %v, want a final error", err)
	}
}

// TestRetrySendsTheKeptBytes: the next attempt for a batch sends the payloads that the
// agent has not taken, and replays nothing: statistics count each span once.
func TestRetrySendsTheKeptBytes(t *testing.T) {
	const size = 2*maxChunks + 1
	a := startAgent(t)
	e := open(t, a)
	server := func() *pluginsdk.Batch { return traces(0, size) }
	a.then(nil, status(503))
	if err := e.export(t.Context(), "b-1", server()); err == nil || pluginsdk.Final(err) {
		t.Fatalf("answer is %v, want one that is retried", err)
	}
	some := len(a.taken())
	if some == 0 || some == size {
		t.Fatalf("the agent has %d spans of %d after an attempt that failed in part", some, size)
	}
	a.then(status(503)) // again, at the same place
	if err := e.export(t.Context(), "b-1", server()); err == nil || pluginsdk.Final(err) {
		t.Fatalf("answer is %v, want one that is retried", err)
	}
	if err := e.export(t.Context(), "b-1", server()); err != nil {
		t.Fatal(err)
	}
	if all := a.taken(); len(all) != size || distinct(all) != size {
		t.Errorf("the agent has %d spans, %d of them distinct, want %d", len(all), distinct(all), size)
	}
	if len(e.begun) != 0 {
		t.Errorf("%d batches are kept that are delivered", len(e.begun))
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if hits := a.hits("internal"); hits != size {
		t.Errorf("statistics count %d hits, want %d", hits, size)
	}
}

// TestFrozenAgent: an agent that stops answering in the middle of 10,000 spans a
// second costs no span. The queue of the tracer never fills, because payloads leave
// it without the agent, and statistics count each span once.
func TestFrozenAgent(t *testing.T) {
	const calls, size = 4, 2500 // as many calls as a host makes at a time
	a := startAgent(t)
	e := open(t, a)
	arrived := make(chan struct{}, calls)
	frozen := func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}
	a.then(frozen, frozen, frozen, frozen)
	all := func(ctx context.Context) []error {
		faults := make([]error, calls)
		var calling sync.WaitGroup
		for i := range calls {
			calling.Go(func() { faults[i] = e.export(ctx, fmt.Sprint("b-", i), traces(i*size, size)) })
		}
		calling.Wait()
		return faults
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range calls {
			<-arrived
		}
		cancel()
	}()
	for i, err := range all(ctx) {
		if !errors.Is(err, context.Canceled) || pluginsdk.Final(err) {
			t.Fatalf("batch %d under a frozen agent: error is %v, want one that is retried", i, err)
		}
	}
	if err := errors.Join(all(t.Context())...); err != nil {
		t.Fatal(err)
	}
	if spans := a.taken(); len(spans) != calls*size || distinct(spans) != calls*size {
		t.Errorf("the agent has %d spans, %d of them distinct, want %d", len(spans), distinct(spans), calls*size)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if hits := a.hits("internal"); hits != calls*size {
		t.Errorf("statistics count %d hits, want %d", hits, calls*size)
	}
}

// TestKeptBytesAreBounded: batches that never come again are forgotten.
func TestKeptBytesAreBounded(t *testing.T) {
	a := startAgent(t)
	e := open(t, a)
	for i := range 2 * maxBegun {
		a.then(status(503))
		if err := e.export(t.Context(), fmt.Sprint("lost-", i), traces(10*i, 2)); err == nil {
			t.Fatal("a batch that the agent refused counts as delivered")
		}
	}
	if len(e.begun) != maxBegun {
		t.Errorf("%d batches are kept, want %d", len(e.begun), maxBegun)
	}
	if err := e.export(t.Context(), "lost-0", traces(0, 2)); err != nil { // it is replayed
		t.Fatal(err)
	}
}

// TestNothingIsEncodedWhileTheAgentIsAway: batches wait in the host, and are
// replayed once.
func TestNothingIsEncodedWhileTheAgentIsAway(t *testing.T) {
	a := startAgent(t)
	e := open(t, a)
	if err := e.export(t.Context(), "first", traces(0, 1)); err != nil {
		t.Fatal(err)
	}
	a.CloseClientConnections()
	handler := a.Config.Handler
	_ = a.Listener.Close()
	for i := range 3 * maxBegun {
		if err := e.export(t.Context(), fmt.Sprint("waits-", i), traces(10+i, 1)); err == nil || pluginsdk.Final(err) {
			t.Fatalf("answer is %v, want one that is retried", err)
		}
	}
	if len(e.begun) > 1 {
		t.Errorf("%d batches are kept, want at most the one that found the agent gone", len(e.begun))
	}
	l, err := net.Listen("tcp", a.Listener.Addr().String())
	if err != nil {
		t.Skip("the port is taken by now:", err)
	}
	again := &http.Server{Handler: handler, ReadHeaderTimeout: patience}
	served := make(chan struct{})
	go func() { // ends with Close
		defer close(served)
		_ = again.Serve(l)
	}()
	defer func() { _ = again.Close(); <-served }()
	for i := range 3 * maxBegun {
		if err := e.export(t.Context(), fmt.Sprint("waits-", i), traces(10+i, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if all := a.taken(); len(all) != 3*maxBegun+1 || distinct(all) != len(all) {
		t.Errorf("the agent has %d spans, %d of them distinct, want %d", len(all), distinct(all), 3*maxBegun+1)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if hits := a.hits("internal"); hits != 3*maxBegun+1 {
		t.Errorf("statistics count %d spans, want %d", hits, 3*maxBegun+1)
	}
}

// TestGateway: the agent's address may have a path, a key and a password, which
// go along with all that the tracer asks.
func TestGateway(t *testing.T) {
	a := startAgent(t)
	handler := a.Config.Handler
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "p" || r.URL.Query().Get("key") != "k" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		http.StripPrefix("/apm", handler).ServeHTTP(w, r)
	})
	a.URL = strings.Replace(a.URL, "http://", "http://u:p@", 1) + "/apm?key=k"
	e := open(t, a)
	if err := export(t, e, traces(0, 3)); err != nil {
		t.Fatal(err)
	}
	if all := a.taken(); len(all) != 3 || a.heads[0].Get("Datadog-Client-Computed-Stats") != "yes" {
		t.Errorf("the agent has %d spans, want 3; it was asked for %v", len(all), a.paths)
	}
}

// TestAgentHangsAtTheStart: an agent that does not answer holds nothing up for
// longer than its timeout.
func TestAgentHangsAtTheStart(t *testing.T) {
	a := startAgent(t)
	handler := a.Config.Handler
	var asked atomic.Int32
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/info" && asked.Add(1) == 2 { // the tracer's own
			<-r.Context().Done()
			return
		}
		handler.ServeHTTP(w, r)
	})
	e := open(t, a, "DD_TRACE_AGENT_TIMEOUT=1")
	if err := export(t, e, traces(0, 3)); err != nil {
		t.Fatal(err)
	}
	if all := a.taken(); len(all) != 3 {
		t.Errorf("the agent has %d spans, want 3", len(all))
	}
}

// TestIDsThatNoAgentTakes: they are rejected, the others of the batch arrive.
func TestIDsThatNoAgentTakes(t *testing.T) {
	a := startAgent(t)
	e := open(t, a)
	err := export(t, e, batch(nil,
		span(1, 1, 0),
		span(2, 2, 0, func(s *tracepb.Span) { clear(s.TraceId[8:]) }),
		span(3, 3, 0, func(s *tracepb.Span) { clear(s.SpanId) }),
	))
	if n, text, ok := pluginsdk.Rejected(err); !ok || n != 2 || text != reasonUnfit {
		t.Errorf("answer is %v", err)
	}
	if all := a.taken(); len(all) != 1 {
		t.Errorf("the agent has %d spans, want 1", len(all))
	}
}

// TestEmptyKey: an attribute without a key, which no agent takes, costs the others
// nothing.
func TestEmptyKey(t *testing.T) {
	a := startAgent(t)
	if err := export(t, open(t, a), batch(nil, span(1, 1, 0, with(map[string]any{"": "no key", "a": "kept"})))); err != nil {
		t.Fatal(err)
	}
	if all := a.taken(); len(all) != 1 || all[0].meta["a"] != "kept" {
		t.Errorf("the agent has %+v, want the tag a", all)
	}
}

// TestConcurrentSafe: calls of one exporter, and of several to agents that take
// different things, do not mix.
func TestConcurrentSafe(t *testing.T) {
	first, second := startAgent(t), startAgent(t)
	second.info = infoOld
	one, other := open(t, first), open(t, second)
	answers := make(chan error)
	for i := range 8 {
		e := []pluginsdk.Exporter{one, other}[i%2]
		go func() { answers <- export(t, e, traces(i*100, 100)) }()
	}
	for range 8 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	for _, a := range []*fakeAgent{first, second} {
		if n := distinct(a.taken()); n != 400 {
			t.Errorf("an agent has %d spans, want 400", n)
		}
	}
}
