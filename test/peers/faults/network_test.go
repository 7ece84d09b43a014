package faults

import (
	"fmt"
	"testing"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/peers/peer"
	"github.com/servetrace/servetrace/test/testplugin"
)

// outage is a broken network between the plugin and a real Collector.
type outage struct {
	name string
	// begin breaks it, end mends it.
	begin, end func(c *peer.Collector, p *peer.ToxicProxy)
	// code and reason are shown to operators. Empty: it is slow only.
	code, reason string
	// sure: spans that were not acknowledged have not arrived.
	sure bool
}

func toxic(kind, stream string, attributes map[string]any) func(*peer.Collector, *peer.ToxicProxy) {
	return func(_ *peer.Collector, p *peer.ToxicProxy) { p.Add(kind, stream, attributes) }
}

func cleared(_ *peer.Collector, p *peer.ToxicProxy) { p.Clear() }

var outages = []outage{
	{
		name: "nobody listens", code: "UNAVAILABLE", reason: "has no listener",
		begin: func(_ *peer.Collector, p *peer.ToxicProxy) { p.Disable() },
		end:   func(_ *peer.Collector, p *peer.ToxicProxy) { p.Enable() },
	},
	{
		name: "the Collector is restarted", code: "UNAVAILABLE", reason: "cut the connection before it answered",
		begin: func(c *peer.Collector, _ *peer.ToxicProxy) { c.Stop() },
		end:   func(c *peer.Collector, _ *peer.ToxicProxy) { c.Restart() },
	},
	{name: "connections are reset", begin: toxic("reset_peer", peer.Upstream, map[string]any{"timeout": 0}), end: cleared, code: "UNAVAILABLE", reason: "cut the connection before it answered"},
	{name: "answers are cut", begin: toxic("limit_data", peer.Downstream, map[string]any{"bytes": 10}), end: cleared, code: "UNAVAILABLE", reason: "connection"},
	{name: "requests are cut", begin: toxic("limit_data", peer.Upstream, map[string]any{"bytes": 100}), end: cleared, code: "UNAVAILABLE", reason: "cut the connection before it answered", sure: true},
	{name: "nothing gets through", begin: toxic("timeout", peer.Upstream, map[string]any{"timeout": 0}), end: cleared, code: "DEADLINE_EXCEEDED", reason: "no answer from"},
	{name: "no answer gets through", begin: toxic("timeout", peer.Downstream, map[string]any{"timeout": 0}), end: cleared, code: "DEADLINE_EXCEEDED", reason: "no answer from"},
	{name: "far away", begin: toxic("latency", peer.Downstream, map[string]any{"latency": 700, "jitter": 200}), end: cleared},
	{name: "thin", begin: toxic("bandwidth", peer.Upstream, map[string]any{"rate": 200}), end: cleared},
	{name: "in pieces", begin: toxic("slicer", peer.Upstream, map[string]any{"average_size": 200, "size_variation": 100, "delay": 10}), end: cleared},
}

func TestBrokenNetworks(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		for _, o := range outages {
			t.Run(protocol+" "+o.name, func(t *testing.T) { t.Parallel(); o.test(t, protocol) })
		}
	}
}

// TestCollectorWithoutMemory: its memory_limiter refuses, and it comes back with
// more.
func TestCollectorWithoutMemory(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			collector := peer.StartCollector(t, peer.WithoutMemory())
			endpoint := collector.HTTP()
			if protocol == "grpc" {
				endpoint = collector.GRPC()
			}
			list, env := otlp(t, protocol, endpoint)
			s := startService(t, list, env)
			for range 100 {
				s.request()
			}
			s.await("otlp", "refusals", func(p admin.Plugin) bool { return p.Calls.Ended["UNAVAILABLE"] >= 3 })
			if p := s.plugin("otlp"); p.Spans.Delivered > 0 || p.Spans.Lost() > 0 {
				t.Errorf("%+v, want all to wait", p.Spans)
			}
			collector.Stop()
			collector.Restart()
			s.delivers("otlp")
			s.settled("otlp")
			s.wantAt("otlp", ids(collector.WaitSpans(400)), false)
			s.wantReason("otlp", "UNAVAILABLE", "data refused due to high memory usage")
		})
	}
}

// atCollector waits for so many different spans, of which some may have come
// twice, and gives their ids.
func atCollector(t *testing.T, c *peer.Collector, different int) (has map[string]int) {
	t.Helper()
	testplugin.WaitFor(t, fmt.Sprintf("%d different spans at the Collector", different), func() bool {
		has = ids(c.Spans())
		return len(has) >= different
	})
	return has
}

func (o outage) test(t *testing.T, protocol string) {
	collector := peer.StartCollector(t)
	upstream := collector.HTTP()
	if protocol == "grpc" {
		upstream = collector.GRPC()
	}
	network := peer.Toxic(t, upstream[len("http://"):])
	list, env := otlp(t, protocol, network.HTTP(), host.EnvExportTimeout, "3s")
	s := startService(t, list, env)
	stop := s.load()
	defer func() { stop() }()
	s.delivers("otlp")
	o.begin(collector, network)
	if o.code == "" {
		for range 5 {
			s.delivers("otlp")
		}
	} else {
		s.await("otlp", "calls that fail as "+o.code, func(p admin.Plugin) bool { return p.Calls.Ended[o.code] >= 3 })
	}
	o.end(collector, network)
	s.delivers("otlp")
	stop()
	stop = func() {}
	s.settled("otlp")
	p := s.plugin("otlp")
	if lost := p.Spans.Lost(); lost > 0 {
		t.Errorf("%d spans are lost: %+v", lost, p.Spans)
	}
	s.wantAt("otlp", atCollector(t, collector, int(p.Spans.Delivered)), o.code != "" && !o.sure)
	if o.code != "" {
		s.wantReason("otlp", o.code, o.reason)
	}
}
