package serveload

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/semconv"
)

// threeSpans is OpenTelemetry in the server's process: its SDK, batch processor
// and OTLP/HTTP exporter. The processor blocks, so that no span is lost.
type threeSpans struct {
	provider   *sdktrace.TracerProvider
	propagator propagation.TextMapPropagator
	tracer     trace.Tracer
}

// startThreeSpans serves hello on a bare server with request ids, and makes the same
// three spans of a request as our server.
func startThreeSpans(ctx context.Context) (*server, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	s := &threeSpans{propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})}
	s.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(
		sdktrace.NewBatchSpanProcessor(exporter, sdktrace.WithBlocking())))
	s.tracer = s.provider.Tracer("bench")
	bare, err := serveHTTP(headed(s.handle))
	if err != nil {
		return nil, errors.Join(err, s.provider.Shutdown(ctx))
	}
	return &server{addr: bare.addr, stop: func() (account, error) {
		_, err := bare.stop()
		err = errors.Join(err, s.provider.Shutdown(ctx))
		return account{}, err
	}}, nil
}

// The identity of the replica, in the form of our server.
const (
	replicaUniqueID = "a1b2c3d4"
	replicaID       = "hello#Hello#" + replicaUniqueID
	actorID         = "5a05fdb1f0f0f0f0f0f0f0f001000000"
)

// newTaskID returns a random task id in Ray's form.
func newTaskID() string {
	var own [8]byte
	binary.NativeEndian.PutUint64(own[:], rand.Uint64())
	return hex.EncodeToString(own[:]) + actorID
}

// handle is the handler hello inside a proxy span, a router span and a replica span.
// A test compares their names, kinds and attributes with our server's.
func (s *threeSpans) handle(w http.ResponseWriter, r *http.Request, requestID string) {
	proxyTask := newTaskID()
	route, name := "/", "Hello GET /"
	ctx := s.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, proxy := s.tracer.Start(ctx, "proxy_http_request "+name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String(semconv.RequestID, requestID), attribute.String(semconv.ServeRequestID, requestID),
		attribute.String(semconv.ServeTaskID, proxyTask),
		attribute.String(semconv.Deployment, "Hello"), attribute.String(semconv.App, "hello"),
		attribute.String(semconv.RequestType, semconv.RequestTypeHTTP), attribute.String(semconv.RequestMethod, r.Method),
		attribute.String(semconv.RequestRoutePath, r.URL.Path), attribute.String(semconv.ResourceName, "proxy_http_request "+name)))
	ctx, router := s.tracer.Start(ctx, "route_to_replica Hello __call__", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		callAttributes(requestID, proxyTask, "route_to_replica Hello __call__", route,
			attribute.Bool(semconv.IsHTTPRequest, true), attribute.Bool(semconv.IsGRPCRequest, false))...))
	router.SetAttributes(attribute.String(semconv.HTTPMethod, "__call__"), attribute.String(semconv.HTTPRoute, route), attribute.Float64(semconv.ServeQueueWaitMS, 0))
	router.End()
	ctx, replica := s.tracer.Start(ctx, "replica_handle_request Hello __call__", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		callAttributes(requestID, newTaskID(), "replica_handle_request Hello __call__", route,
			attribute.String(semconv.ServeReplicaID, replicaID), attribute.String(semconv.ReplicaID, replicaUniqueID))...))
	hello(w, r.WithContext(ctx))
	replica.SetAttributes(attribute.String(semconv.HTTPRoute, route), attribute.String(semconv.HTTPMethod, r.Method), attribute.Int(semconv.HTTPStatusCode, http.StatusOK))
	replica.End()
	proxy.SetAttributes(attribute.String(semconv.HTTPMethod, r.Method), attribute.String(semconv.HTTPRoute, route), attribute.Int(semconv.HTTPStatusCode, http.StatusOK))
	proxy.SetStatus(codes.Ok, "")
	proxy.End()
}

// callAttributes returns the common attributes of router and replica spans, and others
// behind them.
func callAttributes(requestID, task, resource, route string, others ...attribute.KeyValue) []attribute.KeyValue {
	return append([]attribute.KeyValue{
		attribute.String(semconv.RequestID, requestID), attribute.String(semconv.ServeRequestID, requestID),
		attribute.String(semconv.ServeTaskID, task),
		attribute.String(semconv.Deployment, "Hello"), attribute.String(semconv.App, "hello"),
		attribute.String(semconv.CallMethod, semconv.DefaultCallMethod), attribute.String(semconv.Route, route),
		attribute.String(semconv.MultiplexedModelID, ""), attribute.Bool(semconv.IsStreaming, true),
		attribute.String(semconv.ResourceName, resource),
	}, others...)
}
