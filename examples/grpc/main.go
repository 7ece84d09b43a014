// Command grpc is a translator of words, with a method of each of gRPC's four kinds. It
// proves that each call is a single trace: the caller's span is the parent, and the
// method's own span is a child. It also proves that errors become gRPC's codes.
//
//	grpc [--grpc ADDRESS] [--http ADDRESS] [--config FILE]
//
//	Translate    translates a word; NOT_FOUND if the word is unknown
//	ListWords    streams all known words
//	CountWords   takes a stream of words and counts the known words
//	Converse     takes a stream of words and answers each word as it arrives
//
// Print the traces:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/grpc
//	grpcurl -plaintext -d '{"word": "cat"}' localhost:9000 translate.v1.TranslatorService/Translate
//
// It has no HTTP handler; both ports answer health checks. Open app.go for the service
// and proto/translate/v1/translate.proto for its contract. The package translatev1 is
// generated from the contract.
package main

import "github.com/servetrace/servetrace"

func main() { servetrace.Main(app()) }
