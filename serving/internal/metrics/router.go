package metrics

import (
	"time"

	"go.opentelemetry.io/otel/trace"
)

// mostRoutes bounds the routes of one router or replica.
const mostRoutes = 256

func otherRoute(string) string { return other }

// Router is the metrics of one deployment's router. Nil counts nothing.
type Router struct {
	app, deployment string
	load            func() (queued, ongoing int)
	requests        *table[string, *choices] // by route
	handles         *table[string, *choices] // the same for calls by handle
}

// choices are those for one route.
type choices struct {
	waits *timing // of those that a replica took
	lost  *tally  // of the others
}

// Router gives the metrics of a deployment's router. Ask once for each. load
// says how many requests wait, and how many replicas have; it is called for each
// scrape.
func (s *Set) Router(app, deployment string, load func() (queued, ongoing int)) *Router {
	if s == nil {
		return nil
	}
	byRoute := func(of ...*family) *table[string, *choices] {
		return newTable(mostRoutes, otherRoute, func(route string) *choices {
			c := &choices{waits: s.partOf(routerWait, app, deployment), lost: new(tally)}
			for _, f := range of {
				s.counts(f, []counted{c.waits, c.lost}, app, deployment, route)
			}
			return c
		})
	}
	s.histogram(routerWait, app, deployment) // is there from the start
	r := &Router{
		app: app, deployment: deployment, load: load,
		requests: byRoute(routerRequests), handles: byRoute(routerRequests, handleRequests),
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
	// Ended is when it ended, by a clock of the caller's; not read without Span.
	Ended time.Duration
	// Span is the router span's context; zero where it does not record.
	Span trace.SpanContext
}

// Done counts a choice that has ended.
func (r *Router) Done(c Choice) {
	if r == nil {
		return
	}
	by := r.requests
	if c.ByHandle {
		by = r.handles
	}
	choices := by.get(c.Route)
	if c.Assigned {
		choices.waits.observeAt(c.Wait, c.Ended, c.Span)
	} else {
		choices.lost.inc()
	}
}

func (r *Router) gauges(out emit) {
	queued, ongoing := r.load()
	out(routerQueued, queued, r.app, r.deployment)
	out(routerOngoing, ongoing, r.app, r.deployment)
}
