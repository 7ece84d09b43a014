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
// Open app.go for the deployments.
package main

import "github.com/servetrace/servetrace"

func main() { servetrace.Main(app()) }
