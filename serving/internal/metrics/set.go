package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Set holds the metrics of a server.
type Set struct {
	families *families
	proxies  [2]Proxy // the index is the Protocol

	mu      sync.Mutex
	routers []*Router
	stopped []*Replica // the stopped replicas that still have counters, oldest first
}

var _ prometheus.Collector = (*Set)(nil)

// Protocol is the protocol of a proxy.
type Protocol int

// The protocols of a proxy.
const (
	HTTP Protocol = iota
	GRPC
)

// New returns an empty set.
func New() *Set {
	s := &Set{families: newFamilies()}
	for p := range s.proxies {
		s.proxies[p] = Proxy{families: s.families, protocol: Protocol(p), ongoing: s.families.proxyOngoing[p].WithLabelValues()}
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *Set) Describe(to chan<- *prometheus.Desc) {
	for _, v := range s.families.vectors.all {
		v.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	routers := slices.Clone(s.routers) // refresh runs without mu, because load takes other locks
	s.mu.Unlock()
	for _, r := range routers {
		r.refresh()
	}
	for _, v := range s.families.vectors.all {
		v.Collect(to)
	}
}

// Proxy returns the metrics of the proxy for the protocol.
func (s *Set) Proxy(p Protocol) *Proxy { return &s.proxies[p] }

// maxStopped is the number of stopped replicas that still have counters. The counters are
// kept so that a scrape gets their final values.
const maxStopped = 100

// retire deletes the gauges of a replica that has stopped. If counters of more than
// maxStopped replicas are kept, it deletes the counters of the replica that stopped first.
func (s *Set) retire(r *Replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.forget(s.families.vectors.replicaGauges)
	s.stopped = append(s.stopped, r)
	if len(s.stopped) > maxStopped {
		s.stopped[0].forget(s.families.vectors.replicaCounts)
		s.stopped = slices.Delete(s.stopped, 0, 1)
	}
}
