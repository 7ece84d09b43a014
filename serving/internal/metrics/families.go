package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// families are the metrics of a Set.
type families struct {
	vectors       []prometheus.Collector // all, in the order of docs/reference/metrics.md
	replicaGauges []deleter              // all that have the label of a replica
	replicaCounts []deleter              // likewise

	// The proxies', by Protocol.
	proxyRequests, proxyErrors, deploymentErrors [2]*prometheus.CounterVec
	proxyLatency                                 [2]*latencies
	proxyOngoing                                 [2]*prometheus.GaugeVec

	routerRequests, handleRequests *prometheus.CounterVec
	routerQueued, routerOngoing    *prometheus.GaugeVec
	routerWait                     *latencies

	replicaRequests, replicaErrors, replicaStarts, replicaUnhealthy          *prometheus.CounterVec
	replicaProcessing, replicaHealthy                                        *prometheus.GaugeVec
	replicaLatency                                                           *latencies
	replicaInitialized, replicaReconfigured, replicaShutDown, replicaChecked *prometheus.HistogramVec

	batches                     *prometheus.CounterVec
	batchSize, batchUtilization *prometheus.HistogramVec
	batchWait, batchRun         *latencies
	batchQueued                 *prometheus.GaugeVec

	modelGets, modelLoads, modelUnloads *prometheus.CounterVec
	modelLoadLatency                    *latencies
	modelUnloadLatency                  *prometheus.HistogramVec
	modelsLoaded, modelRegistered       *prometheus.GaugeVec
}

// deleter is a vector of which series can be deleted.
type deleter interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

func newFamilies() *families {
	f := new(families)
	f.addProxies()
	f.addRouters()
	f.addReplicas()
	f.addBatching()
	f.addMultiplexing()
	return f
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

func (f *families) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.V2.NewCounterVec(prometheus.CounterVecOpts{
		CounterOpts: prometheus.CounterOpts{Name: name, Help: help}, VariableLabels: constrained(labels),
	})
	f.vectors = append(f.vectors, v)
	if slices.Contains(labels, labelReplica) {
		f.replicaCounts = append(f.replicaCounts, v)
	}
	return v
}

func (f *families) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.V2.NewGaugeVec(prometheus.GaugeVecOpts{
		GaugeOpts: prometheus.GaugeOpts{Name: name, Help: help}, VariableLabels: constrained(labels),
	})
	f.vectors = append(f.vectors, v)
	if slices.Contains(labels, labelReplica) {
		f.replicaGauges = append(f.replicaGauges, v)
	}
	return v
}

func (f *families) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.V2.NewHistogramVec(prometheus.HistogramVecOpts{
		HistogramOpts: prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, VariableLabels: constrained(labels),
	})
	f.vectors = append(f.vectors, v)
	if slices.Contains(labels, labelReplica) {
		f.replicaCounts = append(f.replicaCounts, v)
	}
	return v
}

// latency adds a histogram of latencies whose buckets have exemplars.
func (f *families) latency(name, help string, labels ...string) *latencies {
	return &latencies{f.histogram(name, help, latencyBuckets, labels...)}
}

func (f *families) addProxies() {
	f.proxyRequests = [...]*prometheus.CounterVec{
		HTTP: f.counter("serve_num_http_requests_total",
			"Requests that the HTTP proxy has answered or given up, web sockets included: as many as lines in the access log.",
			labelApp, labelRoute, labelMethod, labelStatus),
		GRPC: f.counter("serve_num_grpc_requests_total",
			"Calls that the gRPC proxy has answered or given up: as many as lines in the access log.",
			labelApp, labelRoute, labelMethod, labelStatus),
	}
	f.proxyErrors = [...]*prometheus.CounterVec{
		HTTP: f.counter("serve_num_http_error_requests_total",
			"Requests whose proxy span is an error, or would be: 4xx, 5xx, 499 and cut-off responses, under the code that the client saw.",
			labelApp, labelRoute, labelMethod, labelError),
		GRPC: f.counter("serve_num_grpc_error_requests_total",
			"Those of them whose proxy span is an error, or would be.",
			labelApp, labelRoute, labelMethod, labelError),
	}
	f.deploymentErrors = [...]*prometheus.CounterVec{
		HTTP: f.counter("serve_num_deployment_http_error_requests_total",
			"The same by the deployment that took the requests, or would have: those that matched no route are not in it.",
			labelApp, labelDeployment, labelRoute, labelMethod, labelError),
		GRPC: f.counter("serve_num_deployment_grpc_error_requests_total",
			"The same by the deployment that took the calls, or would have.",
			labelApp, labelDeployment, labelRoute, labelMethod, labelError),
	}
	f.proxyLatency = [...]*latencies{
		HTTP: f.latency("serve_http_request_latency_ms",
			"How long requests took in the HTTP proxy, from their arrival to their end, in milliseconds.",
			labelApp, labelRoute, labelMethod, labelStatus),
		GRPC: f.latency("serve_grpc_request_latency_ms",
			"How long calls took in the gRPC proxy, from their arrival to their end, in milliseconds.",
			labelApp, labelRoute, labelMethod, labelStatus),
	}
	f.proxyOngoing = [...]*prometheus.GaugeVec{
		HTTP: f.gauge("serve_num_ongoing_http_requests", "Requests that are in the HTTP proxy."),
		GRPC: f.gauge("serve_num_ongoing_grpc_requests", "Calls that are in the gRPC proxy."),
	}
}

func (f *families) addRouters() {
	f.routerRequests = f.counter("serve_num_router_requests_total",
		"Requests that a router has assigned, refused or given up: those of the proxies and calls by handle.",
		labelApp, labelDeployment, labelRoute)
	f.handleRequests = f.counter("serve_handle_request_counter_total",
		"Those of them that were calls by handle. The route is that of the request in which the call was made.",
		labelApp, labelDeployment, labelRoute)
	f.routerQueued = f.gauge("serve_deployment_queued_queries",
		"Requests that wait for a replica.",
		labelApp, labelDeployment)
	f.routerOngoing = f.gauge("serve_num_ongoing_requests_at_replicas",
		"Requests that replicas were given and have not finished.",
		labelApp, labelDeployment)
	f.routerWait = f.latency("serve_request_router_fulfillment_time_ms",
		"How long requests that were assigned waited for a replica, in milliseconds.",
		labelApp, labelDeployment)
}

func (f *families) addReplicas() {
	f.replicaRequests = f.counter("serve_deployment_request_counter_total",
		"Calls that user code has ended without an error. What a handler says by its status is none.",
		labelApp, labelDeployment, labelReplica, labelRoute)
	f.replicaErrors = f.counter("serve_deployment_error_counter_total",
		"Calls that ended by an error or a panic of user code, or were cancelled.",
		labelApp, labelDeployment, labelReplica, labelRoute)
	f.replicaLatency = f.latency("serve_deployment_processing_latency_ms",
		"How long calls took in user code, in milliseconds.",
		labelApp, labelDeployment, labelReplica, labelRoute)
	f.replicaProcessing = f.gauge("serve_replica_processing_queries",
		"Calls that user code is working on.",
		labelApp, labelDeployment, labelReplica)
	f.replicaStarts = f.counter("serve_deployment_replica_starts_total",
		"1 for each replica that came to take calls: one that is started anew has another id.",
		labelApp, labelDeployment, labelReplica)
	f.replicaHealthy = f.gauge("serve_deployment_replica_healthy",
		"1 for a replica that passed its last health check, or has none; 0 for one that did not.",
		labelApp, labelDeployment, labelReplica)
	f.replicaInitialized = f.histogram("serve_replica_initialization_latency_ms",
		"How long the constructor of a replica took, in milliseconds.",
		lifeBuckets, labelApp, labelDeployment, labelReplica)
	f.replicaReconfigured = f.histogram("serve_replica_reconfigure_latency_ms",
		"How long user code took to take a new configuration, in milliseconds.",
		latencyBuckets, labelApp, labelDeployment, labelReplica)
	f.replicaShutDown = f.histogram("serve_replica_shutdown_duration_ms",
		"How long a replica took to stop, its last calls included, in milliseconds.",
		lifeBuckets, labelApp, labelDeployment, labelReplica)
	f.replicaChecked = f.histogram("serve_health_check_latency_ms",
		"How long health checks of user code took, in milliseconds.",
		latencyBuckets, labelApp, labelDeployment, labelReplica)
	f.replicaUnhealthy = f.counter("serve_health_check_failures_total",
		"Health checks that failed or took too long.",
		labelApp, labelDeployment, labelReplica)
}

func (f *families) addBatching() {
	labels := []string{labelApp, labelDeployment, labelReplica, labelFunction}
	f.batches = f.counter("serve_batches_processed_total",
		"Batches that were run, whatever came of them.", labels...)
	f.batchSize = f.histogram("serve_actual_batch_size",
		"Size of the batches that were run: items, or what the size function says.", sizeBuckets, labels...)
	f.batchUtilization = f.histogram("serve_batch_utilization_percent",
		"Size of the batches that were run, as percentage of the largest size.", percentBuckets, labels...)
	f.batchWait = f.latency("serve_batch_wait_time_ms",
		"How long the first item of a batch waited until the batch was run, in milliseconds.", labels...)
	f.batchRun = f.latency("serve_batch_execution_time_ms",
		"How long batches ran, in milliseconds.", labels...)
	f.batchQueued = f.gauge("serve_batch_queue_length",
		"Items that wait for a batch.", labels...)
}

func (f *families) addMultiplexing() {
	labels := []string{labelApp, labelDeployment, labelReplica}
	f.modelGets = f.counter("serve_multiplexed_get_model_requests_counter_total",
		"Requests for a model, loaded or not: without the loads they are the hits.", labels...)
	f.modelLoads = f.counter("serve_multiplexed_models_load_counter_total",
		"Loads of a model, those that failed included.", labels...)
	f.modelUnloads = f.counter("serve_multiplexed_models_unload_counter_total",
		"Models that were unloaded.", labels...)
	f.modelLoadLatency = f.latency("serve_multiplexed_model_load_latency_ms",
		"How long loads that did not fail took, in milliseconds.", labels...)
	f.modelUnloadLatency = f.histogram("serve_multiplexed_model_unload_latency_ms",
		"How long unloads took, in milliseconds.", latencyBuckets, labels...)
	f.modelsLoaded = f.gauge("serve_num_multiplexed_models",
		"Models that are loaded.", labels...)
	f.modelRegistered = f.gauge("serve_registered_multiplexed_model_id",
		"1 for each model that is loaded, the first hundred of a replica.", append(labels, labelModel)...)
}
