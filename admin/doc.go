// Package admin shows the state of a running host to operators, to Prometheus and to
// other programs: the plugins, their states, and the delivery accounting of all spans.
// It should have its own listener, away from the service's users.
//
//	/-/tracing       a page for browsers; JSON if the client asks for it
//	/-/tracing.json  the same, always as JSON (see Status)
//	/metrics         for Prometheus, also in the OpenMetrics format
//	/-/healthz       "ok": this process answers
//	/-/capture       the spans that a plugin gets, as they come, only if enabled
//	/debug/pprof/    profiles, only if enabled
//
// The life of a Server, which a service has if SERVE_ADMIN_PORT is set:
//
//  1. ConfigFromEnv reads the settings, NewServer builds the Handler.
//  2. Start listens and returns an error if it cannot. From then on it answers.
//  3. A request for the status or the metrics uses a snapshot of the statistics
//     (host.Host.Stats). All requests together take at most fifty snapshots a second,
//     because the host's OnEnd waits during a snapshot. Such an answer is complete before
//     it is sent, so a slow client blocks only its own connection. The server also takes
//     a snapshot every five seconds, for rates and five minutes of history.
//  4. Shutdown closes the listener. Requests in progress have a short time to finish.
//
// A program with its own server mounts Handler; a program with its own registry registers
// NewCollector. A component that starts after the listener adds its metrics by
// Server.Register. Other parts of the program add themselves: a server of package serving
// by Server.ShowDeployments, the log by Server.ShowLog, a tracer by Server.ShowSampling, a
// relay by Server.ShowRelay. A host adds its last traces by Server.ShowTraces, and its
// captures by Server.ServeCapture.
//
// The package changes nothing: no request can start, stop or set anything, and only GET
// and HEAD are answered. It has no users and no passwords. It shows paths, process ids,
// errors, names of spans and of variables (never their values), which are for operators.
// So the default address is on the loopback interface, and requests for a foreign host
// name are refused: a web page cannot read the answers by DNS rebinding.
//
// Open handler.go first, then status.go (the data), collector.go (the metrics) and
// server.go.
package admin
