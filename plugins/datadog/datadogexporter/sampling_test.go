package datadogexporter

import (
	"math"
	"slices"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// delivered sends a batch to a plugin with this exporter, and returns how many
// spans the host would count as delivered and as filtered.
func delivered(t *testing.T, p *plugintest.Plugin, b *pluginsdk.Batch) (delivered, filtered int) {
	t.Helper()
	resources, err := b.Decode()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := p.Export(t.Context(), request(resources))
	if err != nil || !answer.Delivered() {
		t.Fatalf("answer is %v, %v", answer, err)
	}
	filtered = answer.Filtered[filterName]
	return b.Len() - filtered - answer.Rejected, filtered
}

// hosted is a plugin with this exporter.
func hosted(t *testing.T, a *fakeAgent, variables ...string) *plugintest.Plugin {
	t.Helper()
	variables = append(variables, "DD_TRACE_AGENT_URL="+a.URL)
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	return plugintest.Run(t, spec, plugintest.WithEnv(variables...))
}

// TestRulesAndRates: spans that Datadog's rules and rates omit are counted as filtered, the
// rest arrives with the rule's marks, and statistics count all.
func TestRulesAndRates(t *testing.T) {
	const n = 1000
	for name, c := range map[string]struct {
		variables []string
		least     int // traces kept
		most      int
		priority  float64
		maker     string
	}{
		"all":        {nil, n, n, 1, "-1"},
		"rate":       {[]string{"DD_TRACE_SAMPLE_RATE=0.25", "DD_TRACE_RATE_LIMIT=100000"}, 150, 350, 2, "-3"},
		"rule":       {[]string{`DD_TRACE_SAMPLING_RULES=[{"service":"orders","sample_rate":0.5}]`, "DD_TRACE_RATE_LIMIT=100000"}, 400, 600, 2, "-3"},
		"other rule": {[]string{`DD_TRACE_SAMPLING_RULES=[{"service":"other","sample_rate":0}]`}, n, n, 1, "-1"},
		"limit":      {[]string{"DD_TRACE_SAMPLE_RATE=1", "DD_TRACE_RATE_LIMIT=10"}, 10, 60, 2, "-3"},
		"nothing":    {[]string{"DD_TRACE_SAMPLE_RATE=0"}, 0, 0, 0, ""},
	} {
		for _, agent := range []string{infoV04, infoOld} { // infoOld gets all spans, and drops some by itself
			t.Run(name, func(t *testing.T) {
				a := startAgent(t)
				a.info = agent
				p := hosted(t, a, c.variables...)
				got, filtered := delivered(t, p, requests(0, n))
				if got+filtered != 2*n || got < 2*c.least || got > 2*c.most {
					t.Errorf("%d spans are delivered, %d filtered, want %d to %d delivered of %d", got, filtered, 2*c.least, 2*c.most, 2*n)
				}
				kept := 0
				for _, s := range a.taken() {
					if s.priority <= 0 {
						continue
					}
					kept++
					if s.priority != c.priority || s.parent == 0 && s.meta["_dd.p.dm"] != c.maker {
						t.Fatalf("a kept span has priority %v and decision maker %q, want %v and %q", s.priority, s.meta["_dd.p.dm"], c.priority, c.maker)
					}
				}
				if kept != got || agent == infoV04 && len(a.taken()) != got || agent == infoOld && len(a.taken()) != 2*n {
					t.Errorf("the agent has %d spans, %d with a priority above zero; %d are delivered", len(a.taken()), kept, got)
				}
				if err := p.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				want := uint64(n)
				if agent == infoOld {
					want = 0
				}
				if hits := a.hits("server.request"); hits != want {
					t.Errorf("statistics count %d requests, want %d", hits, want)
				}
			})
		}
	}
}

// TestSingleSpans: a rule for single spans keeps them of traces that are not kept.
func TestSingleSpans(t *testing.T) {
	a := startAgent(t)
	p := hosted(t, a, "DD_TRACE_SAMPLE_RATE=0", `DD_SPAN_SAMPLING_RULES=[{"name":"internal","sample_rate":1.0}]`)
	got, filtered := delivered(t, p, requests(0, 20))
	if got != 20 || filtered != 20 || len(a.taken()) != 20 || a.taken()[0].name != "internal" {
		t.Errorf("%d spans are delivered, %d filtered, the agent has %d", got, filtered, len(a.taken()))
	}
}

// TestRatesOfTheAgent: the tracer samples by the rates in the agent's answers.
func TestRatesOfTheAgent(t *testing.T) {
	a := startAgent(t)
	a.rates = `{"rate_by_service":{"service:,env:":0.1}}`
	p := hosted(t, a)
	if got, _ := delivered(t, p, requests(0, 10)); got != 20 {
		t.Errorf("before the agent gave a rate, %d spans are delivered, want 20", got)
	}
	delivered(t, p, requests(100, 10)) // its payload brings the rate
	got, filtered := delivered(t, p, requests(1000, 1000))
	if got+filtered != 2000 || got < 100 || got > 400 {
		t.Errorf("%d spans are delivered, %d filtered, want some 200 delivered", got, filtered)
	}
}

// TestFiltersOfTheAgent: resources that the agent ignores are left out by the
// tracer, and counted.
func TestFiltersOfTheAgent(t *testing.T) {
	a := startAgent(t)
	p := hosted(t, a)
	got, filtered := delivered(t, p, requests(0, 3, func(s *tracepb.Span) { s.Name = "GET /ignored" }))
	if got != 0 || filtered != 6 || len(a.taken()) != 0 {
		t.Errorf("%d spans are delivered, %d filtered, the agent has %d, want 0, 6, 0", got, filtered, len(a.taken()))
	}
}

// TestOneDecisionPerTrace: spans of a trace that come in another batch have the
// decision of the first.
func TestOneDecisionPerTrace(t *testing.T) {
	a := startAgent(t)
	p := hosted(t, a, `DD_TRACE_SAMPLING_RULES=[{"resource":"child*","sample_rate":0},{"sample_rate":1}]`)
	const n = 50
	roots, children := requests(0, n), requests(0, n)
	for s := range roots.Spans() {
		if s.ParentID().IsValid() {
			s.Drop()
		}
	}
	for s := range children.Spans() {
		if !s.ParentID().IsValid() {
			s.Drop()
		}
	}
	for _, b := range []*pluginsdk.Batch{pluginsdk.NewBatch(roots.Bytes()), pluginsdk.NewBatch(children.Bytes())} {
		if got, filtered := delivered(t, p, b); got != n || filtered != 0 {
			t.Errorf("%d spans are delivered, %d filtered, want %d and none", got, filtered, n)
		}
	}
	// The other way round the rule for children decides.
	if got, filtered := delivered(t, p, pluginsdk.NewBatch(slices.Clip(onlyChildren(requests(1000, n))))); got != 0 || filtered != n {
		t.Errorf("%d spans are delivered, %d filtered, want none and %d", got, filtered, n)
	}
}

func onlyChildren(b *pluginsdk.Batch) []byte {
	for s := range b.Spans() {
		if !s.ParentID().IsValid() {
			s.Drop()
		}
	}
	return b.Bytes()
}

// TestInheritedDecision: the decision that a Datadog tracer before this service
// has made, and sent in tracestate, counts.
func TestInheritedDecision(t *testing.T) {
	const remote = 0x300 // OTLP's flags: the parent is known to be remote
	a := startAgent(t)
	p := hosted(t, a, "DD_TRACE_SAMPLE_RATE=0")
	for state, want := range map[string]float64{"dd=s:2;t.dm:-4": 2, "dd=s:1": 1, "": 1} {
		before := len(a.taken())
		got, _ := delivered(t, p, batch(nil, span(byte(len(state)+1), 1, 9, now, func(s *tracepb.Span) {
			s.Flags, s.TraceState = remote|1, state
		})))
		all := a.taken()
		if got != 1 || len(all) != before+1 || all[before].priority != want {
			t.Fatalf("tracestate %q: %d spans are delivered, want one of priority %v: %+v", state, got, want, all[before:])
		}
	}
	if dm := a.taken(); !slices.ContainsFunc(dm, func(s got) bool { return s.meta["_dd.p.dm"] == "-4" }) {
		t.Error("no span has the decision maker of the tracer before")
	}
}

// TestSampledByTheHost: below a ratio of 1 the agent computes statistics, and each
// span has the weight that tracestate says.
func TestSampledByTheHost(t *testing.T) {
	a := startAgent(t)
	e := openAt(t, 0.1, a)
	if err := export(t, e, requests(0, 10, func(s *tracepb.Span) { s.TraceState = "ot=th:e6666666666668" })); err != nil {
		t.Fatal(err)
	}
	all := a.taken()
	if len(all) != 20 {
		t.Fatalf("the agent has %d spans, want 20", len(all))
	}
	for _, s := range all {
		if math.Abs(s.metrics[sampleRate]-0.1) > 1e-9 {
			t.Fatalf("a span has %s=%v, want 0.1", sampleRate, s.metrics[sampleRate])
		}
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if len(a.stats) != 0 || a.heads[0].Get("Datadog-Client-Computed-Stats") != "" {
		t.Errorf("the plugin computes statistics: %d payloads, header %q", len(a.stats), a.heads[0].Get("Datadog-Client-Computed-Stats"))
	}
}

func TestSampledAt(t *testing.T) {
	for member, want := range map[string]float64{
		"th:8": 0.5, "rv:12345678901234;th:c": 0.25, "th:0": 1, "th:ffffffffffffff": 1.0 / (1 << 56),
	} {
		if got, ok := sampledAt(member); !ok || math.Abs(got-want) > 1e-15 {
			t.Errorf("%q: %v, %v, want %v", member, got, ok, want)
		}
	}
	for _, member := range []string{"", "th:", "th:x", "th:000000000000000", "rv:8"} {
		if got, ok := sampledAt(member); ok {
			t.Errorf("%q: %v, want none", member, got)
		}
	}
}

// TestStatisticsOfOneEnvironment: dd-trace-go's have one, so the agent computes
// them where there are several.
func TestStatisticsOfOneEnvironment(t *testing.T) {
	a := startAgent(t)
	e := open(t, a)
	for i, env := range []string{"prod", "prod", "staging", "prod"} {
		b := batch(map[string]any{"service.name": "orders", "deployment.environment.name": env}, span(byte(i+1), byte(i+1), 0, now))
		if err := export(t, e, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for i, s := range a.taken() {
		computed := a.heads[i].Get("Datadog-Client-Computed-Stats") == "yes"
		if computed != (i < 2) || s.meta["env"] == "" {
			t.Errorf("payload %d of %s: statistics by the plugin: %v", i, s.meta["env"], computed)
		}
	}
	if hits := a.hits("internal"); hits != 2 {
		t.Errorf("statistics count %d spans, want 2", hits)
	}
}
