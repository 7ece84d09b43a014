package tracing_test

import (
	"context"
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/test/recorded"
	"github.com/servetrace/servetrace/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a tracer that keeps its ended spans.
type recorder struct {
	*tracing.Provider
	*spans.Tracer
	exporter *tracetest.InMemoryExporter
}

// newRecorder returns a recorder of tracing.DefaultConfig as changed by the edits.
func newRecorder(tb testing.TB, edits ...func(*tracing.Config)) *recorder {
	tb.Helper()
	p, exporter := recorded.Provider(tb, edits...)
	return &recorder{Provider: p, Tracer: spans.New(p), exporter: exporter}
}

const (
	inboundTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	inboundSpan   = "00f067aa0ba902b7"
	inboundHeader = "00-" + inboundTrace + "-" + inboundSpan
)

func inbound(flags string) http.Header {
	return http.Header{"Traceparent": {inboundHeader + "-" + flags}}
}

// serveOne sends one request through the three families and a user span, and
// returns the context that the handler saw.
func serveOne(t *spans.Tracer, header http.Header) context.Context {
	request := func() *identity.Request {
		return &identity.Request{ID: "r1", App: "default", Deployment: "D", Route: "/"}
	}
	ctx, proxy := t.StartProxy(t.Provider.Extract(context.Background(), header), spans.ProxyStart{Request: request(), Method: "GET"})
	ctx, router := t.StartRouter(ctx, spans.RouterStart{Deployment: "D"})
	ctx, replica := t.StartReplica(ctx, spans.ReplicaStart{Request: request(), Method: "GET"})
	router.EndRouter(spans.RouterResult{})
	ctx, user := t.Provider.TracerProvider().Tracer("user").Start(ctx, "user")
	user.End()
	replica.EndReplica(spans.ReplicaResult{StatusCode: 200})
	proxy.EndProxy(spans.ProxyResult{StatusCode: 200})
	return ctx
}
