package admin

import "github.com/prometheus/client_golang/prometheus"

// Relay describes the relay of this process; see package relay. No map is null.
type Relay struct {
	// Endpoints are the addresses of the listeners, "grpc unix:///path".
	Endpoints []string `json:"endpoints"`
	// Connections counts the open connections by protocol, "grpc" or "http".
	Connections map[string]int `json:"connections"`
	// Requests counts the answered requests, by protocol and by gRPC code. A request by HTTP is
	// also counted by a gRPC code.
	Requests map[string]map[string]uint64 `json:"requests"`
	// Spans counts the spans that the relay has accepted, by protocol.
	Spans map[string]uint64 `json:"spans"`
	// Closed counts the connections that a limit closed, by reason: "peer" (another
	// user), "connections" or "bytes".
	Closed map[string]uint64 `json:"closed"`
	// Lost counts the spans that senders lost before the relay had the spans, as the
	// senders report, by reason: "queue_full", "shutdown", "encode", "refused" or
	// "other".
	Lost map[string]uint64 `json:"lost"`
	// Senders are the programs with open connections, at most twenty: the programs that
	// were pushed back most often are first, then the programs with most spans.
	Senders []RelaySender `json:"senders"`
}

// RelaySender describes the open connections of a program.
type RelaySender struct {
	// Name is the process of the program if it uses a Unix socket, otherwise its address.
	Name        string `json:"name"`
	Connections int    `json:"connections"`
	// Requests counts the answered requests. PushedBack counts the requests that the host
	// refused with host.ErrFull. Spans counts the spans that the relay has accepted.
	Requests   uint64 `json:"requests"`
	PushedBack uint64 `json:"pushed_back"`
	Spans      uint64 `json:"spans"`
	// Lost counts the spans that this program has lost, by reason as in Relay.Lost. It is
	// omitted if the program has lost none.
	Lost map[string]uint64 `json:"lost,omitempty"`
}

// Metrics of a relay.
var (
	relayConnections = newMetric("gauge", "servetrace_relay_connections",
		"Open connections.", "protocol")
	relayRequests = newMetric("counter", "servetrace_relay_requests_total",
		"Answered requests, by gRPC code; for HTTP, too.", "protocol", "answer")
	relaySpans = newMetric("counter", "servetrace_relay_spans_total",
		"Spans that were taken.", "protocol")
	relayClosed = newMetric("counter", "servetrace_relay_closed_connections_total",
		"Connections that a limit closed: peer (another user), connections or bytes.", "reason")
	relayLost = newMetric("counter", "servetrace_relay_sender_lost_spans_total",
		"Spans that senders lost before the relay had them, as they report it: queue_full, shutdown, encode, refused by the relay, or other.", "reason")
)

// relayMetrics lists the families of a relay, in the order of
// docs/reference/metrics.md.
var relayMetrics = []*metric{relayConnections, relayRequests, relaySpans, relayClosed, relayLost}

// ShowRelay adds a relay to the status and the metrics. relay is called once per answer,
// possibly concurrently, and must not block. ShowRelay returns an error if it was called
// before.
func (s *Server) ShowRelay(relay func() Relay) error {
	s.additions.relay.Store(&relay)
	return s.Register(relayCollector(relay))
}

// relayCollector makes metrics of a relay's status.
type relayCollector func() Relay

// Describe implements prometheus.Collector.
func (relayCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range relayMetrics {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c relayCollector) Collect(to chan<- prometheus.Metric) {
	out, r := scrape{to}, c()
	for protocol, n := range r.Connections {
		out.put(relayConnections, float64(n), protocol)
	}
	for protocol, answers := range r.Requests {
		out.putEach(relayRequests, answers, protocol)
	}
	out.putEach(relaySpans, r.Spans)
	out.putEach(relayClosed, r.Closed)
	out.putEach(relayLost, r.Lost)
}
