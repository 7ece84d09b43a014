package metrics

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Set is the metrics of one server. Nil counts nothing.
type Set struct {
	*vectors
	proxies [2]Proxy

	mu       sync.Mutex
	routers  []*Router
	replicas map[replicaKey]*Replica // those that have not stopped
	stopped  []*Replica              // whose counts are still there, oldest first
}

// Protocol is that of a proxy.
type Protocol int

// The protocols.
const (
	HTTP Protocol = iota
	GRPC
)

// New makes an empty set.
func New() *Set {
	s := &Set{vectors: newVectors(), replicas: map[replicaKey]*Replica{}}
	for p := range s.proxies {
		s.proxies[p].set, s.proxies[p].protocol = s, Protocol(p)
	}
	return s
}

var _ prometheus.Collector = (*Set)(nil)

// Describe implements prometheus.Collector.
func (s *Set) Describe(to chan<- *prometheus.Desc) {
	if s == nil {
		return
	}
	for _, f := range families {
		to <- s.descs[f]
	}
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(to chan<- prometheus.Metric) {
	if s == nil {
		return
	}
	for _, f := range families {
		s.collect(f, to)
	}
	out := func(f *family, value int, labels ...string) {
		m, err := prometheus.NewConstMetric(s.descs[f], prometheus.GaugeValue, float64(value), clean(labels)...)
		if err != nil { // only by a bug: labels are as many as they should be, and clean
			m = prometheus.NewInvalidMetric(s.descs[f], err)
		}
		to <- m
	}
	for i := range s.proxies {
		out(proxyOngoing[i], int(s.proxies[i].ongoing.Load()))
	}
	routers, replicas := s.parts()
	for _, r := range routers {
		r.gauges(out)
	}
	for _, r := range replicas {
		r.gauges(out)
	}
}

// emit puts a gauge into a scrape.
type emit func(f *family, value int, labels ...string)

// parts are those that have gauges. They are asked without the lock: a router is
// asked under its own.
func (s *Set) parts() ([]*Router, []*Replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	replicas := make([]*Replica, 0, len(s.replicas))
	for _, r := range s.replicas {
		replicas = append(replicas, r)
	}
	return slices.Clone(s.routers), replicas
}

// Proxy gives the metrics of the proxy for a protocol, of which a set has one.
func (s *Set) Proxy(p Protocol) *Proxy {
	if s == nil {
		return nil
	}
	return &s.proxies[p]
}

// Proxy is the metrics of one proxy. Nil counts nothing.
type Proxy struct {
	set      *Set
	protocol Protocol
	ongoing  atomic.Int64
}

// Began says that a request is in the proxy. Done follows.
func (p *Proxy) Began() {
	if p != nil {
		p.ongoing.Add(1)
	}
}

// Done says that a request has left the proxy.
func (p *Proxy) Done() {
	if p != nil {
		p.ongoing.Add(-1)
	}
}
