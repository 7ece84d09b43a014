package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/serving"
)

// tracer uses OpenTelemetry's global provider, as in any instrumented program.
var tracer = otel.Tracer("github.com/servetrace/servetrace/examples/hello")

// pause is the time between two lines of a stream.
const pause = 50 * time.Millisecond

// app returns the application: a deployment with two replicas, at "/".
func app(name string) *serving.App {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", serving.HandlerFunc(hello))
	mux.Handle("GET /fail", serving.HandlerFunc(fail))
	mux.Handle("GET /stream", serving.HandlerFunc(stream))
	return serving.NewApp(name, serving.NewDeployment("HelloWorld", mux, serving.WithReplicas(2)))
}

// startSpan starts the span of the Anyscale guide. The request's context makes it a
// child of the replica span.
func startSpan(ctx context.Context) (context.Context, trace.Span) {
	ctx, span := tracer.Start(ctx, "application_span")
	if replica, ok := serving.ReplicaContext(ctx); ok {
		span.SetAttributes(
			attribute.String("deployment", replica.Deployment),
			attribute.String("replica_id", replica.ReplicaID.UniqueID))
	}
	return ctx, span
}

func hello(w http.ResponseWriter, r *http.Request) error {
	_, span := startSpan(r.Context())
	defer span.End()
	span.SetStatus(codes.Ok, "")
	_, err := fmt.Fprintln(w, "Hello world!")
	return err
}

// errFail is the error of /fail. Its text appears in spans and the log, but not in the
// response.
var errFail = errors.New("model not found")

func fail(_ http.ResponseWriter, r *http.Request) error {
	_, span := startSpan(r.Context())
	defer span.End()
	span.RecordError(errFail)
	span.SetStatus(codes.Error, errFail.Error())
	return errFail
}

func stream(w http.ResponseWriter, r *http.Request) error {
	ctx, span := startSpan(r.Context())
	defer span.End()
	out := http.NewResponseController(w)
	for _, word := range []string{"one", "two", "three"} {
		if _, err := fmt.Fprintln(w, word); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		span.AddEvent("sent", trace.WithAttributes(attribute.String("word", word)))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
