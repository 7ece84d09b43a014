package admin

import (
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/total"
)

// metric is a metric family, as listed in docs/reference/metrics.md.
type metric struct {
	name   string
	kind   string // counter, gauge or histogram
	labels []string
	help   string
	desc   *prometheus.Desc
}

// metrics lists the metric families of a host, in the order of docs/reference/metrics.md.
var metrics []*metric

// family returns a metric family of a host, and adds it to metrics.
func family(kind, name, help string, labels ...string) *metric {
	m := newMetric(kind, name, help, labels...)
	metrics = append(metrics, m)
	return m
}

func newMetric(kind, name, help string, labels ...string) *metric {
	return &metric{name, kind, labels, help, prometheus.NewDesc(name, help, labels, nil)}
}

func counter(name, help string, labels ...string) *metric {
	return family("counter", name, help, labels...)
}

func gauge(name, help string, labels ...string) *metric {
	return family("gauge", name, help, labels...)
}

func histogram(name, help string, labels ...string) *metric {
	return family("histogram", name, help, labels...)
}

var values = map[string]prometheus.ValueType{"counter": prometheus.CounterValue, "gauge": prometheus.GaugeValue}

// Label names. The value of component and of plugin is the plugin's name in the list. The
// label component is OpenTelemetry's otel.component.name.
const (
	component = "otel_component_name"
	errorType = "error_type"
	plugin    = "plugin"
)

// Metrics of OpenTelemetry's conventions for an SDK's own metrics, with names as in its
// Prometheus exporter: dots become underscores, and counters end in _total.
// https://opentelemetry.io/docs/specs/semconv/otel/sdk-metrics/
//
// For each plugin, these metrics describe the host as a span processor with a queue, and as
// an exporter. otel.sdk.processor.span.queue.capacity is missing, because its unit is spans,
// and the host's queue is bounded in bytes.
var (
	otelQueueSize = gauge("otel_sdk_processor_span_queue_size",
		"Spans that wait for the plugin and are not in flight.", component)
	otelProcessed = counter("otel_sdk_processor_span_processed_total",
		"Spans that have left the queue: answered by the plugin, or dropped by the host for the reason in error_type.", component, errorType)
	otelInFlight = gauge("otel_sdk_exporter_span_inflight",
		"Spans that were sent to the plugin and are not answered yet.", component)
	otelExported = counter("otel_sdk_exporter_span_exported_total",
		"Spans with a final answer: delivered, or rejected with the gRPC code in error_type (\"rejected\" for a part of a batch).", component, errorType)
	otelDuration = histogram("otel_sdk_exporter_operation_duration_seconds",
		"Duration of export calls, with any answer.", component)
)

// Metrics of this project: the delivery accounting of the whole service, then of each plugin.
var (
	buildInfo = gauge("servetrace_build_info",
		"Always 1. Version of servetrace, commit and Go version of the program.", "version", "revision", "goversion")
	spansEnded = counter("servetrace_spans_ended_total",
		"Sampled spans that have ended.")
	spansAccepted = counter("servetrace_spans_accepted_total",
		"Spans that the host accepted, for all plugins.")
	spansRefused = counter("servetrace_spans_refused_total",
		"Spans that the host refused, for all plugins.", "reason")
	spansPushedBack = counter("servetrace_spans_pushed_back_total",
		"Spans of requests that the host had no room for. Their senders still have them.")
	queueBytes = gauge("servetrace_queue_bytes",
		"Memory of all waiting spans.")
	queueLimit = gauge("servetrace_queue_limit_bytes",
		"SERVE_TRACING_QUEUE_BYTES.")
	spoolBytes = gauge("servetrace_spool_bytes",
		"Bytes of the files in SERVE_TRACING_SPOOL_DIR. Absent without a spool, like the next three.")
	spoolLimit = gauge("servetrace_spool_limit_bytes",
		"SERVE_TRACING_SPOOL_BYTES.")
	spoolFailing = gauge("servetrace_spool_failing",
		"1 if the spool could not be written at the last attempt, else 0.")
	spoolMissed = counter("servetrace_spool_missed_total",
		"Batches and requests that could not be written to the spool. They were in memory only.")

	pluginInfo = gauge("servetrace_plugin_info",
		"Always 1. Version and SDK that the plugin reports.", plugin, "version", "sdk", "attached")
	pluginState = gauge("servetrace_plugin_state",
		"1 for the current state, 0 for all other states.", plugin, "state")
	pluginSince = gauge("servetrace_plugin_state_since_timestamp_seconds",
		"Time of the last change of the plugin's state.", plugin)
	pluginStarts = counter("servetrace_plugin_starts_total",
		"Processes (of an attached plugin: connections) that became ready.", plugin)
	pluginCrashes = counter("servetrace_plugin_crashes_total",
		"Processes that ended unasked, were killed for silence, or failed to start. For an attached plugin: lost connections.", plugin)
	pluginCrashed = gauge("servetrace_plugin_last_crash_timestamp_seconds",
		"Time of the plugin's last crash. Absent before the first.", plugin)
	pluginSucceeded = gauge("servetrace_plugin_last_success_timestamp_seconds",
		"Time of the plugin's last delivery of a batch. Absent before the first.", plugin)
	pluginAccepted = counter("servetrace_plugin_spans_accepted_total",
		"Spans accepted. With the recovered spans, they are the sum of delivered, rejected, filtered, dropped, spooled and waiting spans.", plugin)
	pluginRecovered = counter("servetrace_plugin_spans_recovered_total",
		"Spans that an earlier process left in the spool.", plugin)
	pluginSpooled = counter("servetrace_plugin_spans_spooled_total",
		"Spans that this process left in the spool when it stopped.", plugin)
	pluginDelivered = counter("servetrace_plugin_spans_delivered_total",
		"Spans that the plugin has delivered.", plugin)
	pluginPassed = counter("servetrace_plugin_spans_passed_total",
		"Spans that a processor plugin has passed on. With the bypassed spans, they are what it has not filtered or dropped.", plugin)
	pluginBypassed = counter("servetrace_plugin_spans_bypassed_total",
		"Spans that went on without a processor plugin, because it fails open.", plugin, "reason")
	pluginRejected = counter("servetrace_plugin_spans_rejected_total",
		"Spans that the plugin rejected finally, by gRPC code or PARTIAL_SUCCESS.", plugin, "code")
	pluginFiltered = counter("servetrace_plugin_spans_filtered_total",
		"Spans that a processor in the plugin dropped.", plugin, "processor")
	pluginDropped = counter("servetrace_plugin_spans_dropped_total",
		"Spans that the host dropped.", plugin, "reason")
	pluginLost = counter("servetrace_plugin_spans_lost_total",
		"Spans rejected or dropped. It exists from the start: use it in alerts.", plugin)
	pluginWaiting = gauge("servetrace_plugin_spans_waiting",
		"Spans that wait for this plugin, in flight or not.", plugin)
	pluginCalls = gauge("servetrace_plugin_calls_in_flight",
		"Export calls that the plugin has not answered.", plugin)
	pluginAnswers = counter("servetrace_plugin_calls_total",
		"Export calls that have ended, by gRPC code (OK), or LOST if the plugin ended before its answer.", plugin, "answer")
	pluginQuarantined = counter("servetrace_plugin_quarantined_batches_total",
		"Batches that crashed the plugin twice.", plugin)
	pluginUnkept = counter("servetrace_plugin_unkept_files_total",
		"Crash reports and quarantined batches that could not be written to SERVE_TRACING_CRASH_DIR.", plugin)
	pluginChanged = gauge("servetrace_plugin_executable_changed",
		"1 if the executable on disk is not the running one, else 0.", plugin)
	pluginSuppressed = counter("servetrace_plugin_output_suppressed_lines_total",
		"Lines of the plugin's output beyond the rate limit of the log.", plugin)
	pluginUnprinted = counter("servetrace_plugin_output_dropped_lines_total",
		"Lines of the plugin's output that did not reach the service's standard output.", plugin)
	pluginHeld = gauge("servetrace_plugin_held_bytes",
		"Memory of the batches that wait for this plugin. A batch counts in full for each plugin.", plugin)
)

// refusals are the reasons for which spans are refused. Each has a series with the value 0 from
// the start, so that an alert on its growth notices the first refused span.
var refusals = map[string]uint64{"queue_full": 0, "shutdown": 0, "too_large": 0}

// otelReasons maps the host's reasons for dropped spans to OpenTelemetry's names. Reasons that
// are not in the map have the same name there.
var otelReasons = map[string]string{"shutdown": "already_shutdown"}

// otelCodes maps the host's codes of rejected spans to OpenTelemetry's names. Codes that are
// not in the map have the same name there.
var otelCodes = map[string]string{"PARTIAL_SUCCESS": "rejected"}

var states = []host.State{
	host.StateStarting, host.StateReady, host.StateDegraded, host.StateBackingOff, host.StateBroken,
	host.StateIncompatible, host.StateUntrusted, host.StateDraining, host.StateStopped,
}

// collector makes metrics of a host's statistics.
type collector struct{ stats func() host.Stats }

// NewCollector returns the metrics of a host, for a program's own registry.
// docs/reference/metrics.md lists them. stats is the method Stats of a [host.Host]. It is
// called once per scrape, so all metrics of a scrape are of the same moment, and their
// sums match. The number of series is bounded: it depends on the plugins that are or were in
// the list, gRPC's codes, the host's reasons and states, and at most 64 processors of each
// plugin. The collector is safe for concurrent use if stats is.
func NewCollector(stats func() host.Stats) prometheus.Collector { return collector{stats} }

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range metrics {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	out := scrape{to}
	version, revision := build()
	out.put(buildInfo, 1, version, revision, runtime.Version())
	out.put(spansEnded, float64(s.Ended))
	out.put(spansAccepted, float64(s.Accepted))
	out.putEach(spansRefused, sumOf(nil, refusals, s.Refused))
	out.put(spansPushedBack, float64(s.PushedBack))
	out.put(queueBytes, float64(s.Bytes))
	out.put(queueLimit, float64(s.LimitBytes))
	if s.Spool.LimitBytes > 0 {
		out.put(spoolBytes, float64(s.Spool.Bytes))
		out.put(spoolLimit, float64(s.Spool.LimitBytes))
		out.put(spoolFailing, oneIf(s.Spool.Failing))
		out.put(spoolMissed, float64(s.Spool.Missed))
	}
	for _, x := range mergeByName(s.Exporters) {
		out.putState(x)
		out.putDurations(otelDuration, x.Calls, x.Name)
		out.putSpans(x)
	}
	for _, x := range mergeByName(processorsOf(s)) {
		out.putState(x)
		out.putProcessed(x)
	}
}

// scrape sends the metrics of one scrape.
type scrape struct{ to chan<- prometheus.Metric }

func (o scrape) put(m *metric, value float64, labels ...string) {
	for i := range labels {
		labels[i] = cleanLabel(labels[i])
	}
	made, err := prometheus.NewConstMetric(m.desc, values[m.kind], value, labels...)
	o.send(m, made, err)
}

func (o scrape) putDurations(m *metric, d host.Durations, labels ...string) {
	buckets := map[float64]uint64{}
	for bound, n := range d.Buckets {
		buckets[bound.Seconds()] = n
	}
	for i := range labels {
		labels[i] = cleanLabel(labels[i])
	}
	made, err := prometheus.NewConstHistogram(m.desc, d.Count, d.Sum.Seconds(), buckets, labels...)
	o.send(m, made, err)
}

func (o scrape) send(m *metric, made prometheus.Metric, err error) {
	if err != nil { // cannot happen: the number of labels is right, and they are valid
		made = prometheus.NewInvalidMetric(m.desc, err)
	}
	o.to <- made
}

// putEach sends a metric for each count, with the key of the map as the last label.
func (o scrape) putEach(m *metric, counts map[string]uint64, labels ...string) {
	for key, n := range counts {
		o.put(m, float64(n), append(labels[:len(labels):len(labels)], key)...)
	}
}

func (o scrape) putState(x host.ExporterStats) {
	o.put(pluginInfo, 1, x.Name, x.Version, x.SDK, strconv.FormatBool(x.Attached))
	for _, state := range states {
		o.put(pluginState, oneIf(state == x.State), x.Name, state.String())
	}
	if !x.Since.IsZero() {
		o.put(pluginSince, float64(x.Since.UnixMilli())/1000, x.Name)
	}
	o.put(pluginStarts, float64(x.Starts), x.Name)
	o.put(pluginCrashes, float64(x.Crashes), x.Name)
	if !x.LastCrash.IsZero() {
		o.put(pluginCrashed, float64(x.LastCrash.UnixMilli())/1000, x.Name)
	}
	if !x.LastSuccess.IsZero() {
		o.put(pluginSucceeded, float64(x.LastSuccess.UnixMilli())/1000, x.Name)
	}
	o.put(pluginCalls, float64(x.InFlightBatches), x.Name)
	o.putEach(pluginAnswers, sumOf(nil, x.Answers), x.Name)
	o.put(pluginQuarantined, float64(x.Quarantined), x.Name)
	o.put(pluginUnkept, float64(x.Unkept), x.Name)
	o.put(pluginChanged, oneIf(x.Changed), x.Name)
	o.put(pluginSuppressed, float64(x.OutputSuppressed), x.Name)
	o.put(pluginUnprinted, float64(x.OutputDropped), x.Name)
	o.put(pluginHeld, float64(x.HeldBytes), x.Name)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (o scrape) putSpans(x host.ExporterStats) {
	rejected, filtered, dropped := total.Of(x.Rejected), total.Of(x.Filtered), total.Of(x.Dropped)
	o.put(pluginAccepted, float64(x.Accepted), x.Name)
	o.put(pluginRecovered, float64(x.Recovered), x.Name)
	o.put(pluginSpooled, float64(x.Spooled), x.Name)
	o.put(pluginDelivered, float64(x.Delivered), x.Name)
	o.putEach(pluginRejected, sumOf(nil, x.Rejected), x.Name)
	o.putEach(pluginFiltered, sumOf(nil, x.Filtered), x.Name)
	o.putEach(pluginDropped, sumOf(nil, x.Dropped), x.Name)
	o.put(pluginLost, float64(rejected+dropped), x.Name)
	o.put(pluginWaiting, float64(x.Waiting), x.Name)

	o.put(otelQueueSize, float64(x.Waiting-min(x.Waiting, x.InFlight)), x.Name)
	o.put(otelInFlight, float64(x.InFlight), x.Name)
	o.putEach(otelProcessed, sumOf(otelReasons, map[string]uint64{"": x.Delivered + rejected + filtered}, x.Dropped), x.Name)
	o.putEach(otelExported, sumOf(otelCodes, map[string]uint64{"": x.Delivered}, x.Rejected), x.Name)
}

// processorsOf returns the statistics of the processors for mergeByName, in the type for
// exporters. The field Delivered has the passed spans, and Rejected the bypassed spans.
func processorsOf(s host.Stats) []host.ExporterStats {
	var list []host.ExporterStats
	for _, p := range s.Processors {
		p.Plugin.Delivered, p.Plugin.Rejected = p.Passed, p.Bypassed
		list = append(list, p.Plugin)
	}
	return list
}

// putProcessed sends the counts of a processor. x is a result of processorsOf.
func (o scrape) putProcessed(x host.ExporterStats) {
	o.put(pluginAccepted, float64(x.Accepted), x.Name)
	o.put(pluginPassed, float64(x.Delivered), x.Name)
	o.putEach(pluginBypassed, sumOf(nil, x.Rejected), x.Name)
	o.putEach(pluginFiltered, sumOf(nil, x.Filtered), x.Name)
	o.putEach(pluginDropped, sumOf(nil, x.Dropped), x.Name)
	o.put(pluginLost, float64(total.Of(x.Dropped)), x.Name)
	o.put(pluginWaiting, float64(x.Waiting), x.Name)
}

// mergeByName merges the entries with the same name. A plugin that left the list and came back
// has two entries in list, but a metric must not have two series with the same labels. Counts
// are added. All other fields come from the last entry that is not stopped.
func mergeByName(list []host.ExporterStats) []host.ExporterStats {
	var out []host.ExporterStats
	place := map[string]int{}
	for _, x := range list {
		name := cleanLabel(x.Name)
		i, seen := place[name]
		if !seen {
			place[name] = len(out)
			out = append(out, x)
			continue
		}
		now, before := x, out[i]
		if x.State == host.StateStopped {
			now, before = before, x
		}
		now.Starts += before.Starts
		now.Crashes += before.Crashes
		now.Accepted += before.Accepted
		now.Recovered += before.Recovered
		now.Spooled += before.Spooled
		now.Delivered += before.Delivered
		now.Waiting += before.Waiting
		now.InFlight += before.InFlight
		now.InFlightBatches += before.InFlightBatches
		now.HeldBytes += before.HeldBytes
		now.Quarantined += before.Quarantined
		now.Unkept += before.Unkept
		now.OutputSuppressed += before.OutputSuppressed
		now.OutputDropped += before.OutputDropped
		now.Calls = mergeDurations(now.Calls, before.Calls)
		now.Answers = sumOf(nil, now.Answers, before.Answers)
		now.Rejected = sumOf(nil, now.Rejected, before.Rejected)
		now.Filtered = sumOf(nil, now.Filtered, before.Filtered)
		now.Dropped = sumOf(nil, now.Dropped, before.Dropped)
		out[i] = now
	}
	return out
}

func mergeDurations(a, b host.Durations) host.Durations {
	sum := host.Durations{Count: a.Count + b.Count, Sum: a.Sum + b.Sum, Buckets: map[time.Duration]uint64{}}
	for _, d := range []host.Durations{a, b} {
		for bound, n := range d.Buckets {
			sum.Buckets[bound] += n
		}
	}
	return sum
}

// sumOf returns the sums of the counts with the same key. A key that is in rename gets the name
// there. All keys are made valid label values.
func sumOf(rename map[string]string, all ...map[string]uint64) map[string]uint64 {
	sum := map[string]uint64{}
	for _, counts := range all {
		for key, n := range counts {
			if other, ok := rename[key]; ok {
				key = other
			}
			sum[cleanLabel(key)] += n
		}
	}
	return sum
}

// maxLabel is the length of the longest value of a label, in bytes. A text of a plugin may be
// longer and is then cut.
const maxLabel = 128

// cleanLabel returns a text as a valid label value: UTF-8 of at most maxLabel bytes.
func cleanLabel(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), maxLabel)], "") // removes a character that the cut has split
}
