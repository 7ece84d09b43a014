package mixed

import (
	"context"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
)

// spanBooks puts the spans into the books. It keeps none of them.
type spanBooks struct {
	*books

	counts struct {
		sync.Mutex
		open     int
		families map[family]int
		proxies  map[key]int
	}
}

// family is the key by which router and replica spans are counted.
type family struct{ name, deployment string }

func newSpanBooks(b *books) *spanBooks {
	s := &spanBooks{books: b}
	s.counts.families, s.counts.proxies = map[family]int{}, map[key]int{}
	return s
}

var _ sdktrace.SpanProcessor = (*spanBooks)(nil)

func (s *spanBooks) ForceFlush(context.Context) error { return nil }
func (s *spanBooks) Shutdown(context.Context) error   { return nil }

// OnStart checks that the span hangs on one of its request, or is where the
// request enters.
func (s *spanBooks) OnStart(parent context.Context, span sdktrace.ReadWriteSpan) {
	s.counts.Lock()
	s.counts.open++
	s.counts.Unlock()
	id := requestOf(parent)
	s.at(id, func(e *entry) {
		if e.started == mostSpans {
			s.faultLocked("request %s has more than %d spans", id, mostSpans)
			return
		}
		if !e.knows(span.Parent()) && !strings.HasPrefix(span.Name(), "proxy_") {
			s.faultLocked("request %s: span %q has the parent %v, which is none of it", id, span.Name(), span.Parent())
		}
		e.spans[e.started] = span.SpanContext().SpanID()
		e.started++
	})
}

// requestOf is the id of the request that ctx belongs to.
func requestOf(ctx context.Context) string {
	if r := identity.RequestFromContext(ctx); r != nil {
		return r.ID
	}
	return ""
}

func (e *entry) knows(parent trace.SpanContext) bool {
	for _, id := range e.spans[:e.started] {
		if id == parent.SpanID() {
			return true
		}
	}
	return false
}

func (s *spanBooks) OnEnd(span sdktrace.ReadOnlySpan) {
	attributes := map[attribute.Key]attribute.Value{}
	for _, kv := range span.Attributes() {
		attributes[kv.Key] = kv.Value
	}
	text := func(k attribute.Key) string { return attributes[k].String() }
	name, _, _ := strings.Cut(span.Name(), " ")
	said := proxySpan{
		key:    key{text("app"), text("http.route"), text("http.method"), s.name(text("http.status_code"))},
		span:   span.SpanContext().SpanID(),
		failed: span.Status().Code == codes.Error,
	}
	isProxy := strings.HasPrefix(name, "proxy_")
	if name == "proxy_grpc_request" {
		said.key = key{text("app"), text("app"), text("rpc.method"), s.name(text("rpc.grpc.status_code"))}
	}
	s.counts.Lock()
	s.counts.open--
	s.counts.families[family{name, text("deployment")}]++
	if isProxy {
		s.counts.proxies[said.key]++
	}
	s.counts.Unlock()
	s.at(text("serve.request_id"), func(e *entry) {
		e.ended++
		if isProxy {
			e.proxies++
			e.proxy = said
		}
	})
}

// open is how many spans have not ended.
func (s *spanBooks) open() int {
	s.counts.Lock()
	defer s.counts.Unlock()
	return s.counts.open
}

// of is how many spans of a family a deployment has.
func (s *spanBooks) of(name, deployment string) int {
	s.counts.Lock()
	defer s.counts.Unlock()
	return s.counts.families[family{name, deployment}]
}
