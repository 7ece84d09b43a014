// Command websocket holds conversations over a web socket. Each message is a call of
// another deployment. It proves that the whole conversation is a single trace: the
// socket's spans last as long as the socket and have its close code, and the spans of
// the calls are their children.
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
// After Ctrl-C it waits for open sockets up to SERVE_SHUTDOWN_TIMEOUT, and then closes
// the remaining sockets with 1001.
//
// Open app.go for the deployments.
package main

import "github.com/servetrace/servetrace"

func main() { servetrace.Main(app()) }
