// Command grpc is a service with a method of each of gRPC's four kinds: a
// translator of words. It proves that each call is one trace with the caller's
// span above it and the method's own below, and that errors are the codes that
// gRPC has for them.
//
//	grpc [--grpc ADDRESS] [--http ADDRESS] [--config FILE]
//
//	Translate    one word for one word; NOT_FOUND for one that is not known
//	ListWords    a stream of all words that are known
//	CountWords   takes a stream of words, counts those that are known
//	Converse     takes a stream of words, and answers each as it comes
//
// See the traces drawn:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/grpc
//	grpcurl -plaintext -d '{"word": "cat"}' localhost:9000 translate.v1.TranslatorService/Translate
//
// It has no HTTP handler; health checks are answered on both ports. Open app.go for
// the service and proto/translate/v1/translate.proto for its contract; the package
// translatev1 is generated from the contract.
package main

import "github.com/servetrace/servetrace"

func main() { servetrace.Main(app()) }
