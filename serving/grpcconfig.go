package serving

import (
	"cmp"
	"math"
	"time"

	"github.com/servetrace/servetrace/serving/internal/grpcproxy"
)

// The environment variables of the gRPC proxy. Durations are written as Go
// writes them, sizes in bytes.
const (
	EnvGRPCHost              = "SERVE_GRPC_HOST"               // default 127.0.0.1
	EnvGRPCPort              = "SERVE_GRPC_PORT"               // default 9000; 0 takes any free port
	EnvGRPCRequestTimeout    = "SERVE_GRPC_REQUEST_TIMEOUT"    // default 0: none
	EnvGRPCMaxMessageBytes   = "SERVE_GRPC_MAX_MESSAGE_BYTES"  // default 2147483647
	EnvGRPCMaxStreams        = "SERVE_GRPC_MAX_STREAMS"        // default 1000
	EnvGRPCMaxHeaderBytes    = "SERVE_GRPC_MAX_HEADER_BYTES"   // default 65536
	EnvGRPCStallTimeout      = "SERVE_GRPC_STALL_TIMEOUT"      // default 60s; 0: none
	EnvGRPCConnectionTimeout = "SERVE_GRPC_CONNECTION_TIMEOUT" // default 10s
	EnvGRPCKeepaliveTime     = "SERVE_GRPC_KEEPALIVE_TIME"     // default 60s
	EnvGRPCKeepaliveMinTime  = "SERVE_GRPC_KEEPALIVE_MIN_TIME" // default 10s
)

// DefaultGRPCAddr is the meaning of an empty [GRPCConfig.Addr].
const DefaultGRPCAddr = defaultGRPCHost + ":9000"

// The values that a zero in the other fields of [GRPCConfig] stands for.
const (
	defaultGRPCHost          = "127.0.0.1"
	defaultGRPCPort          = 9000
	defaultGRPCMessageBytes  = math.MaxInt32 // Ray's
	defaultGRPCMaxStreams    = 1000
	defaultConnectionTimeout = 10 * time.Second
	defaultKeepaliveTime     = 60 * time.Second
	defaultKeepaliveMinTime  = 10 * time.Second
)

// The lower bounds. Headers of less than leastGRPCHeaderBytes have no space for a
// traceparent, a request id and gRPC's own headers.
const (
	leastGRPCMessageBytes = 1 << 10
	leastGRPCHeaderBytes  = 1 << 10
)

// GRPCConfig holds an operator's settings of the gRPC proxy, which listens only
// if the ingress of an app has gRPC services. The zero value is ready for
// use: it serves on 127.0.0.1:9000 with every limit at its default.
type GRPCConfig struct {
	// Addr is the host:port to listen on. An empty host means every address,
	// port 0 any free one. Empty: 127.0.0.1:9000.
	Addr string

	// RequestTimeout bounds the time of a call, from its arrival to its status, including
	// the wait for a replica. The client's own deadline applies too. Zero: no limit.
	RequestTimeout time.Duration

	// MaxMessageBytes bounds each message, in both directions, measured without compression.
	// A call with a larger message fails with RESOURCE_EXHAUSTED. Zero: 2147483647, as in
	// Ray. If clients are not trusted, set it to the size that the services need, because a
	// message is in memory as a whole.
	MaxMessageBytes int

	// MaxStreams is the number of calls that one connection may carry at a time. A client
	// waits before it begins another call. Zero: 1000.
	MaxStreams int

	// MaxHeaderBytes bounds the metadata of a call, from 1024 to 16 MiB. HTTP/2 counts 32
	// bytes for each field in addition to the field itself. Beyond the bound, the stream is
	// reset. Far beyond it, the connection is closed. Zero: 65536.
	MaxHeaderBytes int

	// StallTimeout is the longest time for which a client may delay its call. In a call
	// without a client stream, the one message must arrive as a whole within this time. A
	// Send must not wait longer for the client to take earlier messages. A client stream
	// may pause without a limit. Zero: 60s. Negative: no limit.
	StallTimeout time.Duration

	// ConnectionTimeout bounds the time in which a new connection completes its HTTP/2
	// handshake. Zero: 10s.
	ConnectionTimeout time.Duration

	// KeepaliveTime is the time after which the server sends a ping on a silent connection.
	// Without an answer within 20s, the connection is closed and its calls are cancelled.
	// Zero: 60s.
	KeepaliveTime time.Duration

	// KeepaliveMinTime is the shortest time that a client must leave between two pings. A
	// client may also ping while it has no call. If pings come more often, the connection
	// is closed. Zero: 10s.
	KeepaliveMinTime time.Duration
}

func grpcConfigFromEnv(env *envReader) GRPCConfig {
	return GRPCConfig{
		RequestTimeout:    env.duration(EnvGRPCRequestTimeout),
		MaxMessageBytes:   env.integer(EnvGRPCMaxMessageBytes, 0, leastGRPCMessageBytes, math.MaxInt32),
		MaxStreams:        env.integer(EnvGRPCMaxStreams, 0, 1, math.MaxInt32),
		MaxHeaderBytes:    env.integer(EnvGRPCMaxHeaderBytes, 0, leastGRPCHeaderBytes, mostHeaderBytes),
		StallTimeout:      env.limit(EnvGRPCStallTimeout),
		ConnectionTimeout: env.duration(EnvGRPCConnectionTimeout),
		KeepaliveTime:     env.duration(EnvGRPCKeepaliveTime),
		KeepaliveMinTime:  env.duration(EnvGRPCKeepaliveMinTime),
		Addr:              env.addr(EnvGRPCHost, defaultGRPCHost, EnvGRPCPort, defaultGRPCPort),
	}
}

// check adds all errors, each with the value seen and the allowed values.
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

// settings returns the proxy's part of c. The caller must have set the defaults.
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
