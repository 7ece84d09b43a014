package metrics

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// mostOutcomes bounds the series of one app in a proxy. Each of them is more
// than twenty lines in a scrape.
const mostOutcomes = 1000

// Ingress is the metrics of the requests for one app in one proxy. Nil counts
// nothing.
type Ingress struct{ outcomes *table[outcomeKey, *outcome] }

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
	// Ended is when it ended, by a clock of the caller's; not read without Span.
	Ended time.Duration
	// Span is the proxy span's context; zero where it does not record.
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
	latency          *timing
	errors           *tally // nil for those that did not fail
	deploymentErrors *tally // nil for those, and without a deployment
}

// Ingress gives the metrics of an app whose requests deployment takes; both empty
// for requests that matched no route. Ask once for each app.
func (p *Proxy) Ingress(app, deployment string) *Ingress {
	if p == nil {
		return nil
	}
	v, protocol := p.set.vectors, p.protocol
	build := func(k outcomeKey) *outcome {
		status := k.label()
		o := &outcome{
			latency: v.partOf(proxyLatency[protocol], app, k.route, k.method, status),
		}
		v.counts(proxyRequests[protocol], []counted{o.latency}, app, k.route, k.method, status)
		if k.failed {
			o.errors = v.counter(proxyErrors[protocol], app, k.route, k.method, status)
			if deployment != "" {
				o.deploymentErrors = v.counter(deploymentErrors[protocol], app, deployment, k.route, k.method, status)
			}
		}
		return o
	}
	return &Ingress{outcomes: newTable(mostOutcomes, outcomeKey.folded, build)}
}

// Done counts a request that has ended.
func (i *Ingress) Done(o Outcome) {
	if i == nil {
		return
	}
	k := outcomeKey{route: o.Route, method: o.Method, code: o.Code, status: o.Status, failed: o.Failed}
	if k.status > lastCloseCode {
		k.status = lastCloseCode + 1
	}
	s := i.outcomes.get(k)
	s.latency.observeAt(o.Latency, o.Ended, o.Span)
	if s.errors != nil {
		s.errors.inc()
	}
	if s.deploymentErrors != nil {
		s.deploymentErrors.inc()
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
