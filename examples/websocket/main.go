// Command websocket talks over a web socket: each message is a call of another
// deployment. It proves that the whole conversation is one trace: the spans of
// the socket last as long as it does and have its close code, and those of the
// calls lie below them.
//
//	websocket [--http ADDRESS] [--config FILE]
//
//	Chat (web socket) ── Model.reply
//
// Try it in a browser's console, or with any client:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_CONSOLE_FORMAT=pretty bin/websocket
//	s = new WebSocket("ws://localhost:8000/chat", "chat.v1")
//	s.onmessage = e => console.log(e.data)
//	s.send("Hello there"); s.close(1000)
//
// Stopped by Ctrl-C, it waits for open sockets as long as SERVE_SHUTDOWN_TIMEOUT
// says, and closes those that are left with 1001.
//
// Its life is that of examples/hello. Open app.go for the deployments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

func main() {
	switch err := run(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "websocket:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("websocket", flag.ContinueOnError)
	addr := flags.String("http", "", "`address` to serve on (default 127.0.0.1:8000); port 0 takes any free one")
	file := flags.String("config", "", "service `file` (default that of "+servetrace.EnvConfig+")")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: want none", flags.Arg(0))
	}
	cfg, err := servetrace.LoadConfigFile(*file, os.Getenv) //nolint:forbidigo // the process is put together here
	if err != nil {
		return err
	}
	if *addr != "" {
		cfg.Serving.HTTPAddr = *addr
	}
	return servetrace.Run(context.Background(), cfg, []*serving.App{app()}, servetrace.WithReady(printHint))
}

func printHint(addr net.Addr) {
	fmt.Fprintf(os.Stderr, "try:   new WebSocket(\"ws://%s/chat\", \"chat.v1\") in a browser\nstop:  Ctrl-C\n", addr)
}
