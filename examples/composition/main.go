// Command composition is an application of four deployments that call each other by
// handle: a chain of three, and two concurrent calls. It proves that everything is a
// single trace. Each call has the spans of its own router and replica below the spans
// of its caller.
//
//	composition [--http ADDRESS] [--config FILE]
//
//	Gateway (HTTP) ─┬─ Shortener.shorten ── Tokenizer.tokens (a stream)
//	                └─ Sentiment
//
// Print the trace:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/composition
//	curl -d '{"text": "A good day. Then rain came."}' http://localhost:8000/describe
//
// Open app.go for the deployments.
package main

import "github.com/servetrace/servetrace"

func main() { servetrace.Main(app()) }
