package spans

import (
	"net/http"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/servetrace/servetrace/serving"
)

// TestH05InstrumentedApp: a ServeMux whose handler is instrumented by otelhttp stands for
// Ray's FastAPI app with its instrumentor. The error of the handler appears as in H4. The
// instrumentation's span is a child of the replica's, and has the user's span below it.
func TestH05InstrumentedApp(t *testing.T) {
	overBoth(t, func(t *testing.T, c *http.Client) {
		var r *rig
		instrumented := func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				otelhttp.NewHandler(h, "served", otelhttp.WithTracerProvider(r.tracing.TracerProvider()),
					otelhttp.WithPropagators(r.tracing.Propagator())).ServeHTTP(w, req)
			})
		}
		mux := http.NewServeMux()
		mux.Handle("GET /fails/{how}", instrumented(serving.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) error {
			_, span := startSpan(r, req, "work")
			defer span.End()
			if req.PathValue("how") == "panic" {
				panic(errBoom)
			}
			return errBoom
		})))
		r = one(t, serving.Config{}, mux)
		failed := answer{Status: 500, Body: "Internal Server Error"}
		checkAnswer(t, r.get(c, "error", "/fails/error", "traceparent", sampledParent), failed)
		h5 := request("error")
		h5.path, h5.route = "/fails/error", "/fails/{how}"
		served := &span{Name: "GET /fails/{how}", Kind: "server", Status: "Unset", Attributes: foreign(otelhttp.ScopeName),
			Children: []*span{user("work")}}
		r.check("error", h5.proxy(500, h5.router(h5.replica(500, served).raised("*errors.errorString", "boom"))).
			failed("boom").raised("*errors.errorString", "boom"))

		checkAnswer(t, r.get(c, "panic", "/fails/panic", "traceparent", sampledParent), failed)
		h5.id, h5.path = "panic", "/fails/panic"
		// OpenTelemetry's spans note a panic that passes them, as ours do.
		passed := event{Name: "exception", Attributes: attributes{"exception.type": "*errors.errorString", "exception.message": "boom"}}
		served.Events, served.Children[0].Events = []event{passed}, []event{passed}
		r.check("panic", h5.proxy(500, h5.router(h5.replica(500, served).panicked("*errors.errorString", "panic: boom"))).
			failed("panic: boom").panicked("*errors.errorString", "panic: boom"))
	})
}
