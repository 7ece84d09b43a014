package mixed

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// books are the records of the requests of plans. They have an entry for each from the
// beginning, so that the heap does not grow with them.
type books struct {
	mu       sync.Mutex
	requests []entry
	lines    map[key]int    // of the access log, also of other requests
	failures map[key]int    // the part of them that are errors
	calls    map[string]int // lines of calls by handle, by deployment
	taken    map[taken]int  // lines of requests that a replica took
	faults   []string       // faults that are found at once
	names    map[string]string
	// lost are requests or answers that a connection of HTTP/1.1 took along which
	// was closed just then, as a server may do at any time. It does where a
	// request ends in the moment in which its time is over.
	lost []string
}

// taken is the key by which the requests that a replica took are counted. Given up are
// gRPC calls that the client ended, perhaps before user code had the first message.
type taken struct {
	deployment       string
	sampled, givenUp bool
}

// key is the key by which requests are counted: an app's route, a verb and a status.
type key struct{ app, route, method, status string }

// entry is one request.
type entry struct {
	lines int // of the access log
	line  line
	noted bool // with an error

	proxies int // spans
	proxy   proxySpan
	spans   [mostSpans]trace.SpanID // that were started, in this process
	started int
	ended   int

	client clientView
}

// mostSpans is more than any request has.
const mostSpans = 80

// line is the record of a request in the access log.
type line struct {
	key    key
	span   trace.SpanID // zero where it is not sampled
	failed bool
}

// proxySpan is the record of a request in its proxy span.
type proxySpan struct {
	key    key
	span   trace.SpanID
	failed bool
}

// clientView is the response that the client of a request got.
type clientView struct {
	done   bool
	left   bool   // it went, before the end
	status string // empty: no response
	cut    bool
	err    error // of one that saw none
}

func newBooks(requests int) *books {
	return &books{
		requests: make([]entry, requests),
		lines:    map[key]int{},
		failures: map[key]int{},
		calls:    map[string]int{},
		taken:    map[taken]int{},
		names:    map[string]string{},
	}
}

// name gives a string of which the books hold one copy, however often it comes.
func (b *books) name(s string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.names[s]; ok {
		return known
	}
	b.names[s] = s
	return s
}

func (b *books) faultLocked(format string, args ...any) {
	if len(b.faults) < 20 {
		b.faults = append(b.faults, fmt.Sprintf(format, args...))
	}
}

// at changes the entry of the request with an id. Requests without a plan have none.
func (b *books) at(id string, change func(*entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, ok := numberOf(id); ok {
		change(&b.requests[n])
	}
}

// logger is the server's logger: it puts the access log into the books.
func (b *books) logger() *slog.Logger { return slog.New(logBooks{b}) }

type logBooks struct{ *books }

func (logBooks) Enabled(context.Context, slog.Level) bool { return true }
func (l logBooks) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l logBooks) WithGroup(string) slog.Handler          { return l }

func (l logBooks) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "call" {
		l.call(r)
	}
	if r.Message != "request" {
		return nil
	}
	var id, replica, deployment string
	var said line
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "request_id":
			id = a.Value.String()
		case "replica":
			replica = a.Value.String()
		case "deployment":
			deployment = a.Value.String()
		case "app":
			said.key.app = a.Value.String()
		case "route":
			said.key.route = a.Value.String()
		case "method":
			said.key.method = a.Value.String()
		case "status", "code":
			said.key.status = l.name(a.Value.String())
		case "span_id":
			said.span, _ = trace.SpanIDFromHex(a.Value.String())
		case "error":
			said.failed = true
		}
		return true
	})
	noted := said.failed
	said.failed = said.failed || said.key.failed()
	if said.key.isGRPC() && said.key.status == "NOT_FOUND" {
		said.failed = false // the client's doing, as OpenTelemetry has it
	}
	l.mu.Lock()
	if replica != "" {
		givenUp := said.key.status == "CANCELLED" || said.key.status == "DEADLINE_EXCEEDED"
		l.taken[taken{deployment, said.span.IsValid(), givenUp}]++
	}
	l.lines[said.key]++
	if said.failed {
		l.failures[said.key]++
	}
	l.mu.Unlock()
	l.at(id, func(e *entry) {
		e.lines++
		e.line, e.noted = said, noted
	})
	return nil
}

// failed reports whether the status is an error: an HTTP status, which has three digits,
// or the close code of a web socket. A gRPC status is an error if there was one.
func (k key) failed() bool {
	switch {
	case k.isGRPC():
		return false
	case len(k.status) == 4:
		return k.status != "1000" && k.status != "1001"
	}
	return k.status >= "400"
}

// isGRPC reports whether the status is the name of a gRPC code, and not a number.
func (k key) isGRPC() bool { return k.status != "" && k.status[0] > '9' }

// call counts the line of a call by handle.
func (l logBooks) call(r slog.Record) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "deployment" {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls[a.Value.String()]++
		}
		return true
	})
}

// check compares the records of each request.
func (b *books) check(t *testing.T, plans []plan) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.requests {
		e, p := &b.requests[n], plans[n]
		b.checkSpansLocked(e, p)
		b.checkClientLocked(e, p)
	}
	for _, fault := range b.faults {
		t.Error(fault)
	}
}

// checkSpansLocked: a request has at most one line, and a sampled one a proxy
// span that says the same. One whose client left early may have neither.
func (b *books) checkSpansLocked(e *entry, p plan) {
	want := 0
	if e.lines > 0 && p.sampled() {
		want = 1
	}
	if e.lines > 1 || e.proxies != want {
		b.faultLocked("%+v: %d lines in the access log and %d proxy spans, want %d", p, e.lines, e.proxies, want)
	}
	if e.started != e.ended {
		b.faultLocked("%+v: %d spans were started, %d ended", p, e.started, e.ended)
	}
	if !p.sampled() && e.started != 0 {
		b.faultLocked("%+v: it is not sampled, and has %d spans", p, e.started)
	}
	if e.proxies == 1 && proxySpan(e.line) != e.proxy {
		b.faultLocked("%+v: the access log says %+v, the proxy span %+v", p, e.line, e.proxy)
	}
}

// checkClientLocked: a client that stayed got the status that the server recorded.
func (b *books) checkClientLocked(e *entry, p plan) {
	c := e.client
	switch {
	case !c.done:
		b.faultLocked("%+v: never sent", p)
	case c.left:
	case c.status == "" && p.version == http1 && (e.lines == 0 || !e.noted):
		b.lost = append(b.lost, fmt.Sprintf("%+v: %v; the server says %+v", p, c.err, e.line))
	case c.status == "" && p.version == http1Fresh && p.body > 0 && e.line.key.status == "503":
		// It was turned away at once, and net/http reads no body whose connection is
		// not to be used again: the rest of it resets that, and with it the answer.
		b.lost = append(b.lost, fmt.Sprintf("%+v: %v; the server says %+v", p, c.err, e.line))
	case e.lines == 0:
		b.faultLocked("%+v: its client stayed (%v), and the server knows nothing of it", p, c.err)
	case p.version == socket:
		// A connection that ends without a close frame says nothing.
		if c.status != "" && c.status != e.line.key.status {
			b.faultLocked("%+v: its client saw the code %s, the server says %+v", p, c.status, e.line)
		}
	case c.status == "":
		// The beginning of a response that is cut may be lost with the rest.
		if !e.wasCut() && (p.end != abort || e.line.key.status != "500") {
			b.faultLocked("%+v: its client saw no response (%v), the server says %+v", p, c.err, e.line)
		}
	case c.status != e.line.key.status:
		b.faultLocked("%+v: its client saw %s, the server says %+v", p, c.status, e.line)
	case p.version != overGRPC && !e.ownAnswer() && c.cut != e.wasCut():
		b.faultLocked("%+v: for its client it was cut %v, the server says %+v", p, c.cut, e.line)
	}
}

// wasCut reports whether a response that had begun was ended other than by
// completing it.
func (e *entry) wasCut() bool { return e.noted && !e.ownAnswer() }

// ownAnswer reports whether the status is one that the proxy answers with itself.
// Whether such a response was cut, the status does not tell.
func (e *entry) ownAnswer() bool {
	return slices.Contains([]string{"408", "499", "500", "503"}, e.line.key.status)
}

// tookOver gives how many requests replicas of a deployment took, how many of
// them were sampled, and how many of all were given up.
func (b *books) tookOver(deployment string) (all, sampled, givenUp int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, n := range b.taken {
		if k.deployment != deployment {
			continue
		}
		all += n
		if k.sampled {
			sampled += n
		}
		if k.givenUp {
			givenUp += n
		}
	}
	return all, sampled, givenUp
}

// summary returns the number of requests of each status.
func (b *books) summary() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rows []string
	for k, n := range b.lines {
		rows = append(rows, fmt.Sprintf("%s %s %s %s: %d", k.app, k.route, k.method, k.status, n))
	}
	slices.Sort(rows)
	return fmt.Sprintf("%q", rows)
}

// witness counts the requests and contexts in user code, by deployment. Sampled are
// requests whose context is sampled.
type witness struct {
	mu   sync.Mutex
	seen map[event]int
}

type event struct {
	what       string // "entered" or "calls"
	deployment string
	sampled    bool
}

func newWitness() *witness { return &witness{seen: map[event]int{}} }

// entered counts a call of a deployment's code.
func (w *witness) entered(ctx context.Context, deployment string) {
	w.count(ctx, "entered", deployment)
}

// calls counts a call by handle that is about to be made.
func (w *witness) calls(ctx context.Context, deployment string) { w.count(ctx, "calls", deployment) }

// outside counts a call that is about to be made outside of a request: it begins
// a trace, which is sampled.
func (w *witness) outside(deployment string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[event{"calls", deployment, true}]++
}

func (w *witness) count(ctx context.Context, what, deployment string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[event{what, deployment, trace.SpanContextFromContext(ctx).IsSampled()}]++
}

// of gives how many there were, and how many of them were sampled.
func (w *witness) of(what, deployment string) (all, sampled int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sampled = w.seen[event{what, deployment, true}]
	return sampled + w.seen[event{what, deployment, false}], sampled
}
