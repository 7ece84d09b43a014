package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// mostRoutes bounds the routes of one router or replica.
const mostRoutes = 256

func otherRoute(string) string { return other }

// Router is the metrics of one deployment's router.
type Router struct {
	load            func() (queued, ongoing int)
	queued, ongoing prometheus.Gauge
	waits           *latency // of requests that a replica took

	requests, handles *bounded[string, prometheus.Counter] // by route
}

// Router returns the metrics of a deployment's router. Ask once for each. load
// returns how many requests wait, and how many replicas have; it is called for each
// scrape.
func (s *Set) Router(app, deployment string, load func() (queued, ongoing int)) *Router {
	byRoute := func(v *prometheus.CounterVec) *bounded[string, prometheus.Counter] {
		return newBounded(mostRoutes, otherRoute, func(route string) prometheus.Counter {
			return v.WithLabelValues(app, deployment, route)
		})
	}
	r := &Router{
		load:     load,
		queued:   s.routerQueued.WithLabelValues(app, deployment),
		ongoing:  s.routerOngoing.WithLabelValues(app, deployment),
		waits:    s.routerWait.with(app, deployment),
		requests: byRoute(s.routerRequests),
		handles:  byRoute(s.handleRequests),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routers = append(s.routers, r)
	return r
}

// Choice is how a router's choice ended.
type Choice struct {
	// Route is that of the request.
	Route string
	// ByHandle says that it was a call by handle.
	ByHandle bool
	// Assigned says that a replica took it.
	Assigned bool
	// Wait is how long it waited for one.
	Wait time.Duration
	// Span is the router span's context; zero if it does not record.
	Span trace.SpanContext
}

// Done counts a choice that has ended.
func (r *Router) Done(c Choice) {
	r.requests.get(c.Route).Inc()
	if c.ByHandle {
		r.handles.get(c.Route).Inc()
	}
	if c.Assigned {
		r.waits.observe(c.Wait, c.Span)
	}
}

// refresh sets the gauges to what the router says now.
func (r *Router) refresh() {
	queued, ongoing := r.load()
	r.queued.Set(float64(queued))
	r.ongoing.Set(float64(ongoing))
}
