package serving

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

// The environment variables that [ConfigFromEnv] reads. A duration is in Go's form, such as
// 20s, 1m30s or 500ms.
const (
	EnvHTTPHost               = "SERVE_HTTP_HOST"                // default 127.0.0.1
	EnvHTTPPort               = "SERVE_HTTP_PORT"                // default 8000; 0 means any free port
	EnvRequestTimeout         = "SERVE_REQUEST_TIMEOUT"          // default 0: no limit
	EnvBackpressureStatus     = "SERVE_BACKPRESSURE_STATUS"      // default 503; or 429
	EnvBackpressureRetryAfter = "SERVE_BACKPRESSURE_RETRY_AFTER" // default 0: no Retry-After
	EnvShutdownTimeout        = "SERVE_SHUTDOWN_TIMEOUT"         // default 20s
	EnvReadHeaderTimeout      = "SERVE_HTTP_READ_HEADER_TIMEOUT" // default 10s
	EnvKeepAliveTimeout       = "SERVE_HTTP_KEEP_ALIVE_TIMEOUT"  // default 90s
	EnvStallTimeout           = "SERVE_HTTP_STALL_TIMEOUT"       // default 60s; 0: no limit
	EnvMaxHeaderBytes         = "SERVE_HTTP_MAX_HEADER_BYTES"    // default 65536
	EnvMinDrainingPeriod      = "SERVE_MIN_DRAINING_PERIOD"      // default 0; in a Kubernetes pod 3s
	EnvAccessLog              = "SERVE_ACCESS_LOG"               // "true", the default, or "false"
)

// DefaultShutdownTimeout is the time that a zero [Config.ShutdownTimeout] means. The caller
// of [Server.Shutdown] needs it for the deadline of the context. The value is the default of
// Ray's graceful_shutdown_timeout_s.
const DefaultShutdownTimeout = 20 * time.Second

// DefaultHTTPAddr is the address that an empty [Config.HTTPAddr] means.
const DefaultHTTPAddr = defaultHTTPHost + ":8000"

// The defaults of the other fields of [Config], which apply if a field is zero.
const (
	defaultHTTPHost          = "127.0.0.1"
	defaultHTTPPort          = 8000
	defaultReadHeaderTimeout = 10 * time.Second
	defaultIdleTimeout       = 90 * time.Second
	defaultStallTimeout      = 60 * time.Second
	defaultMaxHeaderBytes    = 64 << 10
)

// envInPod is a variable that Kubernetes sets in every pod. podDrainingPeriod is the default
// of EnvMinDrainingPeriod in a pod. It is above zero because a stopping pod still gets new
// requests for about a second, until all nodes know that the pod stops.
const (
	envInPod          = "KUBERNETES_SERVICE_HOST"
	podDrainingPeriod = 3 * time.Second
)

// The bounds of [Config.MaxHeaderBytes]. A lower limit would refuse ordinary browsers. With
// a higher limit, one connection could use too much memory.
const (
	leastHeaderBytes = 4 << 10
	mostHeaderBytes  = 16 << 20
)

// Config holds an operator's settings of a [Server]. The zero value is ready for use: it
// serves on 127.0.0.1:8000 with every limit at its default.
type Config struct {
	// HTTPAddr is the host:port at which the HTTP proxy listens. An empty host means every
	// address of the machine, and port 0 means any free port. Empty: 127.0.0.1:8000.
	HTTPAddr string

	// RequestTimeout bounds the time of a request from its arrival to the last byte of its
	// response, including the wait for a replica. Zero: no limit.
	RequestTimeout time.Duration

	// BackpressureStatus is the status of the response to an HTTP request that finds the
	// queue of its deployment full: 503 or 429. Zero: 503. [WithBackpressure] takes
	// precedence.
	BackpressureStatus int

	// BackpressureRetryAfter is the time after which the client of such a request should try
	// again. The response has it in the header Retry-After, in whole seconds, rounded up.
	// Zero: there is no such header. [WithBackpressure] takes precedence.
	BackpressureRetryAfter time.Duration

	// ShutdownTimeout is the time that requests in flight have to finish after the server
	// starts to drain. The caller of [Server.Shutdown] must pass a context that ends after
	// this time. Zero: 20s.
	ShutdownTimeout time.Duration

	// MinDrainingPeriod is the time for which a stopping server still takes new requests,
	// while its health check returns 503. It should be longer than the time that load
	// balancers need to notice the 503. The period comes before ShutdownTimeout, and ends
	// early if the context of [Server.Shutdown] ends. Zero: new requests are refused at once.
	MinDrainingPeriod time.Duration

	// ReadHeaderTimeout bounds the time in which a client sends the headers of a request.
	// Zero: 10s.
	ReadHeaderTimeout time.Duration

	// IdleTimeout is the time for which a connection without a request is kept open. Zero:
	// 90s.
	IdleTimeout time.Duration

	// StallTimeout is the longest time for which a client may delay its request. While the
	// handler reads the body, some bytes must arrive within this time. While the handler
	// writes the response, the client must take each part of at most 64 KiB within this time.
	// The time in which the handler does neither is not counted. If the handler leaves a part
	// of the body unread, net/http reads up to 256 KiB of it, which must arrive within this
	// time. The server may notice a delay one second late. Zero: 60s. Negative: no limit.
	StallTimeout time.Duration

	// MaxHeaderBytes is the largest size of a request line and its headers together, in
	// bytes, from 4096 to 16 MiB. net/http allows 4 KiB more. A larger request gets status
	// 431. Zero: 65536.
	MaxHeaderBytes int

	// QuietAccessLog leaves requests and calls by handle out of the log, except for
	// warnings and errors. Default: each request has a line.
	QuietAccessLog bool

	// Apps are an operator's settings of apps and deployments. They take precedence over the
	// options in the program. [New] returns an error if an app or a deployment of Apps does
	// not exist. [Server.Apply] replaces these settings.
	Apps []AppConfig

	// GRPC are the settings of the gRPC proxy.
	GRPC GRPCConfig

	// Calls are the settings of calls between processes.
	Calls CallConfig
}

// ConfigFromEnv reads the variables above, and the variables of gRPC and of calls between
// processes, through getenv. It ignores blanks around a value, as the service file does. An
// empty value counts as unset. The error names every wrong variable, its value and the
// allowed values. A field is zero if its variable is unset, except MinDrainingPeriod, which
// is 3s in a Kubernetes pod.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	env := envReader{getenv: func(name string) string { return strings.TrimSpace(getenv(name)) }}
	cfg := Config{
		RequestTimeout:         env.duration(EnvRequestTimeout),
		BackpressureStatus:     env.oneOf(EnvBackpressureStatus, backpressureStatuses),
		BackpressureRetryAfter: env.duration(EnvBackpressureRetryAfter),
		ShutdownTimeout:        env.positive(EnvShutdownTimeout),
		MinDrainingPeriod:      env.duration(EnvMinDrainingPeriod),
		ReadHeaderTimeout:      env.positive(EnvReadHeaderTimeout),
		IdleTimeout:            env.positive(EnvKeepAliveTimeout),
		StallTimeout:           env.limit(EnvStallTimeout),
		MaxHeaderBytes:         env.integer(EnvMaxHeaderBytes, 0, leastHeaderBytes, mostHeaderBytes),
		QuietAccessLog:         !env.boolean(EnvAccessLog, true),
		GRPC:                   grpcConfigFromEnv(&env),
		Calls:                  callConfigFromEnv(&env),
		HTTPAddr:               env.addr(EnvHTTPHost, defaultHTTPHost, EnvHTTPPort, defaultHTTPPort),
	}
	if env.getenv(envInPod) != "" && env.getenv(EnvMinDrainingPeriod) == "" {
		cfg.MinDrainingPeriod = podDrainingPeriod
	}
	return cfg, errors.Join(env.faults...)
}

// Validate returns all errors of c, joined, or nil. Each error has the value seen and the
// allowed values.
func (c Config) Validate() error {
	var f faults
	f.addr("HTTPAddr", c.HTTPAddr)
	f.duration("RequestTimeout", c.RequestTimeout)
	f.duration("BackpressureRetryAfter", c.BackpressureRetryAfter)
	f.duration("ShutdownTimeout", c.ShutdownTimeout)
	f.duration("MinDrainingPeriod", c.MinDrainingPeriod)
	f.duration("ReadHeaderTimeout", c.ReadHeaderTimeout)
	f.duration("IdleTimeout", c.IdleTimeout)
	if n := c.BackpressureStatus; n != 0 && !slices.Contains(backpressureStatuses, n) {
		f.add("BackpressureStatus %d: want %s", n, eitherOf(backpressureStatuses))
	}
	f.number("MaxHeaderBytes", c.MaxHeaderBytes, leastHeaderBytes, mostHeaderBytes)
	c.GRPC.check(&f)
	c.Calls.check(&f)
	return errors.Join(f...)
}

func (c Config) withDefaults() Config {
	c.HTTPAddr = cmp.Or(c.HTTPAddr, DefaultHTTPAddr)
	c.BackpressureStatus = cmp.Or(c.BackpressureStatus, backpressureStatuses[0])
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, DefaultShutdownTimeout)
	c.ReadHeaderTimeout = cmp.Or(c.ReadHeaderTimeout, defaultReadHeaderTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, defaultIdleTimeout)
	c.StallTimeout = cmp.Or(c.StallTimeout, defaultStallTimeout)
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, defaultMaxHeaderBytes)
	c.GRPC = c.GRPC.withDefaults()
	c.Calls = c.Calls.withDefaults()
	return c
}
