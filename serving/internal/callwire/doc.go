// Package callwire has the parts that both sides of a call between processes share: the
// encoding of errors, TLS, and the bounds of a connection.
//
// The life of an error: the callee encodes it with [Errors.Encode], the stream carries
// it, and the caller decodes it with [Errors.Decode].
//
// Packages callclient and callserver open and accept the connections. The messages are in
// proto/servetrace/serve/v1. Open errors.go first.
package callwire

import "time"

// TooLarge is appended to the error text for a message that is too large.
const TooLarge = "; SERVE_CALL_MAX_MESSAGE_BYTES bounds it, in both processes"

// WindowBytes is the size of the HTTP/2 flow-control windows of a stream and of a connection,
// in both directions. Without a fixed size, grpc would send pings to measure the size that a
// connection needs.
const WindowBytes = 4 << 20

// Each side of a connection sends a ping if nothing has come for KeepaliveTime. If the other
// side does not answer within KeepaliveTimeout, because it is frozen or disconnected, the
// connection and its calls end.
const (
	KeepaliveTime    = 10 * time.Second // the shortest time that grpc allows for a client
	KeepaliveTimeout = 2 * time.Second
)
