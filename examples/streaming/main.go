// Command streaming sends parts of an answer as they are generated: as server-sent
// events, for EventSource in a browser, and as a plain chunked body. It proves three
// facts. Each part reaches the client before the next part is generated. The work ends
// when the client leaves, in the called deployment, too. The spans last as long as the
// stream.
//
//	streaming [--http ADDRESS] [--config FILE] [--pause TIME]
//
//	Gateway (HTTP) ── Generator.generate (a stream)
//
// Print the trace when the stream has ended:
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
