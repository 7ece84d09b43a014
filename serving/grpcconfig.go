package serving

import (
	"cmp"
	"math"
	"time"

	"github.com/servetrace/servetrace/serving/internal/grpcproxy"
)

// The environment variables of the gRPC proxy. A duration is in Go's form, such as 20s or
// 500ms. A size is a number of bytes.
const (
	EnvGRPCHost              = "SERVE_GRPC_HOST"               // default 127.0.0.1
	EnvGRPCPort              = "SERVE_GRPC_PORT"               // default 9000; 0 means any free port
	EnvGRPCRequestTimeout    = "SERVE_GRPC_REQUEST_TIMEOUT"    // default 0: no limit
	EnvGRPCMaxMessageBytes   = "SERVE_GRPC_MAX_MESSAGE_BYTES"  // default 2147483647
	EnvGRPCMaxStreams        = "SERVE_GRPC_MAX_STREAMS"        // default 1000
	EnvGRPCMaxHeaderBytes    = "SERVE_GRPC_MAX_HEADER_BYTES"   // default 65536
	EnvGRPCStallTimeout      = "SERVE_GRPC_STALL_TIMEOUT"      // default 60s; 0: no limit
	EnvGRPCConnectionTimeout = "SERVE_GRPC_CONNECTION_TIMEOUT" // default 10s
	EnvGRPCKeepaliveTime     = "SERVE_GRPC_KEEPALIVE_TIME"     // default 60s
	EnvGRPCKeepaliveMinTime  = "SERVE_GRPC_KEEPALIVE_MIN_TIME" // default 10s
)

// DefaultGRPCAddr is the address that an empty [GRPCConfig.Addr] means.
const DefaultGRPCAddr = defaultGRPCHost + ":9000"

// The defaults of the other fields of [GRPCConfig], which apply if a field is zero.
const (
	defaultGRPCHost          = "127.0.0.1"
	defaultGRPCPort          = 9000
	defaultGRPCMessageBytes  = math.MaxInt32 // Ray's default
	defaultGRPCMaxStreams    = 1000
	defaultConnectionTimeout = 10 * time.Second
	defaultKeepaliveTime     = 60 * time.Second
	defaultKeepaliveMinTime  = 10 * time.Second
)

// The lower bounds of [GRPCConfig.MaxMessageBytes] and [GRPCConfig.MaxHeaderBytes]. A lower
// bound on headers leaves no space for traceparent, request id and gRPC's own headers.
const (
	leastGRPCMessageBytes = 1 << 10
	leastGRPCHeaderBytes  = 1 << 10
)

// GRPCConfig holds an operator's settings of the gRPC proxy. The proxy listens only if the
// ingress of an app has gRPC services. With the zero value it listens on 127.0.0.1:9000, with
// every limit at its default.
type GRPCConfig struct {
	// Addr is the host:port at which the gRPC proxy listens. An empty host means every address
	// of the machine, and port 0 means any free port. Empty: 127.0.0.1:9000.
	Addr string

	// RequestTimeout bounds the time of a call, from its arrival to its status, including
	// the wait for a replica. The client's own deadline applies too. Zero: no limit.
	RequestTimeout time.Duration

	// MaxMessageBytes is the largest size of a message from or to a client, in bytes before
	// compression. A call with a larger message fails with RESOURCE_EXHAUSTED. Zero:
	// 2147483647, as in Ray. A message is in memory as a whole. So if clients are not trusted,
	// set the smallest size that the services need.
	MaxMessageBytes int

	// MaxStreams is the number of calls that one connection may carry at a time. The client
	// delays further calls. Zero: 1000.
	MaxStreams int

	// MaxHeaderBytes is the largest size of a call's metadata, from 1024 bytes to 16 MiB. Each
	// field counts 32 bytes more than its text, as HTTP/2 prescribes. If the metadata is
	// larger, the call is reset. If it is much larger, the connection is closed. Zero: 65536.
	MaxHeaderBytes int

	// StallTimeout is the longest time for which a client may delay its call. If the client
	// sends a single message, the whole message must arrive within this time. The pauses of a
	// client that sends a stream have no limit. If the server sends, the client must take
	// earlier messages within this time. Zero: 60s. Negative: no limit.
	StallTimeout time.Duration

	// ConnectionTimeout bounds the time in which a new connection completes its HTTP/2
	// handshake. Zero: 10s.
	ConnectionTimeout time.Duration

	// KeepaliveTime is the time after which the server sends a ping on a connection on which
	// it receives nothing. If no answer arrives within 20s, the connection is closed and its
	// calls are cancelled. Zero: 60s.
	KeepaliveTime time.Duration

	// KeepaliveMinTime is the shortest time that a client must leave between two pings. If
	// its pings come more often, the connection is closed. A client may ping even if it has no
	// call. Zero: 10s.
	KeepaliveMinTime time.Duration
}

func grpcConfigFromEnv(env *envReader) GRPCConfig {
	return GRPCConfig{
		RequestTimeout:    env.duration(EnvGRPCRequestTimeout),
		MaxMessageBytes:   env.integer(EnvGRPCMaxMessageBytes, 0, leastGRPCMessageBytes, math.MaxInt32),
		MaxStreams:        env.integer(EnvGRPCMaxStreams, 0, 1, math.MaxInt32),
		MaxHeaderBytes:    env.integer(EnvGRPCMaxHeaderBytes, 0, leastGRPCHeaderBytes, mostHeaderBytes),
		StallTimeout:      env.limit(EnvGRPCStallTimeout),
		ConnectionTimeout: env.positive(EnvGRPCConnectionTimeout),
		KeepaliveTime:     env.positive(EnvGRPCKeepaliveTime),
		KeepaliveMinTime:  env.positive(EnvGRPCKeepaliveMinTime),
		Addr:              env.addr(EnvGRPCHost, defaultGRPCHost, EnvGRPCPort, defaultGRPCPort),
	}
}

// check adds all errors of c to f, each with the value seen and the allowed values.
func (c GRPCConfig) check(f *faults) {
	f.addr("GRPC.Addr", c.Addr)
	f.duration("GRPC.RequestTimeout", c.RequestTimeout)
	f.duration("GRPC.ConnectionTimeout", c.ConnectionTimeout)
	f.duration("GRPC.KeepaliveTime", c.KeepaliveTime)
	f.duration("GRPC.KeepaliveMinTime", c.KeepaliveMinTime)
	f.number("GRPC.MaxMessageBytes", c.MaxMessageBytes, leastGRPCMessageBytes, math.MaxInt32)
	f.number("GRPC.MaxStreams", c.MaxStreams, 1, math.MaxInt32)
	f.number("GRPC.MaxHeaderBytes", c.MaxHeaderBytes, leastGRPCHeaderBytes, mostHeaderBytes)
}

func (c GRPCConfig) withDefaults() GRPCConfig {
	c.Addr = cmp.Or(c.Addr, DefaultGRPCAddr)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, defaultGRPCMessageBytes)
	c.MaxStreams = cmp.Or(c.MaxStreams, defaultGRPCMaxStreams)
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, defaultMaxHeaderBytes)
	c.StallTimeout = cmp.Or(c.StallTimeout, defaultStallTimeout)
	c.ConnectionTimeout = cmp.Or(c.ConnectionTimeout, defaultConnectionTimeout)
	c.KeepaliveTime = cmp.Or(c.KeepaliveTime, defaultKeepaliveTime)
	c.KeepaliveMinTime = cmp.Or(c.KeepaliveMinTime, defaultKeepaliveMinTime)
	return c
}

// settings returns the settings of the proxy except its address. No field of c may be zero
// that has a default.
func (c GRPCConfig) settings() grpcproxy.Settings {
	return grpcproxy.Settings{
		RequestTimeout:    c.RequestTimeout,
		MaxMessageBytes:   c.MaxMessageBytes,
		MaxStreams:        c.MaxStreams,
		MaxHeaderBytes:    min(c.MaxHeaderBytes, mostHeaderBytes),
		StallTimeout:      c.StallTimeout,
		ConnectionTimeout: c.ConnectionTimeout,
		KeepaliveTime:     c.KeepaliveTime,
		KeepaliveMinTime:  c.KeepaliveMinTime,
	}
}
