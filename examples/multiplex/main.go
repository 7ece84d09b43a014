// Command multiplex serves five models with two replicas, each with room for two
// models. It proves that the first request for a model loads it, under a separate span,
// and that further requests are routed to the replica with the model.
//
//	multiplex [--http ADDRESS] [--config FILE]
//
// Print the traces:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/multiplex
//	curl -H 'serve_multiplexed_model_id: german' 'http://localhost:8000/?name=Ada'
//
// Open app.go for the handler and the models.
package main

import "github.com/servetrace/servetrace"

func main() { servetrace.Main(app()) }
