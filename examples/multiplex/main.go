// Command multiplex serves five models by two replicas that have room for two
// each. It proves that a model is loaded by the first request that names it,
// under a span of its own, and that others go where it is.
//
//	multiplex [--http ADDRESS] [--config FILE]
//
// See the traces drawn:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/multiplex
//	curl -H 'serve_multiplexed_model_id: german' 'http://localhost:8000/?name=Ada'
//
// Open app.go for the handler and the models.
package main

import "github.com/servetrace/servetrace"

func main() { servetrace.Main(app()) }
