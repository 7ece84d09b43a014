package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// maxRoutes is the largest number of routes of a router or replica that have series of their
// own.
const maxRoutes = 256

func otherRoute(string) string { return other }

// Router holds the metrics of a deployment's router.
type Router struct {
	load            func() (queued, ongoing int) // argument of Set.Router
	queued, ongoing prometheus.Gauge             // the results of load
	waits           *latency                     // times that assigned requests have waited for a replica

	requests, handles *bounded[string, prometheus.Counter] // the key is the route
}

// Router returns the metrics of a deployment's router. It must be called once for each
// deployment. load must return the number of requests that wait for a replica, and the
// number of requests that replicas run. Each scrape calls it.
func (s *Set) Router(app, deployment string, load func() (queued, ongoing int)) *Router {
	byRoute := func(v *prometheus.CounterVec) *bounded[string, prometheus.Counter] {
		return newBounded(maxRoutes, otherRoute, func(route string) prometheus.Counter {
			return v.WithLabelValues(app, deployment, route)
		})
	}
	r := &Router{
		load:     load,
		queued:   s.families.routerQueued.WithLabelValues(app, deployment),
		ongoing:  s.families.routerOngoing.WithLabelValues(app, deployment),
		waits:    s.families.routerWait.with(app, deployment),
		requests: byRoute(s.families.routerRequests),
		handles:  byRoute(s.families.handleRequests),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routers = append(s.routers, r)
	return r
}

// Choice describes the end of a router's work for a request.
type Choice struct {
	// Route is the route of the request.
	Route string
	// ByHandle reports that the request is a call by handle.
	ByHandle bool
	// Assigned reports that the request got a slot of a replica.
	Assigned bool
	// Wait is the time that the request waited for a replica.
	Wait time.Duration
	// Span is the router span's context, or zero if it does not record.
	Span trace.SpanContext
}

// Done counts a request for which the router has chosen a replica or given up.
func (r *Router) Done(c Choice) {
	r.requests.get(c.Route).Inc()
	if c.ByHandle {
		r.handles.get(c.Route).Inc()
	}
	if c.Assigned {
		r.waits.observe(c.Wait, c.Span)
	}
}

// refresh sets the gauges to the router's current load.
func (r *Router) refresh() {
	queued, ongoing := r.load()
	r.queued.Set(float64(queued))
	r.ongoing.Set(float64(ongoing))
}
