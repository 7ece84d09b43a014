package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// families has the vector of each metric of the package. A vector has the series of a metric
// for all values of its labels.
type families struct {
	vectors vectors // the same vectors as lists

	// The metrics of the proxies. The index is the Protocol.
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

// vectors makes the vectors of the metrics, and keeps lists of them.
type vectors struct {
	all           []prometheus.Collector // all vectors, in the order of docs/reference/metrics.md
	replicaGauges []replicaVector        // the gauges with the label labelReplica
	replicaCounts []replicaVector        // the counters and histograms with the label labelReplica
}

// replicaVector is a vector with a series for each replica. When a replica has stopped, its
// series are deleted one by one, with all their label values. Prometheus could delete them by
// the replica's label alone, but it would have to read the series of all replicas.
type replicaVector struct {
	deleter
	// more is the last label, if the vector has another label after the labels of a replica.
	// Empty if it has none.
	more string
}

// deleter is a vector with series that can be deleted.
type deleter interface {
	DeleteLabelValues(values ...string) bool
}

// ofReplica appends a vector to list if its series belong to replicas.
func ofReplica(list []replicaVector, made deleter, labels []string) []replicaVector {
	if !slices.Contains(labels, labelReplica) {
		return list
	}
	v := replicaVector{deleter: made}
	if last := labels[len(labels)-1]; last != labelReplica {
		v.more = last
	}
	return append(list, v)
}

// newFamilies makes the vectors of all metrics.
func newFamilies() *families {
	f := new(families)
	v := &f.vectors
	v.addProxies(f)
	v.addRouters(f)
	v.addReplicas(f)
	v.addBatching(f)
	v.addMultiplexing(f)
	return f
}

// The labels of the metrics, which are Ray's. Ray's labels for nodes, actors and handles are
// missing, because one process serves the metrics here.
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

// The upper bounds of the buckets of histograms, which are Ray's defaults. The unit of
// latencyBuckets and lifeBuckets is milliseconds.
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

func (v *vectors) counter(name, help string, labels ...string) *prometheus.CounterVec {
	made := prometheus.V2.NewCounterVec(prometheus.CounterVecOpts{
		CounterOpts: prometheus.CounterOpts{Name: name, Help: help}, VariableLabels: constrained(labels),
	})
	v.all = append(v.all, made)
	v.replicaCounts = ofReplica(v.replicaCounts, made, labels)
	return made
}

func (v *vectors) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	made := prometheus.V2.NewGaugeVec(prometheus.GaugeVecOpts{
		GaugeOpts: prometheus.GaugeOpts{Name: name, Help: help}, VariableLabels: constrained(labels),
	})
	v.all = append(v.all, made)
	v.replicaGauges = ofReplica(v.replicaGauges, made, labels)
	return made
}

func (v *vectors) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	made := prometheus.V2.NewHistogramVec(prometheus.HistogramVecOpts{
		HistogramOpts: prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, VariableLabels: constrained(labels),
	})
	v.all = append(v.all, made)
	v.replicaCounts = ofReplica(v.replicaCounts, made, labels)
	return made
}

// latency adds a histogram of latencies with exemplars.
func (v *vectors) latency(name, help string, labels ...string) *latencies {
	return &latencies{v.histogram(name, help, latencyBuckets, labels...)}
}

func (v *vectors) addProxies(f *families) {
	f.proxyRequests = [...]*prometheus.CounterVec{
		HTTP: v.counter("serve_num_http_requests_total",
			"Requests that the HTTP proxy has answered or given up, including web sockets. The access log has a line for each.",
			labelApp, labelRoute, labelMethod, labelStatus),
		GRPC: v.counter("serve_num_grpc_requests_total",
			"Calls that the gRPC proxy has answered or given up. The access log has a line for each.",
			labelApp, labelRoute, labelMethod, labelStatus),
	}
	f.proxyErrors = [...]*prometheus.CounterVec{
		HTTP: v.counter("serve_num_http_error_requests_total",
			"Requests with an error: 4xx, 5xx, 499 and cut-off responses, under the code that the client received.",
			labelApp, labelRoute, labelMethod, labelError),
		GRPC: v.counter("serve_num_grpc_error_requests_total",
			"Calls of the gRPC proxy with an error, by the rule for the status of the proxy span.",
			labelApp, labelRoute, labelMethod, labelError),
	}
	f.deploymentErrors = [...]*prometheus.CounterVec{
		HTTP: v.counter("serve_num_deployment_http_error_requests_total",
			"Requests of the HTTP proxy with an error, by deployment. Requests without a route are not counted.",
			labelApp, labelDeployment, labelRoute, labelMethod, labelError),
		GRPC: v.counter("serve_num_deployment_grpc_error_requests_total",
			"Calls of the gRPC proxy with an error, by deployment.",
			labelApp, labelDeployment, labelRoute, labelMethod, labelError),
	}
	f.proxyLatency = [...]*latencies{
		HTTP: v.latency("serve_http_request_latency_ms",
			"Duration of requests in the HTTP proxy, from arrival to end.",
			labelApp, labelRoute, labelMethod, labelStatus),
		GRPC: v.latency("serve_grpc_request_latency_ms",
			"Duration of calls in the gRPC proxy, from arrival to end.",
			labelApp, labelRoute, labelMethod, labelStatus),
	}
	f.proxyOngoing = [...]*prometheus.GaugeVec{
		HTTP: v.gauge("serve_num_ongoing_http_requests", "Requests in progress in the HTTP proxy."),
		GRPC: v.gauge("serve_num_ongoing_grpc_requests", "Calls in progress in the gRPC proxy."),
	}
}

func (v *vectors) addRouters(f *families) {
	f.routerRequests = v.counter("serve_num_router_requests_total",
		"Requests and calls by handle that a router has assigned, refused or given up.",
		labelApp, labelDeployment, labelRoute)
	f.handleRequests = v.counter("serve_handle_request_counter_total",
		"Calls by handle alone, with the route of the outer request.",
		labelApp, labelDeployment, labelRoute)
	f.routerQueued = v.gauge("serve_deployment_queued_queries",
		"Requests that wait for a replica.",
		labelApp, labelDeployment)
	f.routerOngoing = v.gauge("serve_num_ongoing_requests_at_replicas",
		"Requests that were assigned to replicas and have not ended.",
		labelApp, labelDeployment)
	f.routerWait = v.latency("serve_request_router_fulfillment_time_ms",
		"Wait of assigned requests for a replica.",
		labelApp, labelDeployment)
}

func (v *vectors) addReplicas(f *families) {
	f.replicaRequests = v.counter("serve_deployment_request_counter_total",
		"Calls that user code ended without an error; a response with an error status counts.",
		labelApp, labelDeployment, labelReplica, labelRoute)
	f.replicaErrors = v.counter("serve_deployment_error_counter_total",
		"Calls that ended with an error or a panic of user code, or were cancelled.",
		labelApp, labelDeployment, labelReplica, labelRoute)
	f.replicaLatency = v.latency("serve_deployment_processing_latency_ms",
		"Duration of calls in user code.",
		labelApp, labelDeployment, labelReplica, labelRoute)
	f.replicaProcessing = v.gauge("serve_replica_processing_queries",
		"Calls in progress in user code.",
		labelApp, labelDeployment, labelReplica)
	f.replicaStarts = v.counter("serve_deployment_replica_starts_total",
		"1 for each replica that has accepted calls.",
		labelApp, labelDeployment, labelReplica)
	f.replicaHealthy = v.gauge("serve_deployment_replica_healthy",
		"1 if the last health check passed or there is none, else 0.",
		labelApp, labelDeployment, labelReplica)
	f.replicaInitialized = v.histogram("serve_replica_initialization_latency_ms",
		"Duration of a replica's constructor.",
		lifeBuckets, labelApp, labelDeployment, labelReplica)
	f.replicaReconfigured = v.histogram("serve_replica_reconfigure_latency_ms",
		"Duration of the user code for a new configuration.",
		latencyBuckets, labelApp, labelDeployment, labelReplica)
	f.replicaShutDown = v.histogram("serve_replica_shutdown_duration_ms",
		"Duration of a replica's stop, including its last calls.",
		lifeBuckets, labelApp, labelDeployment, labelReplica)
	f.replicaChecked = v.histogram("serve_health_check_latency_ms",
		"Duration of health checks of user code.",
		latencyBuckets, labelApp, labelDeployment, labelReplica)
	f.replicaUnhealthy = v.counter("serve_health_check_failures_total",
		"Health checks that failed or took too long.",
		labelApp, labelDeployment, labelReplica)
}

func (v *vectors) addBatching(f *families) {
	labels := []string{labelApp, labelDeployment, labelReplica, labelFunction}
	f.batches = v.counter("serve_batches_processed_total",
		"Batches that were run, with any result.", labels...)
	f.batchSize = v.histogram("serve_actual_batch_size",
		"Size of the batches that were run, in items or by the size function.", sizeBuckets, labels...)
	f.batchUtilization = v.histogram("serve_batch_utilization_percent",
		"Size of the batches that were run, as a percentage of the maximum size.", percentBuckets, labels...)
	f.batchWait = v.latency("serve_batch_wait_time_ms",
		"Wait of a batch's first item.", labels...)
	f.batchRun = v.latency("serve_batch_execution_time_ms",
		"Duration of batches.", labels...)
	f.batchQueued = v.gauge("serve_batch_queue_length",
		"Items that wait for a batch.", labels...)
}

func (v *vectors) addMultiplexing(f *families) {
	labels := []string{labelApp, labelDeployment, labelReplica}
	f.modelGets = v.counter("serve_multiplexed_get_model_requests_counter_total",
		"Requests for a model, loaded or not. Subtract the loads to get the hits.", labels...)
	f.modelLoads = v.counter("serve_multiplexed_models_load_counter_total",
		"Loads of a model, including failed loads.", labels...)
	f.modelUnloads = v.counter("serve_multiplexed_models_unload_counter_total",
		"Models that were unloaded.", labels...)
	f.modelLoadLatency = v.latency("serve_multiplexed_model_load_latency_ms",
		"Duration of successful loads.", labels...)
	f.modelUnloadLatency = v.histogram("serve_multiplexed_model_unload_latency_ms",
		"Duration of unloads.", latencyBuckets, labels...)
	f.modelsLoaded = v.gauge("serve_num_multiplexed_models",
		"Models that are loaded.", labels...)
	f.modelRegistered = v.gauge("serve_registered_multiplexed_model_id",
		"1 for each loaded model, at most a hundred per replica.", append(labels, labelModel)...)
}
