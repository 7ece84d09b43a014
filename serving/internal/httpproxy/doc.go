// Package httpproxy serves requests by HTTP/1.1 and unencrypted HTTP/2: it finds the app
// by its route prefix, has the app's router choose a replica, and responds itself if no
// handler did.
//
// The life of a request:
//
//  1. proxy.ServeHTTP answers requests for the proxy itself, such as /-/healthz. For
//     other requests, proxy.answer makes an exchange, admits the request and finds its
//     route.
//  2. proxy.serve starts the proxy span. The router assigns a replica, and the handler runs
//     there on a goroutine of its own, with a response that the proxy can take away.
//  3. The exchange waits until the handler returns, a timeout passes, or the server or the
//     replica stops. A client that closes its side ends only the handler's context,
//     because the client may still read.
//  4. If the handler did not answer, the proxy does. The span ends, and the request is
//     counted and logged.
//
// A response has one writer: the handler from its first write on, or the proxy if the
// request has timed out or the handler has failed before that write. If a response fails
// after it began, the proxy cuts the connection. A read or write that the client delays
// too long fails with ErrClientStalled, and the handler may still answer: see package
// stall.
//
// A handler may take over the connection of a request that asks for another protocol. A
// web socket is watched, see package socket: its context ends when a close frame or the
// connection's end comes, even if the handler does not read.
//
// The package has no web sockets over HTTP/2, because net/http does not offer them. It does
// not choose replicas: package router does.
//
// Open front.go first, which has net/http's server, then proxy.go and call.go. Three files
// have the life of one request:
//
//   - exchange.go: when the request ends, and the response that the proxy makes.
//   - response.go: the writer of the response in each phase.
//   - pace.go: the deadlines, and the delays that count as a stall.
package httpproxy
