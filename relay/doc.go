// Package relay takes spans of programs in any language by OTLP, and gives them to a
// host, whose plugins export them. The command "servetrace relay" runs it.
//
// The life of a Server:
//
//  1. ConfigFromEnv reads the settings. New checks them; nothing runs yet.
//  2. Start listens on a Unix socket, or at TCP addresses, or both. A lock beside each
//     socket lets only one relay listen there; the next one gets a RunningError.
//  3. Each request becomes the bytes of an ExportTraceServiceRequest, which are checked
//     and passed to host.Host.Consume undecoded, or to host.Host.Deliver if the sender
//     waits for the delivery. The answer of the Host becomes an answer of OTLP. Spans of
//     the Python package arrive in the compact form of package pywire.
//  4. Done is closed if no connection was open for Config.Linger, or a listener failed.
//  5. Shutdown closes the listeners, which lets another relay start, and finishes the
//     requests. The caller then shuts the Host down, which answers the senders that wait.
//     Close cuts the remaining connections.
//
// Memory is bounded: the Host's Config.QueueBytes, up to twice as much while senders wait
// for the delivery, and Config.ReceiveBytes for requests that are still arriving. At this
// bound the connection that holds the most bytes is closed. At the bound of connections,
// an idle connection is closed, if there is one.
//
// The package takes traces only, starts no plugins, and has no authentication on a Unix
// socket except the check of the peer's user.
//
// Open server.go first, then conns.go (limits), export.go (answers), grpc.go and http.go.
package relay
