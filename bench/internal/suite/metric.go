package suite

import "strings"

// The names of what cases measure. A name may say in braces which process or
// which part it is of: Of(CPU, "host") is "cpu_ns_per_span{host}".
const (
	// CPU is user and system time, divided by the spans that were delivered, not
	// by those that were made. Of "host" (the process with the SDK), "plugin", and
	// "total", their sum; of "sink", which counts for nobody, for comparison.
	CPU = "cpu_ns_per_span"
	// Bytes and Allocs are what the process "host" has allocated a delivered span.
	Bytes  = "bytes_per_span"
	Allocs = "allocs_per_span"
	// Call is how long the program was kept by one span, from Start to the return
	// of End; OnEnd by the processor's OnEnd alone, per span of a burst. Of "p50",
	// "p99".
	Call  = "call_ns"
	OnEnd = "onend_ns"
	// PeakRSS is the most memory resident, in MiB. Of "host", "plugin".
	PeakRSS = "peak_rss_mib"
	// Rate is how many spans were delivered a second, the last flush included.
	Rate = "spans_per_second"
	// Spans are counts. Of "ended", "delivered" (as the sink has counted), "lost"
	// (ended, not delivered), "twice" (delivered more than once), "dropped" and
	// "refused" (as our books say).
	Spans = "spans"
	// Encode is wall time from finished spans to the bytes of a request, a span.
	Encode = "encode_ns_per_span"

	// Requests is how many were answered a second, RequestCall how long each took
	// (of "p50", "p95", "p99"), RequestCPU, RequestBytes and RequestAllocs what the
	// server (of "server", "plugin", "total") paid for each.
	Requests      = "requests_per_second"
	RequestCall   = "request_ns"
	RequestCPU    = "cpu_ns_per_request"
	RequestBytes  = "bytes_per_request"
	RequestAllocs = "allocs_per_request"
	// Failed are requests with an answer other than the right one.
	Failed = "failed_requests"

	// Foreign is what others used of the machine meanwhile, in cores: the gate's
	// own reading, which the runner adds.
	Foreign = "foreign_cores"
)

// Of names a metric of one process or part.
func Of(metric, part string) string { return metric + "{" + part + "}" }

// vocabulary is the metrics in the order in which tables show them.
var vocabulary = []struct{ metric, title, unit string }{
	{CPU, "CPU", "ns/span"}, {Encode, "time", "ns/span"}, {RequestCPU, "CPU", "ns/request"}, {Requests, "requests", "/s"},
	{RequestCall, "request", "ns"}, {RequestBytes, "heap", "B/request"}, {RequestAllocs, "allocations", "/request"}, {Failed, "failed", ""},
	{OnEnd, "OnEnd", "ns/span"}, {Call, "call", "ns"}, {Bytes, "heap", "B/span"}, {Allocs, "allocations", "/span"},
	{PeakRSS, "peak RSS", "MiB"}, {Rate, "rate", "/s"}, {Spans, "spans", ""}, {Foreign, "others", "cores"},
}

// Order is the place of a metric, with or without braces, in a table; after all
// others for a name that is not of the vocabulary.
func Order(metric string) int {
	base, _, _ := strings.Cut(metric, "{")
	for i, v := range vocabulary {
		if v.metric == base {
			return i
		}
	}
	return len(vocabulary)
}

// Known tells whether a metric is of the vocabulary.
func Known(metric string) bool { return Order(metric) < len(vocabulary) }

// Title is what a table calls a metric, Unit its unit; empty for a count. Both
// are for a metric of the vocabulary.
func Title(metric string) string { return vocabulary[Order(metric)].title }

// Unit is the unit of a metric of the vocabulary; empty for a count.
func Unit(metric string) string { return vocabulary[Order(metric)].unit }
