// Command streaming answers with parts as they are made: as server-sent events,
// for EventSource in a browser, and as a plain chunked body. It proves that each
// part is with the client before the next one is made, that a client that leaves
// ends the work for it, also in the deployment behind, and that the spans last
// as long as the stream.
//
//	streaming [--http ADDRESS] [--config FILE] [--pause TIME]
//
//	Gateway (HTTP) ── Generator.generate (a stream)
//
// See it, and the trace drawn when it has ended:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/streaming
//	curl -N 'http://localhost:8000/events?about=the+sea'
//	curl -N 'http://localhost:8000/text?about=the+sea'
//
// A page with EventSource is at http://localhost:8000/. /events?about=everything
// ends only when the client leaves.
//
// Open app.go for the deployments.
package main

import (
	"flag"
	"time"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

func main() {
	pause := flag.Duration("pause", 200*time.Millisecond, "`time` that a word takes")
	servetrace.MainFunc(func(*servetrace.Config) ([]*serving.App, error) {
		return []*serving.App{app(*pause)}, nil
	})
}
