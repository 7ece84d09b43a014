package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// maxOutcomes bounds the number of outcomes of an app with series of their own. Each
// outcome has over twenty lines in a scrape.
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

// Ingress holds the metrics of the requests for an app in a proxy.
type Ingress struct {
	outcomes *bounded[outcomeKey, outcome]
}

// Outcome describes the end of a request, as in the access log.
type Outcome struct {
	// Route is the route's pattern or prefix, never a path. Empty for none.
	Route string
	// Method is the verb, from a bounded set, or WS for a web socket. For gRPC it is
	// the full method of an existing service.
	Method string
	// Status is the HTTP status, 499 or a web socket's close code. Not used for gRPC.
	Status int
	// Code is the name of the gRPC code ("OK"). Empty for HTTP.
	Code string
	// Failed reports that the proxy span is an error, or would be if it recorded.
	Failed bool
	// Latency is the time of the request in the proxy.
	Latency time.Duration
	// Span is the proxy span's context, or zero if it does not record.
	Span trace.SpanContext
}

// outcomeKey holds the source of the label values.
type outcomeKey struct {
	route, method, code string
	status              int
	failed              bool
}

// outcome holds the series of a key.
type outcome struct {
	requests prometheus.Counter
	latency  *latency
	errors   []prometheus.Counter // nil if the request did not fail
}

// Ingress returns the metrics of requests for an app whose ingress is deployment. Both
// names are empty for requests without a route. Call it once per app.
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

// lastCloseCode is the last registered close code of a web socket. Higher codes, which
// a client can choose freely, share a label value.
const lastCloseCode = 1015

func (k outcomeKey) folded() outcomeKey {
	k.route, k.method = other, other
	return k
}

func (k outcomeKey) label() string {
	switch {
	case k.code != "":
		return k.code
	case k.status > lastCloseCode:
		return other
	}
	return strconv.Itoa(k.status)
}
