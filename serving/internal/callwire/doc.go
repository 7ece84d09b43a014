// Package callwire has the parts that both sides of a call between processes share: the
// form of errors, and TLS.
//
// The life of an error: the callee encodes it with [Errors.Encode], the stream carries
// it, and the caller decodes it with [Errors.Decode].
//
// The package opens no connection and takes none: packages callclient and callserver do.
// The messages are in proto/servetrace/serve/v1. Open errors.go first.
package callwire

import "time"

// TooLarge is the end of the error text for a message that is too large.
const TooLarge = "; SERVE_CALL_MAX_MESSAGE_BYTES bounds it, in both processes"

// WindowBytes is the window of a stream and of a connection, in both directions. It is
// fixed, because grpc would otherwise send pings to find the window that a connection
// needs.
const WindowBytes = 4 << 20

// A side of a connection pings after KeepaliveTime of silence. If the other side does not
// answer in KeepaliveTimeout, because it is frozen or cut off, the connection and its calls
// end.
const (
	KeepaliveTime    = 10 * time.Second // the least that grpc allows a client
	KeepaliveTimeout = 2 * time.Second
)
