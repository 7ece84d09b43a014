// Command upstream-downstream is the example "Propagate traces between services" of Ray
// Serve's tracing guide: a service that calls another service over HTTP. It proves that
// the spans of both are a single trace, because the caller writes its trace context into
// the headers of the call.
//
//	upstream-downstream [--http ADDRESS] [--config FILE] [--downstream URL]
//
// As in the guide, one program has both applications, UpstreamApp at "/" and
// DownstreamApp at "/downstream", and the first calls the second. It also runs twice, as
// two services:
//
//	bin/upstream-downstream --config examples/upstream-downstream/downstream.yaml
//	bin/upstream-downstream --config examples/upstream-downstream/upstream.yaml \
//	  --downstream http://localhost:8002/downstream
//	curl http://localhost:8000/
//
// The files enable tracing, so both services write span files into the folder named in
// their logs. Or print the trace, half of it in each terminal:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty SERVE_HTTP_PORT=8002 bin/upstream-downstream
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/upstream-downstream \
//	  --downstream http://localhost:8002/downstream
//	curl http://localhost:8000/
//
// The program does not start a separate span for the call. Open services.go for the two
// handlers.
package main

import (
	"flag"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

func main() {
	url := flag.String("downstream", "", "`URL` that UpstreamApp calls (default this service's own /downstream)")
	servetrace.MainFunc(func(*servetrace.Config) ([]*serving.App, error) { return apps(*url), nil })
}
