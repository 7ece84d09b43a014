package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/serving"
)

// tracer uses OpenTelemetry's global provider, as in any instrumented program.
var tracer = otel.Tracer("github.com/servetrace/servetrace/examples/upstream-downstream")

// apps returns the two applications. The first calls downstreamURL, the address of the
// second application in another process. If it is empty, the first application calls the
// second in this process, over the network too.
func apps(downstreamURL string) []*serving.App {
	return []*serving.App{
		serving.NewApp("app", serving.NewDeployment("UpstreamApp", upstream(downstreamURL))),
		serving.NewApp("app2", serving.NewDeployment("DownstreamApp", serving.HandlerFunc(downstream)),
			serving.WithRoutePrefix("/downstream")),
	}
}

// upstream returns a handler that calls the downstream service and returns its answer.
func upstream(downstreamURL string) serving.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, span := startSpan(r.Context(), "upstream_application_span")
		defer span.End()

		// Call the downstream service over the network.
		message, err := call(ctx, cmp.Or(downstreamURL, own(ctx)), r.Header.Get("Authorization"))
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
			return err
		}
		span.SetStatus(codes.Ok, "")
		w.Header().Set("Content-Type", "application/json")
		return json.NewEncoder(w).Encode(struct {
			Upstream   string `json:"upstream_message"`
			Downstream string `json:"downstream_message"`
		}{"Hello world from UpstreamApp!", message})
	}
}

// own returns the URL of the second application at the address that the request came to.
func own(ctx context.Context) string {
	addr, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr) // the server sets it
	return fmt.Sprintf("http://%v/downstream", addr)
}

// call sends the request from one service to the other.
func call(ctx context.Context, url, authorization string) (answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	// Write the trace context into the headers. The current span in ctx becomes the parent
	// of the downstream spans.
	otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(req.Header))

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("call downstream: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return "", fmt.Errorf("call downstream: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("downstream answers %s", resp.Status)
	}
	return string(body), nil
}

// downstream finds the caller's trace in its request's context, because the proxy has
// read it from the headers.
func downstream(w http.ResponseWriter, r *http.Request) error {
	_, span := startSpan(r.Context(), "downstream_application_span")
	defer span.End()
	span.SetStatus(codes.Ok, "")
	_, err := io.WriteString(w, "Hello world from DownstreamApp!")
	return err
}

// startSpan starts a span of the current trace, with the guide's attributes.
func startSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	ctx, span := tracer.Start(ctx, name)
	if replica, ok := serving.ReplicaContext(ctx); ok {
		span.SetAttributes(
			attribute.String("deployment", replica.Deployment),
			attribute.String("replica_id", replica.ReplicaID.UniqueID))
	}
	return ctx, span
}
