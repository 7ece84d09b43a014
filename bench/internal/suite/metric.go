package suite

import (
	"slices"
	"strings"
)

// The names of metrics. Braces name a process or a part: Of(CPU, "host") is
// "cpu_ns_per_span{host}".
const (
	// CPU is user and system time for each delivered span: of "host" (the process
	// with the SDK), "plugin", and "total", their sum; of "sink" for comparison.
	CPU = "cpu_ns_per_span"
	// Bytes and Allocs are allocations of the process "host" for each delivered span.
	Bytes  = "bytes_per_span"
	Allocs = "allocs_per_span"
	// Call is the time of one span from Start to the return of End, and OnEnd the
	// time of the processor's OnEnd, for each span of a burst: "p50", "p99".
	Call  = "call_ns"
	OnEnd = "onend_ns"
	// PeakRSS is in MiB: of "host", "plugin", "server".
	PeakRSS = "peak_rss_mib"
	// Rate is the number of spans delivered in a second, with the last flush.
	Rate = "spans_per_second"
	// Spans are counts: "ended", "delivered" (by the sink's count), "lost" (ended and
	// not delivered), "twice" (delivered more than once).
	Spans = "spans"
	// Encode is the time from finished spans to the bytes of a request, for a span.
	Encode = "encode_ns_per_span"

	// Requests is the number of answers in a second, and RequestCall the time of a
	// request: "p50", "p95", "p99".
	Requests    = "requests_per_second"
	RequestCall = "request_ns"
	// RequestCPU, RequestBytes and RequestAllocs are costs for each request: of
	// "server", "plugin", "total".
	RequestCPU    = "cpu_ns_per_request"
	RequestBytes  = "bytes_per_request"
	RequestAllocs = "allocs_per_request"

	// Foreign is the CPU that other processes used, in cores. Run adds it.
	Foreign = "foreign_cores"
)

// Of returns the name of a metric of one process or part.
func Of(metric, part string) string { return metric + "{" + part + "}" }

// vocabulary has all metrics in the order of tables. A count has no unit.
var vocabulary = []struct{ metric, title, unit string }{
	{CPU, "CPU", "ns/span"}, {Encode, "time", "ns/span"}, {RequestCPU, "CPU", "ns/request"}, {Requests, "requests", "/s"},
	{RequestCall, "request", "ns"}, {RequestBytes, "heap", "B/request"}, {RequestAllocs, "allocations", "/request"},
	{OnEnd, "OnEnd", "ns/span"}, {Call, "call", "ns"}, {Bytes, "heap", "B/span"}, {Allocs, "allocations", "/span"},
	{PeakRSS, "peak RSS", "MiB"}, {Rate, "rate", "/s"}, {Spans, "spans", ""}, {Foreign, "others", "cores"},
}

// order returns the index of a metric in the vocabulary, and -1 for another name.
func order(metric string) int {
	base, _, _ := strings.Cut(metric, "{")
	return slices.IndexFunc(vocabulary, func(v struct{ metric, title, unit string }) bool { return v.metric == base })
}

// Known reports whether a metric belongs to the vocabulary.
func Known(metric string) bool { return order(metric) >= 0 }
