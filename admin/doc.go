// Package admin shows a running host to people, to Prometheus and to other
// programs: which plugins there are, how they are, and what became of every
// span. It belongs on a listener of its own, away from the service's users.
//
//	/-/tracing       a page for browsers; JSON for those who ask for it
//	/-/tracing.json  the same, always as JSON (Status says what is in it)
//	/metrics         for Prometheus, also in the form of OpenMetrics
//	/-/healthz       "ok": this process answers
//	/debug/pprof/    profiles, only where they were asked for
//
// The life of a Server, which a service has where SERVE_ADMIN_PORT is set:
//
//  1. ConfigFromEnv reads the settings, NewServer builds the Handler.
//  2. Start listens, and says so if it can not; from then on it answers.
//  3. Each request takes the books once (host.Host.Stats), and at most fifty
//     times a second for all requests together: the host's OnEnd waits while
//     they are taken. What is sent was put together before, so that a slow
//     client holds up nothing but its own connection.
//  4. Shutdown ends it, requests that are being answered included, after a
//     moment.
//
// A program with a server of its own mounts Handler; one with a registry of its
// own registers NewCollector. What starts after the listener adds its metrics by
// Server.Register, a server of package serving its deployments by
// Server.ShowDeployments, and a log that drops lines their number by
// Server.ShowLog.
//
// The package changes nothing: no request can start, stop or set anything, and
// only GET and HEAD are answered. It knows no users and no passwords. What it
// shows is for operators (paths, process ids, errors, names of variables, never
// their values), so it listens on the loopback interface unless told otherwise,
// and answers no request that came by a name that is not its own: a page that
// somebody has open in a browser can not read it by way of DNS.
//
// Open handler.go first, then status.go (what is shown), collector.go (the
// metrics) and server.go.
package admin
