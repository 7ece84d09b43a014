package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// maxOutcomes is the largest number of outcomes of an app that have series of their own. It
// is not higher because each outcome has over twenty lines in a scrape.
const maxOutcomes = 1000

// Proxy holds the metrics of a proxy.
type Proxy struct {
	*families

	protocol Protocol
	ongoing  prometheus.Gauge
}

// Began counts a request that enters the proxy. Done must follow.
func (p *Proxy) Began() { p.ongoing.Inc() }

// Done counts a request that leaves the proxy.
func (p *Proxy) Done() { p.ongoing.Dec() }

// Ingress holds the metrics of a proxy for the requests of one app.
type Ingress struct {
	outcomes *bounded[outcomeKey, outcome]
}

// Outcome describes the end of a request, as in the access log.
type Outcome struct {
	// Route is the pattern or the prefix that the request matched, and never its path. Empty
	// if it matched none.
	Route string
	// Method is the HTTP verb as returned by semconv.Method, or WS for a web socket. For gRPC
	// it is the full method of an existing service.
	Method string
	// Status is the HTTP status, or the close code of a web socket. It is 499 if the client
	// left. Not used for gRPC.
	Status int
	// Code is the name of the gRPC status code, such as "OK". Empty for HTTP.
	Code string
	// Failed reports that the request counts as an error, by the rule for the status of the
	// proxy span.
	Failed bool
	// Latency is the time of the request in the proxy.
	Latency time.Duration
	// Span is the proxy span's context, or zero if it does not record.
	Span trace.SpanContext
}

// outcomeKey has the fields of an Outcome that determine its series.
type outcomeKey struct {
	route, method, code string
	status              int
	failed              bool
}

// outcome holds the series of an outcomeKey.
type outcome struct {
	requests prometheus.Counter
	latency  *latency
	errors   []prometheus.Counter // nil if the request did not fail
}

// Ingress returns the metrics of the requests of an app. deployment is its ingress. Both
// names are empty for requests that match no route. It must be called once for each app.
func (p *Proxy) Ingress(app, deployment string) *Ingress {
	build := func(k outcomeKey) outcome {
		status := k.label()
		o := outcome{
			requests: p.proxyRequests[p.protocol].WithLabelValues(app, k.route, k.method, status),
			latency:  p.proxyLatency[p.protocol].with(app, k.route, k.method, status),
		}
		if k.failed {
			o.errors = append(o.errors, p.proxyErrors[p.protocol].WithLabelValues(app, k.route, k.method, status))
		}
		if k.failed && deployment != "" {
			o.errors = append(o.errors, p.deploymentErrors[p.protocol].WithLabelValues(app, deployment, k.route, k.method, status))
		}
		return o
	}
	return &Ingress{newBounded(maxOutcomes, outcomeKey.folded, build)}
}

// Done counts a request that has ended.
func (i *Ingress) Done(o Outcome) {
	k := outcomeKey{route: o.Route, method: o.Method, code: o.Code, status: min(o.Status, lastCloseCode+1), failed: o.Failed}
	series := i.outcomes.get(k)
	series.requests.Inc()
	series.latency.observe(o.Latency, o.Span)
	for _, errors := range series.errors {
		errors.Inc()
	}
}

// lastCloseCode is the highest registered close code of a web socket. All higher codes share
// a label value, because a client can choose them freely.
const lastCloseCode = 1015

// folded returns the key that k shares with other keys if there are too many outcomes.
func (k outcomeKey) folded() outcomeKey {
	k.route, k.method = other, other
	return k
}

// label returns the value of the labels for status and error code.
func (k outcomeKey) label() string {
	switch {
	case k.code != "":
		return k.code
	case k.status > lastCloseCode:
		return other
	}
	return strconv.Itoa(k.status)
}
