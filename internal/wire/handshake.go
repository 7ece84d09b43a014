// Package wire holds the parts of the contract between host and plugin that
// proto/servetrace/plugin/v1 cannot express: the handshake, the protocol version, the
// codec for encoded batches, the metadata names, the table of errors and gRPC codes,
// and the check of a socket's peer.
//
// It starts nothing and keeps no state. Open handshake.go first. gRPC codes appear in
// status.go only.
package wire

import (
	"path/filepath"
	"regexp"
)

// ProtocolVersion is the application protocol version of this contract, the second
// field of the handshake line. Version 1 is the package servetrace.plugin.v1.
const ProtocolVersion = 1

// CoreProtocolVersion is go-plugin's own version, the first field of the handshake
// line.
const CoreProtocolVersion = 1

// The cookie shows a plugin that a host started it. Without it, the plugin was started
// by hand and prints a usage text. The cookie is not a secret and never changes.
const (
	CookieKey   = "SERVETRACE_PLUGIN_MAGIC_COOKIE"
	CookieValue = "6f1d0a52c7b84c1e9d3b0c6a54e2f97a"
)

// Variables that the host sets for the handshake. EnvStdoutFD belongs to this project, and the
// other variables to go-plugin.
const (
	// EnvProtocolVersions lists the protocol versions that the host supports, separated by
	// commas.
	EnvProtocolVersions = "PLUGIN_PROTOCOL_VERSIONS"
	// EnvSocketDir names the private folder for the plugin's socket.
	EnvSocketDir = "PLUGIN_UNIX_SOCKET_DIR"
	// EnvClientCert holds the host's certificate if the host asks for AutoMTLS, which
	// this contract does not use.
	EnvClientCert = "PLUGIN_CLIENT_CERT"
	// EnvMultiplex is set if the host asks for go-plugin's multiplexed broker. The
	// handshake line then has a seventh field.
	EnvMultiplex = "PLUGIN_MULTIPLEX_GRPC"
	// EnvStdoutFD holds the number of the descriptor on which a plugin writes text for the
	// host's standard output. A plugin cannot use descriptor 1 for that, because it carries the
	// handshake and then log lines. Descriptor 2 carries log lines, too.
	EnvStdoutFD = "SERVETRACE_STDOUT_FD"
)

// SocketFolderPrefix is the start of the name of the folder that the host creates for each
// plugin. This folder is the parent of EnvSocketDir. The host's process id and a random
// number follow the prefix.
const SocketFolderPrefix = "servetrace-"

// socketFolder matches the name of a folder that a host creates for a plugin.
var socketFolder = regexp.MustCompile(`^` + regexp.QuoteMeta(SocketFolderPrefix) + `[0-9]+-[0-9]+$`)

// IsSocketFolder reports whether path has the name of a folder that a host creates for
// a plugin. It does not access the disk.
func IsSocketFolder(path string) bool { return socketFolder.MatchString(filepath.Base(path)) }

// SocketFolderLock is the name of a file in the folder that a host creates for a plugin. The host
// locks this file (flock) until it no longer uses the folder. The kernel unlocks the file when
// the host's process ends.
const SocketFolderLock = "host.lock"

// HealthService is the service name in go-plugin's health checks by grpc.health.v1.
const HealthService = "plugin"

// Full names of methods that are called with encoded batches or without generated code.
const (
	// ExportMethod takes an ExportTraceServiceRequest of OTLP.
	ExportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	// ExportService is the service of ExportMethod.
	ExportService = "opentelemetry.proto.collector.trace.v1.TraceService"
	// ProcessMethod takes a ProcessRequest.
	ProcessMethod = "/servetrace.plugin.v1.Processor/Process"
	// ProcessService is the service of ProcessMethod.
	ProcessService = "servetrace.plugin.v1.Processor"
)

// Metadata of an Export or a Process call.
const (
	// MetaBatchID identifies a batch. It is the same on every attempt.
	MetaBatchID = "servetrace-batch-id"
	// MetaAttempt counts attempts from 1.
	MetaAttempt = "servetrace-attempt"
	// MetaFiltered is trailing metadata, "processor=count", repeated for each
	// processor.
	MetaFiltered = "servetrace-filtered"
)

// Sizes, in bytes.
const (
	// DefaultMaxBatchBytes bounds the size of a batch for a plugin that declares no limit. It is
	// gRPC's default for a message, 4 MiB, minus 64 KiB for other parts of the message.
	DefaultMaxBatchBytes = 4<<20 - 64<<10
	// MaxMessageBytes is the largest message that the SDK accepts.
	MaxMessageBytes = 64 << 20
	// WindowBytes is the flow-control window of a stream and of a connection, in host and
	// plugin. It is fixed, because gRPC's estimate of the window delays each batch.
	WindowBytes = 8 << 20
	// WriteBufferBytes is the size of the host's write buffer and of the plugin's read buffer,
	// which batches pass through. The buffers for answers can be smaller.
	WriteBufferBytes = 256 << 10
)

// DefaultMaxConcurrency is the largest number of Export calls in flight for a plugin that
// declares no limit.
const DefaultMaxConcurrency = 4
