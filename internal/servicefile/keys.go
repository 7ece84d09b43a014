package servicefile

import (
	"slices"
	"strings"
)

// anyName stands in a path for the name of a plugin.
const anyName = "NAME"

// Paths that the reader treats by themselves.
const (
	pathEnabled  = "tracing_config.enabled"
	pathExporter = "tracing_config.exporter_plugin"
	pathPlugins  = "tracing_config.plugins"
	pathDocument = pathPlugins + "." + anyName + ".config"
)

// EnvPlugins is the variable of the list of plugins, the one that the file's
// switch is about.
const EnvPlugins = "SERVE_TRACING_EXPORTER_PLUGIN"

// Key is one key of the service file.
type Key struct {
	// Path leads to it, "http_options.port". NAME in it is a plugin's name.
	Path string
	// Variable is the environment variable that goes over the key, and whose
	// value its value is; a document's has the path of another one. Empty for what
	// no variable can say.
	Variable string
	// Default is what holds where neither says anything, as the variable would
	// have it; empty for nothing.
	Default string
	// Meaning is a sentence for the documents, without its full stop.
	Meaning string

	form form
	// atMost bounds the default by another key.
	atMost string
	// join is what stands between a plugin's name and its value in the variable,
	// which is then a list with an item for each plugin.
	join string
	// over gives a variable of OpenTelemetry's that the environment has and that
	// says the same as this key; empty for none. Nil: there is no such.
	over func(getenv func(string) string) string
}

// Form says what may stand behind the key.
func (k Key) Form() string { return k.form.says }

// keys is the table, in the order of the documents.
var keys = []Key{
	{Path: "name", Variable: "OTEL_SERVICE_NAME", form: text, over: serviceName,
		Meaning: "the service's name: `service.name` of the spans' resource"},

	{Path: pathEnabled, form: boolean,
		Meaning: "`false`: no plugin of this file starts. `true` without `exporter_plugin`: the console plugin writes span files, see below. Not there: `exporter_plugin` decides"},
	{Path: pathExporter, Variable: EnvPlugins, form: list(","),
		Meaning: "which plugins run: the list as the variable has it, or a YAML list of its entries"},
	{Path: "tracing_config.sampling_ratio", Variable: "SERVE_TRACING_SAMPLING_RATIO", Default: "1", form: number, over: either("OTEL_TRACES_SAMPLER"),
		Meaning: "share of traces taken, 0 to 1"},
	{Path: "tracing_config.trust_inbound", Variable: "SERVE_TRACING_TRUST_INBOUND", Default: "true", form: boolean,
		Meaning: "whether the sampled flag of an inbound `traceparent` is believed"},
	{Path: "tracing_config.semconv", Variable: "SERVE_TRACING_SEMCONV", Default: "ray", form: text,
		Meaning: "names of attributes: ray, stable or dup"},
	{Path: "tracing_config.plugin_dir", Variable: "SERVE_TRACING_PLUGIN_DIR", form: list(":"),
		Meaning: "folders in which bare names are looked up"},
	{Path: "tracing_config.queue_bytes", Variable: "SERVE_TRACING_QUEUE_BYTES", Default: "32MiB", form: size,
		Meaning: "bound on the memory of all spans that wait"},
	{Path: "tracing_config.max_span_bytes", Variable: "SERVE_TRACING_MAX_SPAN_BYTES", Default: "1MiB", atMost: "a quarter of queue_bytes", form: size,
		Meaning: "a larger span is refused"},
	{Path: "tracing_config.batch_age", Variable: "SERVE_TRACING_BATCH_AGE", Default: "200ms", form: duration, over: either("OTEL_BSP_SCHEDULE_DELAY"),
		Meaning: "how long a span waits for others"},
	{Path: "tracing_config.batch_spans", Variable: "SERVE_TRACING_BATCH_SPANS", Default: "2048", form: integer, over: either("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"),
		Meaning: "most spans in a batch"},
	{Path: "tracing_config.batch_bytes", Variable: "SERVE_TRACING_BATCH_BYTES", Default: "768KiB", atMost: "a quarter of queue_bytes", form: size,
		Meaning: "encoded size from which a batch is sealed"},
	{Path: "tracing_config.export_timeout", Variable: "SERVE_TRACING_EXPORT_TIMEOUT", Default: "10s", form: duration, over: either("OTEL_BSP_EXPORT_TIMEOUT"),
		Meaning: "deadline of one call to a plugin"},
	{Path: "tracing_config.max_age", Variable: "SERVE_TRACING_MAX_AGE", Default: "60s", form: duration,
		Meaning: "how long a batch waits and is tried again"},
	{Path: "tracing_config.start_timeout", Variable: "SERVE_TRACING_START_TIMEOUT", Default: "10s", form: duration,
		Meaning: "from a plugin's launch until it is configured"},
	{Path: "tracing_config.stop_timeout", Variable: "SERVE_TRACING_STOP_TIMEOUT", Default: "5s", form: duration,
		Meaning: "from the tracer's shutdown until the last plugin is gone"},
	{Path: "tracing_config.start_jitter", Variable: "SERVE_TRACING_START_JITTER", form: duration,
		Meaning: "each plugin's first start waits for a random part of this"},
	{Path: "tracing_config.plugin_watch", Variable: "SERVE_TRACING_PLUGIN_WATCH", form: duration,
		Meaning: "how often a plugin's executable and document are looked at"},
	{Path: "tracing_config.plugin_writable", Variable: "SERVE_TRACING_PLUGIN_WRITABLE", Default: "refuse", form: text,
		Meaning: "`allow` runs an executable also where others than its owner may write it"},
	{Path: "tracing_config.lockdown", Variable: "SERVE_TRACING_LOCKDOWN", Default: "false", form: boolean,
		Meaning: "`true`: only pinned executables run, and get only the variables of `env`"},
	{Path: "tracing_config.crash_dir", Variable: "SERVE_TRACING_CRASH_DIR", form: text,
		Meaning: "folder for reports of crashes and for quarantined batches"},
	{Path: pathDocument, Variable: "SERVE_TRACING_PLUGIN_CONFIG", join: "=", form: document,
		Meaning: "the plugin's configuration document, which only the plugin understands. It is read anew each time the plugin is configured"},
	{Path: pathPlugins + "." + anyName + ".env", Variable: "SERVE_TRACING_PLUGIN_ENV", join: ":", form: list(","),
		Meaning: "further variables that the plugin gets of this process's environment: names, or prefixes as `AWS_*`"},
	{Path: pathPlugins + "." + anyName + ".limits.memory", Variable: "SERVE_TRACING_PLUGIN_GOMEMLIMIT", join: "=", form: size,
		Meaning: "soft limit of memory of a plugin written in Go"},
	{Path: pathPlugins + "." + anyName + ".limits.max_procs", Variable: "SERVE_TRACING_PLUGIN_GOMAXPROCS", join: "=", form: integer,
		Meaning: "how many processors such a plugin uses at a time"},

	{Path: "http_options.host", Variable: "SERVE_HTTP_HOST", Default: "127.0.0.1", form: text,
		Meaning: "address to listen on"},
	{Path: "http_options.port", Variable: "SERVE_HTTP_PORT", Default: "8000", form: integer,
		Meaning: "port; 0 takes any free one"},
	{Path: "http_options.request_timeout_s", Variable: "SERVE_REQUEST_TIMEOUT", Default: "0", form: secondsOrNone,
		Meaning: "from a request's arrival to the last byte of its response; 0 is no limit"},
	{Path: "http_options.backpressure_status_code", Variable: "SERVE_BACKPRESSURE_STATUS", Default: "503", form: integer,
		Meaning: "what a request gets for which there is no place in a queue: 503 or 429"},
	{Path: "http_options.backpressure_retry_after_s", Variable: "SERVE_BACKPRESSURE_RETRY_AFTER", Default: "0", form: secondsOrNone,
		Meaning: "how long such a client is asked to wait (Retry-After); 0: it is not"},
	{Path: "http_options.keep_alive_timeout_s", Variable: "SERVE_HTTP_KEEP_ALIVE_TIMEOUT", Default: "90s", form: seconds,
		Meaning: "how long a connection stays open without a request"},
	{Path: "http_options.graceful_shutdown_timeout_s", Variable: "SERVE_SHUTDOWN_TIMEOUT", Default: "20s", form: seconds,
		Meaning: "how long requests in flight may take to finish once the service stops"},
	{Path: "http_options.min_draining_period_s", Variable: "SERVE_MIN_DRAINING_PERIOD", Default: "0", form: secondsOrNone,
		Meaning: "how long new requests are still served after health has turned 503, for load balancers to see it"},
	{Path: "http_options.read_header_timeout_s", Variable: "SERVE_HTTP_READ_HEADER_TIMEOUT", Default: "10s", form: seconds,
		Meaning: "how long a client may take to send a request's headers"},
	{Path: "http_options.stall_timeout_s", Variable: "SERVE_HTTP_STALL_TIMEOUT", Default: "60s", form: secondsOrNone,
		Meaning: "how long a client may hold up its request; 0 is no limit"},
	{Path: "http_options.max_header_bytes", Variable: "SERVE_HTTP_MAX_HEADER_BYTES", Default: "65536", form: integer,
		Meaning: "most bytes of a request's line and headers"},

	{Path: "grpc_options.host", Variable: "SERVE_GRPC_HOST", Default: "127.0.0.1", form: text,
		Meaning: "address to listen on for gRPC, where an application has gRPC services"},
	{Path: "grpc_options.port", Variable: "SERVE_GRPC_PORT", Default: "9000", form: integer,
		Meaning: "port of it; 0 takes any free one"},
	{Path: "grpc_options.request_timeout_s", Variable: "SERVE_GRPC_REQUEST_TIMEOUT", Default: "0", form: secondsOrNone,
		Meaning: "from a call's arrival to its status; 0 is no limit"},
	{Path: "grpc_options.max_message_bytes", Variable: "SERVE_GRPC_MAX_MESSAGE_BYTES", Default: "2147483647", form: integer,
		Meaning: "most bytes of one message, both ways"},
	{Path: "grpc_options.max_streams", Variable: "SERVE_GRPC_MAX_STREAMS", Default: "1000", form: integer,
		Meaning: "most calls at a time on one connection"},
	{Path: "grpc_options.max_header_bytes", Variable: "SERVE_GRPC_MAX_HEADER_BYTES", Default: "65536", form: integer,
		Meaning: "most bytes of a call's metadata"},
	{Path: "grpc_options.stall_timeout_s", Variable: "SERVE_GRPC_STALL_TIMEOUT", Default: "60s", form: secondsOrNone,
		Meaning: "how long a client may hold up its call; 0 is no limit"},
	{Path: "grpc_options.connection_timeout_s", Variable: "SERVE_GRPC_CONNECTION_TIMEOUT", Default: "10s", form: seconds,
		Meaning: "how long a new connection may take until it speaks HTTP/2"},
	{Path: "grpc_options.keepalive_time_s", Variable: "SERVE_GRPC_KEEPALIVE_TIME", Default: "60s", form: seconds,
		Meaning: "after how much silence the server asks whether a client is still there"},
	{Path: "grpc_options.keepalive_min_time_s", Variable: "SERVE_GRPC_KEEPALIVE_MIN_TIME", Default: "10s", form: seconds,
		Meaning: "how often a client may ask that"},

	{Path: "admin.host", Variable: "SERVE_ADMIN_HOST", Default: "127.0.0.1", form: text,
		Meaning: "address of the status page and the metrics"},
	{Path: "admin.port", Variable: "SERVE_ADMIN_PORT", form: integer,
		Meaning: "port of it; 0 takes any free one. Not there: nothing listens"},
	{Path: "admin.pprof", Variable: "SERVE_ADMIN_PPROF", Default: "false", form: boolean,
		Meaning: "`true`: Go's profiles stand there too"},

	{Path: "logging_config.log_level", Variable: "OTEL_LOG_LEVEL", Default: "info", form: level,
		Meaning: "least level that the service logs"},
	{Path: "logging_config.encoding", Variable: "SERVE_LOG_FORMAT", Default: "text", form: encoding,
		Meaning: "form of the log's lines"},
	{Path: "logging_config.enable_access_log", Variable: "SERVE_ACCESS_LOG", Default: "true", form: boolean,
		Meaning: "`false`: of the requests, only those that are a warning or an error have a line in the log"},
}

// Keys gives the table, in the order of the documents; "[]" in a path is each item
// of a list.
func Keys() []Key { return slices.Concat(keys, appKeys) }

// either is Key.over of a key that one other variable says the same as.
func either(variable string) func(func(string) string) string {
	return func(getenv func(string) string) string {
		if strings.TrimSpace(getenv(variable)) == "" {
			return ""
		}
		return variable
	}
}

// serviceName is Key.over of the service's name, which may also stand among the
// attributes of the resource.
func serviceName(getenv func(string) string) string {
	const attributes = "OTEL_RESOURCE_ATTRIBUTES"
	if !strings.Contains(getenv(attributes), "service.name=") {
		return ""
	}
	return attributes
}

// foreign are keys of Ray's and Anyscale's files that say nothing to one
// process, with the reason. They are passed over, with a warning: what a file
// asks of a cluster must not keep the same file from serving here. Those that
// would change what clients see or where spans go are faults: fatal.
var foreign = map[string]struct {
	why   string
	fatal bool
}{
	pathApp + ".import_path":                     {why: appsAreCode},
	pathApp + ".runtime_env":                     {why: appsAreCode},
	pathApp + ".args":                            {why: "the applications of a Go service are compiled in; what is to be set goes into user_config"},
	pathApp + ".host":                            {why: onCluster},
	pathApp + ".port":                            {why: onCluster},
	pathApp + ".external_scaler_enabled":         {why: onCluster},
	pathApp + ".logging_config":                  {why: onLog},
	pathApp + ".autoscaling_policy":              {why: onCluster},
	pathDeployment + ".ray_actor_options":        {why: onCluster},
	pathDeployment + ".placement_group_bundles":  {why: onCluster},
	pathDeployment + ".placement_group_strategy": {why: onCluster},
	pathDeployment + ".max_replicas_per_node":    {why: onCluster},
	pathDeployment + ".autoscaling_config":       {why: "there is no autoscaler here; num_replicas is how many there are"},
	pathDeployment + ".logging_config":           {why: onLog},
	pathDeployment + ".request_router_config":    {why: "there is one router here"},
	"import_path":                                {why: appsAreCode},
	"runtime_env":                                {why: appsAreCode},
	"working_dir":                                {why: appsAreCode},
	"requirements":                               {why: appsAreCode},
	"py_modules":                                 {why: appsAreCode},
	"py_executable":                              {why: appsAreCode},
	"excludes":                                   {why: appsAreCode},
	"image_uri":                                  {why: onCluster},
	"containerfile":                              {why: onCluster},
	"ray_version":                                {why: onCluster},
	"registry_login_secret":                      {why: onCluster},
	"compute_config":                             {why: onCluster},
	"cloud":                                      {why: onCluster},
	"project":                                    {why: onCluster},
	"tags":                                       {why: onCluster},
	"query_auth_token_enabled":                   {why: onCluster},
	"ray_gcs_external_storage_config":            {why: onCluster},
	"proxy_location":                             {why: onCluster},
	"target_capacity":                            {why: onCluster},
	"external_scaler_enabled":                    {why: onCluster},
	"env_vars": {fatal: true, why: "the variables of this process are set where it is started, " +
		"and plugins get theirs from there; set them there and take this out"},

	"tracing_config.exporter_import_path": {fatal: true, why: "this names Python code; name a plugin with exporter_plugin, or take this out to have span files"},

	"http_options.location":             {why: onCluster},
	"http_options.num_cpus":             {why: onCluster},
	"http_options.root_path":            {fatal: true, why: "there is no such thing here: give the applications their route prefixes, or have the proxy in front strip it"},
	"http_options.middlewares":          {fatal: true, why: "middleware is Python code; wrap the handlers of the application"},
	"http_options.ssl_keyfile":          {fatal: true, why: noTLS},
	"http_options.ssl_certfile":         {fatal: true, why: noTLS},
	"http_options.ssl_keyfile_password": {fatal: true, why: noTLS},
	"http_options.ssl_ca_certs":         {fatal: true, why: noTLS},

	"grpc_options.grpc_servicer_functions": {why: servicesAreCode},

	"logging_config.logs_dir":                      {why: onLog},
	"logging_config.additional_log_standard_attrs": {why: onLog},
}

const (
	appsAreCode     = "the applications of a Go service are compiled in"
	servicesAreCode = "the gRPC services of a Go service are compiled in"
	onCluster       = "it is about a cluster, and this is one process"
	noTLS           = "this service speaks plain HTTP; end TLS in the proxy before it"
	onLog           = "the log goes to standard error, and its fields are always the same"
)
