package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// mostOutcomes bounds the series of one app in a proxy. Each of them is more
// than twenty lines in a scrape.
const mostOutcomes = 1000

// Proxy is the metrics of one proxy.
type Proxy struct {
	*families

	protocol Protocol
	ongoing  prometheus.Gauge
}

// Began counts a request into the proxy. Done must follow.
func (p *Proxy) Began() { p.ongoing.Inc() }

// Done counts a request out of the proxy.
func (p *Proxy) Done() { p.ongoing.Dec() }

// Ingress is the metrics of the requests for one app in one proxy.
type Ingress struct {
	outcomes *bounded[outcomeKey, outcome]
}

// Outcome is how a request ended, as the access log tells it.
type Outcome struct {
	// Route is the route's pattern or prefix, never a path; empty for none.
	Route string
	// Method is the verb, one of a few; WS for a web socket; for gRPC the full
	// method of a service that is there.
	Method string
	// Status is the HTTP status, 499 or a web socket's close code. Not read for
	// gRPC.
	Status int
	// Code is the name of the gRPC code ("OK"); empty for HTTP.
	Code string
	// Failed says that the proxy span is an error, or would be.
	Failed bool
	// Latency is how long the request was in the proxy.
	Latency time.Duration
	// Span is the proxy span's context; zero if it does not record.
	Span trace.SpanContext
}

// outcomeKey is what the labels are made of.
type outcomeKey struct {
	route, method, code string
	status              int
	failed              bool
}

// outcome is the series of one key.
type outcome struct {
	requests prometheus.Counter
	latency  *latency
	errors   []prometheus.Counter // nil if the request did not fail
}

// Ingress returns the metrics of an app whose requests deployment takes; both empty
// for requests that matched no route. Ask once for each app.
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
	return &Ingress{newBounded(mostOutcomes, outcomeKey.folded, build)}
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

// lastCloseCode is the last close code of a web socket that is registered and
// no application's own. Those above, of which a client can send any, are one.
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
