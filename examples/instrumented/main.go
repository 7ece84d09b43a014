// Command instrumented is a service with handlers traced by OpenTelemetry's own
// libraries, otelhttp and otelgrpc. They correspond to the FastAPI instrumentor of the
// tracing guide. It proves that their spans and the runtime's are a single connected
// trace, through HTTP and gRPC. Each library's span is a child of the replica span, and
// the parent of the calls inside.
//
//	instrumented [--http ADDRESS] [--words ADDRESS] [--config FILE]
//
//	proxy → router → replica → otelhttp → otelgrpc (the client's)
//	→ proxy → router → replica → otelgrpc (the server's) → look_up
//
// Print the trace:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/instrumented
//	curl http://localhost:8000/translate/cat
//
// By default it calls its own gRPC port; --words names the port of another service.
// Open app.go for the handlers.
package main

import (
	"cmp"
	"flag"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

func main() {
	words := flag.String("words", "", "`address` of the gRPC port to call (default this service's own)")
	servetrace.MainFunc(func(cfg *servetrace.Config) ([]*serving.App, error) {
		client, err := dial(cmp.Or(*words, cfg.Serving.GRPC.Addr, serving.DefaultGRPCAddr))
		if err != nil {
			return nil, err
		}
		return apps(client), nil
	})
}
