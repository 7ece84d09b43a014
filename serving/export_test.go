package serving

import (
	"context"
	"net"
	"net/http"

	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// The tests of the package see a server as its users do, except for the names below.

// Counter returns the count of requests and handlers.
func (s *Server) Counter() *inflight.Counter { return s.shared.Counter }

// Effective returns the settings with their defaults.
func (s *Server) Effective() Config { return s.cfg }

// ServeOn serves the connections of l in place of an address.
func (s *Server) ServeOn(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runLocked(l)
}

// ServeMore serves the connections of l by HTTP, too.
func (s *Server) ServeMore(l net.Listener) { s.http.Serve(l, func(error) {}) }

// Cut cuts off all requests.
func (s *Server) Cut(why error) { s.cut(why) }

// StartReplicas starts the replicas of a server that does not listen.
func (s *Server) StartReplicas() { s.deployments.start() }

// StopReplicas stops them.
func (s *Server) StopReplicas(ctx context.Context) error { return s.deployments.stop(ctx) }

// Built returns the deployment in its server.
func (d *Deployment) Built() *router.Deployment { return d.built.Load() }

// Handle sets the handler, before New.
func (d *Deployment) Handle(h http.Handler) { d.handler = h }

// Name returns the name.
func (d *Deployment) Name() string { return d.name }

// WithDefaults returns c with the defaults in place of zeros.
func (c Config) WithDefaults() Config { return c.withDefaults() }

// Unexported functions.
var (
	ValidPrefix   = validPrefix
	NewUserConfig = newUserConfig
)
