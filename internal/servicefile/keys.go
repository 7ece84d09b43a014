package servicefile

import "strings"

// anyName is the placeholder for the name of a plugin in a path.
const anyName = "NAME"

const (
	pathEnabled  = "tracing_config.enabled"
	pathExporter = "tracing_config.exporter_plugin"
	pathFunction = "tracing_config.exporter_import_path"
	pathPlugins  = "tracing_config.plugins"
	pathDocument = pathPlugins + "." + anyName + ".config"
)

// Paths of the keys of applications. "[]" stands for an item of a list.
const (
	wordApps       = "applications"
	pathApp        = wordApps + "[]"
	pathDeployment = pathApp + ".deployments[]"
	pathUserConfig = pathDeployment + ".user_config"
)

// EnvPlugins is the variable of the list of plugins. The file has no value for it if
// tracing_config.enabled is false.
const EnvPlugins = "SERVE_TRACING_EXPORTER_PLUGIN"

// OpenTelemetry's variables that affect the values of keys.
const (
	envSampler        = "OTEL_TRACES_SAMPLER"
	envSamplerArg     = "OTEL_TRACES_SAMPLER_ARG"
	envSDKDisabled    = "OTEL_SDK_DISABLED"
	envTracesExporter = "OTEL_TRACES_EXPORTER"
)

// Key is one key of the service file.
type Key struct {
	// Path is the path of the key, "http_options.port". In it, NAME stands for a plugin's name,
	// and "[]" for an item of a list.
	Path string
	// Variable is the environment variable that overrides the key. It holds the value of the
	// key, but for the configuration of a plugin, it holds the path of a file. It is empty if
	// the key has no variable.
	Variable string
	// Default is the value if neither the key nor the variable is set, in the form of the
	// variable. It is empty if there is no default.
	Default string
	// Meaning describes the key for the reference, in a sentence without its full stop.
	Meaning string

	form form
	// secret is set if the value is a credential. Settings does not show it.
	secret bool
	// atMost describes an upper bound of the default that depends on another key.
	atMost string
	// join is the text between the plugin's name and the value, if the variable is a list with
	// an item for each plugin. Otherwise it is empty.
	join string
	// over returns the name of an OpenTelemetry variable for the same setting if the environment
	// sets it, otherwise "". over is nil if OpenTelemetry has no such variable.
	over func(getenv func(string) string) string
}

// Form describes the allowed values of the key.
func (k Key) Form() string { return k.form.says }

// keys is the table, in the order of the reference.
var keys = []Key{
	{Path: "name", Variable: "OTEL_SERVICE_NAME", form: text, over: serviceName,
		Meaning: "`service.name` of the spans. Unset, also in `OTEL_RESOURCE_ATTRIBUTES`: `unknown_service:EXECUTABLE`"},

	{Path: pathEnabled, form: boolean,
		Meaning: "`false`: the file starts no plugin. `true` without `exporter_plugin`: [span files](service-file.md#span-files)"},
	{Path: pathExporter, Variable: EnvPlugins, form: list(","),
		Meaning: "[the list of plugins](#the-list-of-plugins). Unset: tracing is off"},
	{Path: pathFunction, Variable: EnvPlugins, form: importPath,
		Meaning: "[exporter function of Ray Serve](../how-to/run-a-ray-exporter-function.md), beside `exporter_plugin`; in the variable `python:MODULE:FUNCTION`"},
	{Path: "tracing_config.processor_plugin", Variable: "SERVE_TRACING_PROCESSOR_PLUGIN", form: list(","),
		Meaning: "[processors](#processors) of all exporters, in order"},
	{Path: "tracing_config.python", Variable: "SERVE_TRACING_PYTHON", Default: "python3", form: text,
		Meaning: "Python for exporter functions: a path, or a name in the folders of `PATH`"},
	{Path: "tracing_config.sampling_ratio", Variable: "SERVE_TRACING_SAMPLING_RATIO", Default: "1", form: number, over: either(envSampler),
		Meaning: "share of traces taken, 0 to 1. Unset: `OTEL_TRACES_SAMPLER` decides"},
	{Path: "tracing_config.trust_inbound", Variable: "SERVE_TRACING_TRUST_INBOUND", Default: "true", form: boolean,
		Meaning: "`false`: the ratio decides, not the sampled flag of a `traceparent`"},
	{Path: "tracing_config.semconv", Variable: "SERVE_TRACING_SEMCONV", Default: "ray", form: text,
		Meaning: "[names of attributes](spans.md#names): `ray`, `stable` or `dup` (both)"},
	{Path: "tracing_config.plugin_dir", Variable: "SERVE_TRACING_PLUGIN_DIR", form: list(":"),
		Meaning: "folders for bare names. Unset: `plugins` beside the executable, then `servetrace/plugins` in `/usr/local/lib` and `/usr/lib`"},
	{Path: "tracing_config.queue_bytes", Variable: "SERVE_TRACING_QUEUE_BYTES", Default: "32MiB", form: size,
		Meaning: "bound on the [memory](#memory) of waiting spans, 1MiB or more"},
	{Path: "tracing_config.max_span_bytes", Variable: "SERVE_TRACING_MAX_SPAN_BYTES", Default: "1MiB", atMost: "a quarter of queue_bytes", form: size,
		Meaning: "largest span, at most 3MiB; larger spans are refused"},
	{Path: "tracing_config.batch_age", Variable: "SERVE_TRACING_BATCH_AGE", Default: "200ms", form: duration, over: either("OTEL_BSP_SCHEDULE_DELAY"),
		Meaning: "longest wait of a span for others. Unset: `OTEL_BSP_SCHEDULE_DELAY`"},
	{Path: "tracing_config.batch_spans", Variable: "SERVE_TRACING_BATCH_SPANS", Default: "2048", form: integer, over: either("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"),
		Meaning: "most spans in a batch, at most 65536. Unset: `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`"},
	{Path: "tracing_config.batch_bytes", Variable: "SERVE_TRACING_BATCH_BYTES", Default: "768KiB", atMost: "a quarter of queue_bytes", form: size,
		Meaning: "encoded size at which a batch is complete, at most 3MiB"},
	{Path: "tracing_config.export_timeout", Variable: "SERVE_TRACING_EXPORT_TIMEOUT", Default: "10s", form: duration, over: either("OTEL_BSP_EXPORT_TIMEOUT"),
		Meaning: "deadline of a call to a plugin. Unset: `OTEL_BSP_EXPORT_TIMEOUT`"},
	{Path: "tracing_config.max_age", Variable: "SERVE_TRACING_MAX_AGE", Default: "60s", form: duration,
		Meaning: "longest wait and retry of a batch. With a spool, the default is 24h"},
	{Path: "tracing_config.spool_dir", Variable: "SERVE_TRACING_SPOOL_DIR", form: text,
		Meaning: "folder of the [spool](../how-to/keep-spans-through-crashes.md). Unset: memory only"},
	{Path: "tracing_config.spool_bytes", Variable: "SERVE_TRACING_SPOOL_BYTES", Default: "1GiB", form: size,
		Meaning: "bound on the files of the spool, for each process, 8MiB or more"},
	{Path: "tracing_config.start_timeout", Variable: "SERVE_TRACING_START_TIMEOUT", Default: "10s", form: duration,
		Meaning: "time from a plugin's launch until it is configured"},
	{Path: "tracing_config.stop_timeout", Variable: "SERVE_TRACING_STOP_TIMEOUT", Default: "5s", form: duration,
		Meaning: "time to stop: 60% to send waiting spans, 30% for plugins to end"},
	{Path: "tracing_config.start_jitter", Variable: "SERVE_TRACING_START_JITTER", form: duration,
		Meaning: "bound of the random delay of each plugin's first start"},
	{Path: "tracing_config.plugin_watch", Variable: "SERVE_TRACING_PLUGIN_WATCH", form: duration,
		Meaning: "interval of checks for changed files of plugins. Unset: only at SIGHUP"},
	{Path: "tracing_config.plugin_writable", Variable: "SERVE_TRACING_PLUGIN_WRITABLE", Default: "refuse", form: text,
		Meaning: "`allow`: run executables that other users may write to; `refuse`: only with a pin"},
	{Path: "tracing_config.lockdown", Variable: "SERVE_TRACING_LOCKDOWN", Default: "false", form: boolean,
		Meaning: "[lock-down](../how-to/secure-plugins.md#lock-down)"},
	{Path: "tracing_config.crash_dir", Variable: "SERVE_TRACING_CRASH_DIR", form: text,
		Meaning: "folder for [crash reports and quarantined batches](#files-in-the-crash-folder). Unset: none are kept"},
	{Path: pathDocument, Variable: "SERVE_TRACING_PLUGIN_CONFIG", join: "=", form: document,
		Meaning: "[configuration of the plugin](#configurations-of-plugins); in the variable `NAME=FILE`"},
	{Path: pathPlugins + "." + anyName + ".env", Variable: "SERVE_TRACING_PLUGIN_ENV", join: ":", form: list(","),
		Meaning: "[granted variables](../how-to/secure-plugins.md#variables-of-a-plugin); in the variable `NAME:VARIABLE`"},
	{Path: pathPlugins + "." + anyName + ".processors", Variable: "SERVE_TRACING_EXPORTER_PROCESSORS", join: ":", form: list(","),
		Meaning: "[processors](#processors) of this exporter alone; in the variable `EXPORTER:PROCESSOR`"},
	{Path: pathPlugins + "." + anyName + ".fail", Variable: "SERVE_TRACING_PROCESSOR_FAIL", join: "=", form: text,
		Meaning: "of a [processor](#processors): `closed` (the default) or `open`; in the variable `MODE` or `NAME=MODE`"},
	{Path: pathPlugins + "." + anyName + ".limits.memory", Variable: "SERVE_TRACING_PLUGIN_GOMEMLIMIT", join: "=", form: size,
		Meaning: "`GOMEMLIMIT` of a Go plugin; in the variable `SIZE` or `NAME=SIZE`"},
	{Path: pathPlugins + "." + anyName + ".limits.max_procs", Variable: "SERVE_TRACING_PLUGIN_GOMAXPROCS", join: "=", form: integer,
		Meaning: "`GOMAXPROCS` of a Go plugin; in the variable `NUMBER` or `NAME=NUMBER`. Unset: see [memory](#memory)"},

	{Path: "http_options.host", Variable: "SERVE_HTTP_HOST", Default: "127.0.0.1", form: text,
		Meaning: "address to listen on"},
	{Path: "http_options.port", Variable: "SERVE_HTTP_PORT", Default: "8000", form: integer,
		Meaning: "port; 0 takes any free port"},
	{Path: "http_options.request_timeout_s", Variable: "SERVE_REQUEST_TIMEOUT", Default: "0", form: secondsOrNone,
		Meaning: "time from a request's arrival to its last byte; 0 is no limit"},
	{Path: "http_options.backpressure_status_code", Variable: "SERVE_BACKPRESSURE_STATUS", Default: "503", form: integer,
		Meaning: "status for a full queue, 503 or 429, unless a deployment sets `WithBackpressure`"},
	{Path: "http_options.backpressure_retry_after_s", Variable: "SERVE_BACKPRESSURE_RETRY_AFTER", Default: "0", form: secondsOrNone,
		Meaning: "`Retry-After` of that answer, rounded up; 0 sends none"},
	{Path: "http_options.keep_alive_timeout_s", Variable: "SERVE_HTTP_KEEP_ALIVE_TIMEOUT", Default: "90s", form: seconds,
		Meaning: "life of a connection without a request"},
	{Path: "http_options.graceful_shutdown_timeout_s", Variable: "SERVE_SHUTDOWN_TIMEOUT", Default: "20s", form: seconds,
		Meaning: "time for requests in flight when the service stops"},
	{Path: "http_options.min_draining_period_s", Variable: "SERVE_MIN_DRAINING_PERIOD", Default: "0", form: secondsOrNone,
		Meaning: "how long new requests are served after health turned 503; in a [Kubernetes](../how-to/kubernetes.md) pod `3s`"},
	{Path: "http_options.read_header_timeout_s", Variable: "SERVE_HTTP_READ_HEADER_TIMEOUT", Default: "10s", form: seconds,
		Meaning: "time for a client to send the headers"},
	{Path: "http_options.stall_timeout_s", Variable: "SERVE_HTTP_STALL_TIMEOUT", Default: "60s", form: secondsOrNone,
		Meaning: "how long a client may delay a read of its body or a write; 0 is no limit"},
	{Path: "http_options.max_header_bytes", Variable: "SERVE_HTTP_MAX_HEADER_BYTES", Default: "65536", form: integer,
		Meaning: "bytes of request line and headers, 4096 to 16777216; beyond, 431"},

	{Path: "grpc_options.host", Variable: "SERVE_GRPC_HOST", Default: "127.0.0.1", form: text,
		Meaning: "address for gRPC, if an application has gRPC services"},
	{Path: "grpc_options.port", Variable: "SERVE_GRPC_PORT", Default: "9000", form: integer,
		Meaning: "port for gRPC; 0 takes any free port"},
	{Path: "grpc_options.request_timeout_s", Variable: "SERVE_GRPC_REQUEST_TIMEOUT", Default: "0", form: secondsOrNone,
		Meaning: "time from a call's arrival to its status; 0 is no limit"},
	{Path: "grpc_options.max_message_bytes", Variable: "SERVE_GRPC_MAX_MESSAGE_BYTES", Default: "2147483647", form: integer,
		Meaning: "bytes of an uncompressed message, both ways, 1024 or more; beyond, `RESOURCE_EXHAUSTED`"},
	{Path: "grpc_options.max_streams", Variable: "SERVE_GRPC_MAX_STREAMS", Default: "1000", form: integer,
		Meaning: "calls at a time on one connection"},
	{Path: "grpc_options.max_header_bytes", Variable: "SERVE_GRPC_MAX_HEADER_BYTES", Default: "65536", form: integer,
		Meaning: "bytes of a call's metadata, 1024 to 16777216; beyond, the call fails"},
	{Path: "grpc_options.stall_timeout_s", Variable: "SERVE_GRPC_STALL_TIMEOUT", Default: "60s", form: secondsOrNone,
		Meaning: "how long a client may delay its first message, or a write; 0 is no limit"},
	{Path: "grpc_options.connection_timeout_s", Variable: "SERVE_GRPC_CONNECTION_TIMEOUT", Default: "10s", form: seconds,
		Meaning: "time for a new connection to speak HTTP/2"},
	{Path: "grpc_options.keepalive_time_s", Variable: "SERVE_GRPC_KEEPALIVE_TIME", Default: "60s", form: seconds,
		Meaning: "silence before the server pings a client, which has 20s to answer"},
	{Path: "grpc_options.keepalive_min_time_s", Variable: "SERVE_GRPC_KEEPALIVE_MIN_TIME", Default: "10s", form: seconds,
		Meaning: "least time between pings of a client; more close the connection"},

	{Path: "call_options.remote", Variable: "SERVE_REMOTE", form: targets,
		Meaning: "[deployments of other processes](../how-to/remote-deployments.md): `DEPLOYMENT=TARGET`"},
	{Path: "call_options.deployments", Variable: "SERVE_DEPLOYMENTS", form: list(","),
		Meaning: "deployments that this process runs. Unset: all that are not remote"},
	{Path: "call_options.addr", Variable: "SERVE_CALL_ADDR", form: text,
		Meaning: "`host:port` at which other processes call this one. Unset: none calls"},
	{Path: "call_options.max_message_bytes", Variable: "SERVE_CALL_MAX_MESSAGE_BYTES", Default: "67108864", form: integer,
		Meaning: "bytes of an argument, a result or an item of a stream, 1024 or more"},
	{Path: "call_options.max_streams", Variable: "SERVE_CALL_MAX_STREAMS", Default: "10000", form: integer,
		Meaning: "calls at a time on one connection; further calls wait in their processes"},
	{Path: "call_options.tls_cert", Variable: "SERVE_CALL_TLS_CERT", form: text,
		Meaning: "certificate for mutual TLS, a PEM file, read again if it changes. Unset: no TLS"},
	{Path: "call_options.tls_key", Variable: "SERVE_CALL_TLS_KEY", form: text,
		Meaning: "its key, a PEM file"},
	{Path: "call_options.tls_ca", Variable: "SERVE_CALL_TLS_CA", form: text,
		Meaning: "authorities of the other processes, a PEM file"},
	{Path: "call_options.tls_ids", Variable: "SERVE_CALL_TLS_IDS", form: list(","),
		Meaning: "SPIFFE ids of the other processes, with `/*` for all below. Unset: any"},

	{Path: "admin.host", Variable: "SERVE_ADMIN_HOST", Default: "127.0.0.1", form: text,
		Meaning: "address, and allowed name in the header `Host`"},
	{Path: "admin.port", Variable: "SERVE_ADMIN_PORT", form: integer,
		Meaning: "port, usually 8001; 0 takes any free port. Unset: no listener"},
	{Path: "admin.pprof", Variable: "SERVE_ADMIN_PPROF", Default: "false", form: boolean,
		Meaning: "profiles of the Go runtime at `/debug/pprof/`"},
	{Path: "admin.capture", Variable: "SERVE_ADMIN_CAPTURE", Default: "false", form: boolean,
		Meaning: "`servetrace capture`, for whoever can reach the listener"},
	{Path: "admin.traces", Variable: "SERVE_ADMIN_TRACES", Default: "true", form: boolean,
		Meaning: "the last traces on the status page; at most 2 MiB"},

	{Path: "relay.socket", Variable: "SERVE_RELAY_SOCKET", form: text,
		Meaning: "absolute path of a Unix socket for OTLP/gRPC"},
	{Path: "relay.grpc", Variable: "SERVE_RELAY_GRPC", form: text,
		Meaning: "`host:port` for OTLP/gRPC, or a port of 127.0.0.1. Without any address: `127.0.0.1:4317`"},
	{Path: "relay.http", Variable: "SERVE_RELAY_HTTP", form: text,
		Meaning: "the same for OTLP/HTTP, or `unix:///path`. Without any address: `127.0.0.1:4318`"},
	{Path: "relay.wait_for_result", Variable: "SERVE_RELAY_WAIT_FOR_RESULT", Default: "false", form: boolean,
		Meaning: "`true`: [answer after the delivery](../how-to/send-traces-with-otlp.md#wait-for-the-delivery)"},
	{Path: "relay.linger", Variable: "SERVE_RELAY_LINGER", form: duration,
		Meaning: "end after this time without a connection. Unset: never"},
	{Path: "relay.max_request_bytes", Variable: "SERVE_RELAY_MAX_REQUEST_BYTES", Default: "16MiB", form: size,
		Meaning: "largest request, also after decompression; 1KiB to 64MiB"},
	{Path: "relay.receive_bytes", Variable: "SERVE_RELAY_RECEIVE_BYTES", Default: "64MiB", form: size,
		Meaning: "bytes of all unfinished requests; beyond, the largest connection is closed"},
	{Path: "relay.max_connections", Variable: "SERVE_RELAY_MAX_CONNECTIONS", Default: "1024", form: integer,
		Meaning: "open connections; beyond, the peer with most loses one"},
	{Path: "relay.max_streams", Variable: "SERVE_RELAY_MAX_STREAMS", Default: "100", form: integer,
		Meaning: "gRPC calls at a time on one connection"},
	{Path: "relay.read_timeout", Variable: "SERVE_RELAY_READ_TIMEOUT", Default: "30s", form: duration,
		Meaning: "time for a request to arrive, and for a new connection to begin one"},
	{Path: "relay.idle_timeout", Variable: "SERVE_RELAY_IDLE_TIMEOUT", Default: "5m", form: duration,
		Meaning: "life of a connection without a request"},
	{Path: "relay.tls_cert", Variable: "SERVE_RELAY_TLS_CERT", form: text,
		Meaning: "certificate for TCP, a PEM file, read again if it changes. Unset: no TLS"},
	{Path: "relay.tls_key", Variable: "SERVE_RELAY_TLS_KEY", form: text,
		Meaning: "its key, a PEM file"},
	{Path: "relay.tls_client_ca", Variable: "SERVE_RELAY_TLS_CLIENT_CA", form: text,
		Meaning: "authorities of senders, a PEM file: senders need a certificate"},
	{Path: "relay.token", Variable: "SERVE_RELAY_TOKEN", form: secret, secret: true,
		Meaning: "bearer token that senders over TCP need, or `${env:NAME}`"},
	{Path: "relay.token_file", Variable: "SERVE_RELAY_TOKEN_FILE", form: text,
		Meaning: "file with the token, read again if it changes"},

	{Path: "logging_config.log_level", Variable: "OTEL_LOG_LEVEL", Default: "info", form: level,
		Meaning: "`debug`, `info`, `warn`, `error` or `none`"},
	{Path: "logging_config.encoding", Variable: "SERVE_LOG_FORMAT", Default: "text", form: encoding,
		Meaning: "`text` (`key=value`) or `json` (one object per line)"},
	{Path: "logging_config.enable_access_log", Variable: "SERVE_ACCESS_LOG", Default: "true", form: boolean,
		Meaning: "`false`: only lines at levels `WARN` and `ERROR`"},

	{Path: pathApp + ".name", form: text,
		Meaning: "application of the program. Unset: the only one, or `default`"},
	{Path: pathApp + ".route_prefix", form: text,
		Meaning: "path prefix of the application, read at the start only"},
	{Path: pathDeployment + ".name", form: text,
		Meaning: "deployment of the application"},
	{Path: pathDeployment + ".num_replicas", form: count(1), Default: "1",
		Meaning: "number of replicas"},
	{Path: pathDeployment + ".max_ongoing_requests", form: count(1), Default: "5",
		Meaning: "requests that one replica runs at a time"},
	{Path: pathDeployment + ".max_queued_requests", form: count(-1), Default: "-1",
		Meaning: "requests that may wait for a replica; -1 is no limit"},
	{Path: pathUserConfig, form: document,
		Meaning: "configuration of the deployment's code, in place of the program's"},
	{Path: pathDeployment + ".graceful_shutdown_wait_loop_s", form: seconds, Default: "2s",
		Meaning: "time until the log reports a stopping replica"},
	{Path: pathDeployment + ".graceful_shutdown_timeout_s", form: seconds, Default: "20s",
		Meaning: "time of a stopping replica for its requests"},
	{Path: pathDeployment + ".health_check_period_s", form: seconds, Default: "10s",
		Meaning: "time from a health check to the next"},
	{Path: pathDeployment + ".health_check_timeout_s", form: seconds, Default: "30s",
		Meaning: "time for a health check"},
}

// Keys returns the table. The caller must not change it.
func Keys() []Key { return keys }

// either returns a function for Key.over that returns variable if the environment sets it.
func either(variable string) func(func(string) string) string {
	return func(getenv func(string) string) string {
		if strings.TrimSpace(getenv(variable)) == "" {
			return ""
		}
		return variable
	}
}

// serviceName is the function Key.over for the name of the service. OpenTelemetry also reads this
// name from the variable with the attributes of the resource.
func serviceName(getenv func(string) string) string {
	const attributes = "OTEL_RESOURCE_ATTRIBUTES"
	if !strings.Contains(getenv(attributes), "service.name=") {
		return ""
	}
	return attributes
}
