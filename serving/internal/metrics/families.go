package metrics

// family is one metric with all its series, as docs/operations.md lists it.
type family struct {
	name    string
	kind    string // counter, gauge or histogram
	help    string
	labels  []string
	buckets []float64
}

// families are all, in the order of the document.
var families []*family

func add(f *family) *family {
	families = append(families, f)
	return f
}

func counter(name, help string, labels ...string) *family {
	return add(&family{name: name, kind: "counter", help: help, labels: labels})
}

func gauge(name, help string, labels ...string) *family {
	return add(&family{name: name, kind: "gauge", help: help, labels: labels})
}

func histogram(name, help string, buckets []float64, labels ...string) *family {
	return add(&family{name: name, kind: "histogram", help: help, labels: labels, buckets: buckets})
}

// The labels, Ray's. What only Ray has, such as ids of nodes, actors and handles,
// is left out: the target that is scraped is one process.
const (
	labelApp        = "application"
	labelDeployment = "deployment"
	labelReplica    = "replica"
	labelRoute      = "route"
	labelMethod     = "method"
	labelStatus     = "status_code"
	labelError      = "error_code"
	labelFunction   = "function_name"
	labelModel      = "model_id"
)

// Bounds of buckets, Ray's defaults. Latencies are in milliseconds.
var (
	latencyBuckets = []float64{
		1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 1000, 2000, 5000, 10_000, 60_000, 120_000, 300_000, 600_000,
	}
	lifeBuckets = []float64{
		5, 20, 50, 100, 250, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 240_000,
	}
	percentBuckets = []float64{5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100}
	sizeBuckets    = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

// The proxies, each of them an array by Protocol.
var (
	proxyRequests = [...]*family{
		HTTP: counter("serve_num_http_requests_total",
			"Requests that the HTTP proxy has answered or given up, web sockets included: as many as lines in the access log.",
			labelApp, labelRoute, labelMethod, labelStatus),
		GRPC: counter("serve_num_grpc_requests_total",
			"Calls that the gRPC proxy has answered or given up: as many as lines in the access log.",
			labelApp, labelRoute, labelMethod, labelStatus),
	}
	proxyErrors = [...]*family{
		HTTP: counter("serve_num_http_error_requests_total",
			"Those of them whose proxy span is an error, or would be: 4xx, 5xx, 499, and responses cut off, under the code that the client saw.",
			labelApp, labelRoute, labelMethod, labelError),
		GRPC: counter("serve_num_grpc_error_requests_total",
			"Those of them whose proxy span is an error, or would be.",
			labelApp, labelRoute, labelMethod, labelError),
	}
	deploymentErrors = [...]*family{
		HTTP: counter("serve_num_deployment_http_error_requests_total",
			"The same by the deployment that took the requests, or would have: those that matched no route are not in it.",
			labelApp, labelDeployment, labelRoute, labelMethod, labelError),
		GRPC: counter("serve_num_deployment_grpc_error_requests_total",
			"The same by the deployment that took the calls, or would have.",
			labelApp, labelDeployment, labelRoute, labelMethod, labelError),
	}
	proxyLatency = [...]*family{
		HTTP: histogram("serve_http_request_latency_ms",
			"How long requests took in the HTTP proxy, from their arrival to their end, in milliseconds.",
			latencyBuckets, labelApp, labelRoute, labelMethod, labelStatus),
		GRPC: histogram("serve_grpc_request_latency_ms",
			"How long calls took in the gRPC proxy, from their arrival to their end, in milliseconds.",
			latencyBuckets, labelApp, labelRoute, labelMethod, labelStatus),
	}
	proxyOngoing = [...]*family{
		HTTP: gauge("serve_num_ongoing_http_requests", "Requests that are in the HTTP proxy."),
		GRPC: gauge("serve_num_ongoing_grpc_requests", "Calls that are in the gRPC proxy."),
	}
)

// The routers.
var (
	routerRequests = counter("serve_num_router_requests_total",
		"Requests that a router has assigned, refused or given up: those of the proxies and calls by handle.",
		labelApp, labelDeployment, labelRoute)
	handleRequests = counter("serve_handle_request_counter_total",
		"Those of them that were calls by handle. The route is that of the request in which the call was made.",
		labelApp, labelDeployment, labelRoute)
	routerQueued = gauge("serve_deployment_queued_queries",
		"Requests that wait for a replica.",
		labelApp, labelDeployment)
	routerOngoing = gauge("serve_num_ongoing_requests_at_replicas",
		"Requests that replicas were given and have not finished.",
		labelApp, labelDeployment)
	routerWait = histogram("serve_request_router_fulfillment_time_ms",
		"How long requests that were assigned waited for a replica, in milliseconds.",
		latencyBuckets, labelApp, labelDeployment)
)

// The replicas.
var (
	replicaRequests = counter("serve_deployment_request_counter_total",
		"Calls that user code has ended without an error. What a handler says by its status is none.",
		labelApp, labelDeployment, labelReplica, labelRoute)
	replicaErrors = counter("serve_deployment_error_counter_total",
		"Calls that ended by an error or a panic of user code, or were cancelled.",
		labelApp, labelDeployment, labelReplica, labelRoute)
	replicaLatency = histogram("serve_deployment_processing_latency_ms",
		"How long calls took in user code, in milliseconds.",
		latencyBuckets, labelApp, labelDeployment, labelReplica, labelRoute)
	replicaProcessing = gauge("serve_replica_processing_queries",
		"Calls that user code is working on.",
		labelApp, labelDeployment, labelReplica)
	replicaStarts = counter("serve_deployment_replica_starts_total",
		"1 for each replica that came to take calls: one that is started anew has another id.",
		labelApp, labelDeployment, labelReplica)
	replicaHealthy = gauge("serve_deployment_replica_healthy",
		"1 for a replica that passed its last health check, or has none; 0 for one that did not.",
		labelApp, labelDeployment, labelReplica)
	replicaInitialized = histogram("serve_replica_initialization_latency_ms",
		"How long the constructor of a replica took, in milliseconds.",
		lifeBuckets, labelApp, labelDeployment, labelReplica)
	replicaReconfigured = histogram("serve_replica_reconfigure_latency_ms",
		"How long user code took to take a new configuration, in milliseconds.",
		latencyBuckets, labelApp, labelDeployment, labelReplica)
	replicaShutDown = histogram("serve_replica_shutdown_duration_ms",
		"How long a replica took to stop, its last calls included, in milliseconds.",
		lifeBuckets, labelApp, labelDeployment, labelReplica)
	replicaChecked = histogram("serve_health_check_latency_ms",
		"How long health checks of user code took, in milliseconds.",
		latencyBuckets, labelApp, labelDeployment, labelReplica)
	replicaUnhealthy = counter("serve_health_check_failures_total",
		"Health checks that failed or took too long.",
		labelApp, labelDeployment, labelReplica)
)

// Batching.
var (
	batches = counter("serve_batches_processed_total",
		"Batches that were run, whatever came of them.",
		labelApp, labelDeployment, labelReplica, labelFunction)
	batchSize = histogram("serve_actual_batch_size",
		"Size of the batches that were run: items, or what the size function says.",
		sizeBuckets, labelApp, labelDeployment, labelReplica, labelFunction)
	batchUtilization = histogram("serve_batch_utilization_percent",
		"Size of the batches that were run, as percentage of the largest size.",
		percentBuckets, labelApp, labelDeployment, labelReplica, labelFunction)
	batchWait = histogram("serve_batch_wait_time_ms",
		"How long the first item of a batch waited until the batch was run, in milliseconds.",
		latencyBuckets, labelApp, labelDeployment, labelReplica, labelFunction)
	batchRun = histogram("serve_batch_execution_time_ms",
		"How long batches ran, in milliseconds.",
		latencyBuckets, labelApp, labelDeployment, labelReplica, labelFunction)
	batchQueued = gauge("serve_batch_queue_length",
		"Items that wait for a batch.",
		labelApp, labelDeployment, labelReplica, labelFunction)
)

// Multiplexing.
var (
	modelGets = counter("serve_multiplexed_get_model_requests_counter_total",
		"Requests for a model, loaded or not: without the loads they are the hits.",
		labelApp, labelDeployment, labelReplica)
	modelLoads = counter("serve_multiplexed_models_load_counter_total",
		"Loads of a model, those that failed included.",
		labelApp, labelDeployment, labelReplica)
	modelUnloads = counter("serve_multiplexed_models_unload_counter_total",
		"Models that were unloaded.",
		labelApp, labelDeployment, labelReplica)
	modelLoadLatency = histogram("serve_multiplexed_model_load_latency_ms",
		"How long loads that did not fail took, in milliseconds.",
		latencyBuckets, labelApp, labelDeployment, labelReplica)
	modelUnloadLatency = histogram("serve_multiplexed_model_unload_latency_ms",
		"How long unloads took, in milliseconds.",
		latencyBuckets, labelApp, labelDeployment, labelReplica)
	modelsLoaded = gauge("serve_num_multiplexed_models",
		"Models that are loaded.",
		labelApp, labelDeployment, labelReplica)
	modelRegistered = gauge("serve_registered_multiplexed_model_id",
		"1 for each model that is loaded, the first hundred of a replica.",
		labelApp, labelDeployment, labelReplica, labelModel)
)
