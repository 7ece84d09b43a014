// Package callwire has what the two sides of a call between processes must agree on: the
// keys of metadata, the form of errors, and TLS.
//
// The life of an error: the callee encodes it with [Errors.Encode], the stream carries
// it, and the caller decodes it with [Errors.Decode].
//
// The package opens no connection and takes none: packages callclient and callserver do.
// The messages are in proto/servetrace/serve/v1. Open errors.go first.
package callwire

// The keys of metadata.
const (
	// MetaReplica is in the headers of an accepted call: the unique id of the replica.
	MetaReplica = "servetrace-replica"
	// MetaRefused is in the trailer of a refused call: one of the reasons below.
	MetaRefused = "servetrace-refused"
)

// The reasons of MetaRefused. Unknown is for a function that the process does not have,
// or has with another codec.
const (
	RefusedFull        = "full"
	RefusedStopping    = "stopping"
	RefusedUnavailable = "unavailable"
	RefusedUnknown     = "unknown"
)
