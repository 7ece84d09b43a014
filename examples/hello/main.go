// Command hello is a small service: the deployment HelloWorld at "/", with two replicas
// and handlers that make their own spans. It proves the whole way of a span, from the
// request to a plugin's output.
//
//	hello [--http ADDRESS] [--config FILE] [--app NAME]
//
//	GET /         answers, under the span application_span
//	GET /fail     returns an error: status 500, ERROR on the proxy span
//	GET /stream   sends three lines, one at a time
//
// --app is the name of the application, as in a service file. The second file of the
// tracing guide of Ray Serve has my_app; the default is Ray Serve's own.
//
// MainFunc reads the flags, the environment and the service file, serves until SIGTERM
// or SIGINT, and sets the exit code. The operator selects the exporter plugin by
// SERVE_TRACING_EXPORTER_PLUGIN; the program does not depend on it.
//
// Open hello.go for the handlers.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

func main() {
	name := flag.String("app", "default", "`name` of the application")
	servetrace.MainFunc(func(*servetrace.Config) ([]*serving.App, error) {
		return []*serving.App{app(*name)}, nil
	}, servetrace.WithReady(printHints))
}

func printHints(addr net.Addr) {
	fmt.Fprintf(os.Stderr, "try:   curl -i http://%[1]s/\n"+
		"       curl -i http://%[1]s/fail\n"+
		"       curl -N http://%[1]s/stream\n"+
		"       curl -i -H 'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' http://%[1]s/\n"+
		"stop:  Ctrl-C\n", addr)
}
