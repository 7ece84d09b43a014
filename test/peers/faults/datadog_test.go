package faults

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/peers/peer"
	"github.com/servetrace/servetrace/test/testplugin"
)

var agentRefusals = []refusal{
	{name: "429", script: script{http: says(429, "slow down")}, code: "UNAVAILABLE", reason: "slow down"},
	{name: "429 retry after", script: script{http: says(429, "quota is used up", "Retry-After", "1")}, code: "UNAVAILABLE", reason: "quota is used up", held: true},
	{name: "503", script: script{http: says(503, "we restart")}, code: "UNAVAILABLE", reason: "we restart"},
	{name: "503 retry at", script: script{http: inTwoSeconds}, code: "UNAVAILABLE", reason: "we restart", held: true},
	{name: "500", script: script{http: says(500, "nil pointer")}, code: "UNAVAILABLE", reason: "nil pointer"},
	{name: "400", script: script{http: says(400, "no msgpack")}, code: "INVALID_ARGUMENT", reason: "no msgpack", final: true},
	{name: "404", script: script{http: says(404, "no such path")}, code: "INVALID_ARGUMENT", reason: "is it a Datadog agent?", final: true},
	{name: "413", script: script{http: says(413, "too large")}, code: "PARTIAL_SUCCESS", reason: "refuses a payload with a single trace as too large", final: true},
	{name: "hangs", script: script{http: hangs}, code: "DEADLINE_EXCEEDED", reason: "does not answer in time"},
	{name: "answers late", script: script{http: hangs, unsaid: true}, code: "DEADLINE_EXCEEDED", reason: "does not answer in time", twice: true},
	{
		name: "cuts the connection", code: "UNAVAILABLE", reason: "does not answer", twice: true,
		script: script{http: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, unsaid: true},
	},
}

// datadog is bin/plugins/datadog, and the variables for one agent.
func datadog(t *testing.T, url string) (list string, env map[string]string) {
	t.Helper()
	return "datadog=" + peer.Plugin(t, "datadog"), map[string]string{"DD_TRACE_AGENT_URL": url, host.EnvExportTimeout: "3s"}
}

func TestAnswersOfAnAgent(t *testing.T) {
	for _, r := range agentRefusals {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			b := startBackend(t)
			list, env := datadog(t, b.http)
			r.test(t, "datadog", b, startService(t, list, env))
		})
	}
}

// atAgent are the ids of the spans that an agent has sent on.
func atAgent(spans []peer.AgentSpan) map[string]int {
	all := map[string]int{}
	for _, span := range spans {
		all[fmt.Sprintf("%016x", span.SpanID)]++
	}
	return all
}

// TestAgentIsAway: the real core of the agent, behind a network that breaks.
func TestAgentIsAway(t *testing.T) {
	for _, o := range []outage{
		{name: "down", begin: func(_ *peer.Collector, p *peer.ToxicProxy) { p.Disable() }, code: "UNAVAILABLE", reason: "no Datadog agent listens at"},
		{name: "reset", begin: toxic("reset_peer", peer.Upstream, map[string]any{"timeout": 0}), code: "UNAVAILABLE", reason: "does not answer"},
		{name: "no answer gets through", begin: toxic("timeout", peer.Downstream, map[string]any{"timeout": 0}), code: "DEADLINE_EXCEEDED", reason: "does not answer in time"},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			agent := peer.StartDatadogAgent(t)
			network := peer.Toxic(t, agent.URL()[len("http://"):])
			list, env := datadog(t, network.HTTP())
			s := startService(t, list, env)
			stop := s.load()
			defer func() { stop() }()
			s.delivers("datadog")
			o.begin(nil, network)
			s.await("datadog", "calls that fail as "+o.code, func(p admin.Plugin) bool { return p.Calls.Ended[o.code] >= 3 })
			if o.name == "down" {
				network.Enable()
			}
			network.Clear()
			s.delivers("datadog")
			stop()
			stop = func() {}
			s.settled("datadog")
			p := s.plugin("datadog")
			if lost := p.Spans.Lost(); lost > 0 {
				t.Errorf("%d spans are lost: %+v", lost, p.Spans)
			}
			var has map[string]int
			testplugin.WaitFor(t, "all different spans at the agent", func() bool {
				has = atAgent(agent.Spans())
				return len(has) >= int(p.Spans.Delivered)
			})
			s.wantAt("datadog", has, o.name != "down")
			s.wantReason("datadog", o.code, o.reason)
		})
	}
}
