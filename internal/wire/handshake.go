// Package wire holds what a host and a plugin must agree on beside the
// messages of proto/servetrace/plugin/v1: the handshake, the protocol version,
// the codec that passes encoded batches untouched, the names of metadata, the
// table of errors and gRPC codes, and the check of who is at the other end of
// a socket.
//
// It starts nothing and keeps no state. Open handshake.go first; gRPC codes
// exist in status.go and nowhere else.
package wire

import (
	"path/filepath"
	"regexp"
)

// ProtocolVersion is the application protocol version of this contract, the
// second field of the handshake line. Version 1 is the package
// servetrace.plugin.v1.
const ProtocolVersion = 1

// CoreProtocolVersion is go-plugin's own version, the first field of the
// handshake line.
const CoreProtocolVersion = 1

// The cookie tells a plugin that a host started it, so that one that is run by
// hand can say what it is. It is no secret and never changes.
const (
	CookieKey   = "SERVETRACE_PLUGIN_MAGIC_COOKIE"
	CookieValue = "6f1d0a52c7b84c1e9d3b0c6a54e2f97a"
)

// Variables of the handshake, go-plugin's and ours.
const (
	// EnvProtocolVersions lists the host's protocol versions, comma separated.
	EnvProtocolVersions = "PLUGIN_PROTOCOL_VERSIONS"
	// EnvSocketDir names the private folder for the plugin's socket.
	EnvSocketDir = "PLUGIN_UNIX_SOCKET_DIR"
	// EnvClientCert carries a host's certificate when it asks for AutoMTLS,
	// which this contract does not use.
	EnvClientCert = "PLUGIN_CLIENT_CERT"
	// EnvMultiplex is set when the host asks for go-plugin's multiplexed
	// broker; the handshake line then has a seventh field.
	EnvMultiplex = "PLUGIN_MULTIPLEX_GRPC"
	// EnvStdoutFD is the number of the descriptor for what a plugin means to print
	// to the host's standard output. Descriptor 1 of a plugin is handshake, then
	// log, and descriptor 2 is log.
	EnvStdoutFD = "SERVETRACE_STDOUT_FD"
)

// SocketFolderPrefix begins the name of the folder that a host makes for each
// plugin, the parent of EnvSocketDir: its process id and a random number follow.
const SocketFolderPrefix = "servetrace-"

// socketFolder is such a name.
var socketFolder = regexp.MustCompile(`^` + regexp.QuoteMeta(SocketFolderPrefix) + `[0-9]+-[0-9]+$`)

// IsSocketFolder tells whether path is named as the folders are that a host
// makes, each for one plugin alone. It looks at no disk.
func IsSocketFolder(path string) bool { return socketFolder.MatchString(filepath.Base(path)) }

// SocketFolderLock is the name of a file in that folder, which the host keeps
// locked (flock) as long as it lives.
const SocketFolderLock = "host.lock"

// HealthService is the name that go-plugin checks by grpc.health.v1.
const HealthService = "plugin"

// Full names of the methods that travel with encoded batches or without
// generated code.
const (
	// ExportMethod takes an ExportTraceServiceRequest of OTLP.
	ExportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	// ExportService is its service.
	ExportService = "opentelemetry.proto.collector.trace.v1.TraceService"
)

// Metadata of an Export call.
const (
	// MetaBatchID names a batch, the same on every attempt.
	MetaBatchID = "servetrace-batch-id"
	// MetaAttempt counts attempts from 1.
	MetaAttempt = "servetrace-attempt"
	// MetaFiltered is trailing metadata, "processor=count", repeated.
	MetaFiltered = "servetrace-filtered"
)

// Sizes, in bytes.
const (
	// DefaultMaxBatchBytes is what a host sends at most to a plugin that names
	// no limit: gRPC's default of 4 MiB, less head-room for framing.
	DefaultMaxBatchBytes = 4<<20 - 64<<10
	// MaxMessageBytes is what the SDK takes at most.
	MaxMessageBytes = 64 << 20
	// WindowBytes is the flow-control window of a stream and of a connection,
	// on both sides: fixed, for a window that is estimated stalls each batch.
	WindowBytes = 8 << 20
	// WriteBufferBytes is the size of the host's write buffer and of the plugin's
	// read buffer. Answers are small.
	WriteBufferBytes = 256 << 10
)

// DefaultMaxConcurrency is how many Export calls a host has in flight at a
// plugin that names no limit.
const DefaultMaxConcurrency = 4
