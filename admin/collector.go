package admin

import (
	"runtime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/servetrace/servetrace/host"
)

// metric is one family, as docs/how-to/operate.md lists it.
type metric struct {
	name   string
	kind   string // counter, gauge or histogram
	labels []string
	help   string
	desc   *prometheus.Desc
}

// metrics are all families, in the order of the document.
var metrics []*metric

func family(kind, name, help string, labels ...string) *metric {
	m := &metric{name, kind, labels, help, prometheus.NewDesc(name, help, labels, nil)}
	metrics = append(metrics, m)
	return m
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

// values are how the client library calls a kind.
var values = map[string]prometheus.ValueType{"counter": prometheus.CounterValue, "gauge": prometheus.GaugeValue}

// The labels. component is OpenTelemetry's otel.component.name, the name of a
// plugin in the list, and so is plugin.
const (
	component = "otel_component_name"
	errorType = "error_type"
	plugin    = "plugin"
)

// OpenTelemetry's conventions for the metrics of an SDK about itself, in the
// form that its exporter for Prometheus gives them: dots are underscores, and
// counters end in _total. https://opentelemetry.io/docs/specs/semconv/otel/sdk-metrics/
//
// To them this host is, for each plugin, a span processor with a queue and an
// exporter behind it. otel.sdk.processor.span.queue.capacity is not among them:
// it counts spans, and this queue is bounded in bytes.
var (
	otelQueueSize = gauge("otel_sdk_processor_span_queue_size",
		"Spans that wait for the plugin and are not in flight.", component)
	otelProcessed = counter("otel_sdk_processor_span_processed_total",
		"Spans that have left the queue for good: answered for by the plugin where error_type is empty, else dropped by the host for that reason.", component, errorType)
	otelInFlight = gauge("otel_sdk_exporter_span_inflight",
		"Spans that the plugin has and has not answered for.", component)
	otelExported = counter("otel_sdk_exporter_span_exported_total",
		"Spans that the plugin has answered for for good: delivered where error_type is empty, else rejected with that gRPC code, or as rejected in part of a batch.", component, errorType)
	otelDuration = histogram("otel_sdk_exporter_operation_duration_seconds",
		"How long an export call took, whatever its answer; a batch that is sent again is another call.", component)
)

// Ours: the books of the whole service, then what there is for each plugin.
var (
	buildInfo = gauge("servetrace_build_info",
		"Always 1: the version of servetrace in this program, the commit of the program and its release of Go.", "version", "revision", "goversion")
	spansEnded = counter("servetrace_spans_ended_total",
		"Sampled spans that have ended.")
	spansAccepted = counter("servetrace_spans_accepted_total",
		"Spans that were taken in, for all plugins.")
	spansRefused = counter("servetrace_spans_refused_total",
		"Spans that were not taken in, for any plugin.", "reason")
	queueBytes = gauge("servetrace_queue_bytes",
		"Memory that waiting spans take, for all plugins together.")
	queueLimit = gauge("servetrace_queue_limit_bytes",
		"Bound of that memory: SERVE_TRACING_QUEUE_BYTES.")

	pluginInfo = gauge("servetrace_plugin_info",
		"Always 1: what the plugin says of itself, and whether this service attaches to it.", plugin, "version", "sdk", "attached")
	pluginState = gauge("servetrace_plugin_state",
		"1 for the state that the plugin is in, 0 for each other.", plugin, "state")
	pluginSince = gauge("servetrace_plugin_state_since_timestamp_seconds",
		"When the plugin came to its state.", plugin)
	pluginStarts = counter("servetrace_plugin_starts_total",
		"Processes that became ready, or connections.", plugin)
	pluginCrashes = counter("servetrace_plugin_crashes_total",
		"Processes that ended without having been asked to, were killed because they did not answer, or never became a plugin; connections lost.", plugin)
	pluginCrashed = gauge("servetrace_plugin_last_crash_timestamp_seconds",
		"When the plugin crashed last; not there before it did.", plugin)
	pluginSucceeded = gauge("servetrace_plugin_last_success_timestamp_seconds",
		"When the plugin delivered a batch last; not there before it did.", plugin)
	pluginAccepted = counter("servetrace_plugin_spans_accepted_total",
		"Spans that were taken in since the plugin is in the list: the sum of the four that follow and of those that wait.", plugin)
	pluginDelivered = counter("servetrace_plugin_spans_delivered_total",
		"Spans that the plugin has delivered.", plugin)
	pluginRejected = counter("servetrace_plugin_spans_rejected_total",
		"Spans that the plugin says never will be delivered, by gRPC code or PARTIAL_SUCCESS.", plugin, "code")
	pluginFiltered = counter("servetrace_plugin_spans_filtered_total",
		"Spans that a processor in the plugin dropped on purpose; beyond 64 processors they are other.", plugin, "processor")
	pluginDropped = counter("servetrace_plugin_spans_dropped_total",
		"Spans that the host gave up.", plugin, "reason")
	pluginLost = counter("servetrace_plugin_spans_lost_total",
		"Spans rejected or dropped. Unlike those, whose labels come with the first span, it is always there: alert on it.", plugin)
	pluginWaiting = gauge("servetrace_plugin_spans_waiting",
		"Spans that lie in the service for this plugin, in flight or not.", plugin)
	pluginCalls = gauge("servetrace_plugin_calls_in_flight",
		"Export calls that the plugin has not answered.", plugin)
	pluginAnswers = counter("servetrace_plugin_calls_total",
		"Export calls that have ended, by gRPC code (OK), or LOST where the plugin did not live to answer.", plugin, "answer")
	pluginQuarantined = counter("servetrace_plugin_quarantined_batches_total",
		"Batches that were dropped because the plugin crashed twice while it had nothing else.", plugin)
	pluginUnkept = counter("servetrace_plugin_unkept_files_total",
		"Files, of crashes and of such batches, that were to be written to SERVE_TRACING_CRASH_DIR and could not be.", plugin)
	pluginChanged = gauge("servetrace_plugin_executable_changed",
		"1 where the executable on disk is not the one that runs, else 0.", plugin)
	pluginSuppressed = counter("servetrace_plugin_output_suppressed_lines_total",
		"Lines that the plugin printed and that were not logged, for they were too many.", plugin)
	pluginUnprinted = counter("servetrace_plugin_output_dropped_lines_total",
		"Lines that the plugin printed to the service's standard output and that did not reach it: its reader was too slow when the plugin ended, or gone.", plugin)
	pluginHeld = gauge("servetrace_plugin_held_bytes",
		"Memory of the batches that wait for this plugin. A batch counts in full for each plugin that it waits for.", plugin)
)

// refusals are the reasons that are shown at zero before the first span was
// refused, so that an alert sees the first.
var refusals = []string{"queue_full", "shutdown", "too_large"}

// otelReasons are the reasons that OpenTelemetry calls otherwise.
var otelReasons = map[string]string{"shutdown": "already_shutdown"}

// otelRejected is OpenTelemetry's word for a rejection that has no reason of
// its own, in place of the books' "PARTIAL_SUCCESS".
var otelCodes = map[string]string{"PARTIAL_SUCCESS": "rejected"}

// states are all there are.
var states = []host.State{
	host.StateStarting, host.StateReady, host.StateDegraded, host.StateBackingOff, host.StateBroken,
	host.StateIncompatible, host.StateUntrusted, host.StateDraining, host.StateStopped,
}

// collector makes metrics of the books.
type collector struct{ stats func() host.Stats }

// NewCollector gives the metrics of a host, for a registry of the program's own;
// docs/how-to/operate.md lists them. stats is the method Stats of a [host.Host]. It
// is called once for each scrape, so all metrics of one are of one moment, and
// the books in them balance. Their number is bounded: by the plugins that are or
// were in the list, gRPC's codes, the host's reasons and states, and 64
// processors for each plugin. Safe for concurrent use, if stats is.
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
	refused := map[string]uint64{}
	for _, reason := range refusals {
		refused[reason] = 0
	}
	out.putEach(spansRefused, add(refused, s.Refused, nil))
	out.put(queueBytes, float64(s.Bytes))
	out.put(queueLimit, float64(s.LimitBytes))
	for _, x := range byName(s.Exporters) {
		out.life(x)
		out.books(x)
	}
}

// scrape is one answer on its way.
type scrape struct{ to chan<- prometheus.Metric }

func (o scrape) put(m *metric, value float64, labels ...string) {
	for i := range labels {
		labels[i] = clean(labels[i])
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
		labels[i] = clean(labels[i])
	}
	made, err := prometheus.NewConstHistogram(m.desc, d.Count, d.Sum.Seconds(), buckets, labels...)
	o.send(m, made, err)
}

func (o scrape) send(m *metric, made prometheus.Metric, err error) {
	if err != nil { // only by a bug: the labels are as many as they should be, and clean
		made = prometheus.NewInvalidMetric(m.desc, err)
	}
	o.to <- made
}

// putEach puts counts by their last label.
func (o scrape) putEach(m *metric, counts map[string]uint64, labels ...string) {
	for key, n := range counts {
		o.put(m, float64(n), append(labels[:len(labels):len(labels)], key)...)
	}
}

// life puts how a plugin is.
func (o scrape) life(x host.ExporterStats) {
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
	o.putEach(pluginAnswers, add(nil, x.Answers, nil), x.Name)
	o.put(pluginQuarantined, float64(x.Quarantined), x.Name)
	o.put(pluginUnkept, float64(x.Unkept), x.Name)
	o.put(pluginChanged, oneIf(x.Changed), x.Name)
	o.put(pluginSuppressed, float64(x.OutputSuppressed), x.Name)
	o.put(pluginUnprinted, float64(x.OutputDropped), x.Name)
	o.putDurations(otelDuration, x.Calls, x.Name)
	o.put(pluginHeld, float64(x.HeldBytes), x.Name)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// books puts what became of a plugin's spans.
func (o scrape) books(x host.ExporterStats) {
	rejected, filtered, dropped := total(x.Rejected), total(x.Filtered), total(x.Dropped)
	o.put(pluginAccepted, float64(x.Accepted), x.Name)
	o.put(pluginDelivered, float64(x.Delivered), x.Name)
	o.putEach(pluginRejected, add(nil, x.Rejected, nil), x.Name)
	o.putEach(pluginFiltered, add(nil, x.Filtered, nil), x.Name)
	o.putEach(pluginDropped, add(nil, x.Dropped, nil), x.Name)
	o.put(pluginLost, float64(rejected+dropped), x.Name)
	o.put(pluginWaiting, float64(x.Waiting), x.Name)

	o.put(otelQueueSize, float64(x.Waiting-min(x.Waiting, x.InFlight)), x.Name)
	o.put(otelInFlight, float64(x.InFlight), x.Name)
	o.putEach(otelProcessed, add(map[string]uint64{"": x.Delivered + rejected + filtered}, x.Dropped, otelReasons), x.Name)
	o.putEach(otelExported, add(map[string]uint64{"": x.Delivered}, x.Rejected, otelCodes), x.Name)
}

// byName gives one entry for each name: a plugin that has left the list and come
// back has two ledgers, and two series of one name can not be. Counts are
// added; all else is that of the last that is not over.
func byName(list []host.ExporterStats) []host.ExporterStats {
	var out []host.ExporterStats
	place := map[string]int{}
	for _, x := range list {
		name := clean(x.Name)
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
		now.Delivered += before.Delivered
		now.Waiting += before.Waiting
		now.InFlight += before.InFlight
		now.Quarantined += before.Quarantined
		now.Unkept += before.Unkept
		now.OutputSuppressed += before.OutputSuppressed
		now.OutputDropped += before.OutputDropped
		now.Calls = together(now.Calls, before.Calls)
		now.Answers = add(add(nil, now.Answers, nil), before.Answers, nil)
		now.Rejected = add(add(nil, now.Rejected, nil), before.Rejected, nil)
		now.Filtered = add(add(nil, now.Filtered, nil), before.Filtered, nil)
		now.Dropped = add(add(nil, now.Dropped, nil), before.Dropped, nil)
		out[i] = now
	}
	return out
}

// together is what two counts of durations come to.
func together(a, b host.Durations) host.Durations {
	sum := host.Durations{Count: a.Count + b.Count, Sum: a.Sum + b.Sum, Buckets: map[time.Duration]uint64{}}
	for _, d := range []host.Durations{a, b} {
		for bound, n := range d.Buckets {
			sum.Buckets[bound] += n
		}
	}
	return sum
}

// add adds counts to sum, which may be nil, under the names that rename has for
// them, made fit for a label.
func add(sum, counts map[string]uint64, rename map[string]string) map[string]uint64 {
	if sum == nil {
		sum = map[string]uint64{}
	}
	for key, n := range counts {
		if other, ok := rename[key]; ok {
			key = other
		}
		sum[clean(key)] += n
	}
	return sum
}

// mostLabel is the longest value of a label, in bytes. What a plugin says of
// itself may be a kilobyte.
const mostLabel = 128

// clean makes a text of a plugin's fit for a label, which must be UTF-8.
func clean(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= mostLabel {
		return text
	}
	cut := mostLabel
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
