// Command batching answers requests in batches: a model that scores lists of texts, and
// a model that continues several texts word by word. It proves that a batch has a
// single span, in the trace of its first sampled request, with links to the other
// requests. The spans of the work inside are its children.
//
//	batching [--http ADDRESS] [--config FILE] [--size N] [--wait TIME] [--batches N]
//
// Print the traces of requests that arrive at the same time:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/batching --wait 1s
//	for i in 1 2 3; do curl -s -d '{"text": "a good day"}' http://localhost:8000/score & done; wait
//	curl -N -d '{"text": "once upon a time"}' http://localhost:8000/continue
//
// Open app.go for the models.
package main

import (
	"flag"
	"time"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
)

func main() {
	size := flag.Int("size", 8, "maximum number of requests in a batch")
	wait := flag.Duration("wait", 10*time.Millisecond, "how long the first request of a batch waits for others")
	batches := flag.Int("batches", 1, "how many batches run at a time")
	servetrace.MainFunc(func(*servetrace.Config) ([]*serving.App, error) {
		return []*serving.App{app(
			batching.WithMaxBatchSize(*size),
			batching.WithWaitTimeout(*wait),
			batching.WithMaxConcurrentBatches(*batches),
		)}, nil
	})
}
