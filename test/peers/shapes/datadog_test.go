package shapes

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/test/peers/peer"
)

// TestDatadogPlugin compares the spans that a Datadog agent sends on if they came by the
// plugin, in each of its modes, with the same spans from the SDK's own exporter to the
// agent's OTLP receiver.
func TestDatadogPlugin(t *testing.T) {
	all := draw(4, count(2000))
	spans := slices.DeleteFunc(slices.Clone(all), hasZeroLowHalf)
	reference := peer.StartDatadogAgent(t)
	// Smaller batches than usual, because of the receiver's 4 MiB.
	throughSDK(t, spans, reference.OTLPHTTP(), sdktrace.WithMaxExportBatchSize(64))
	reference.Stop()
	want := ofAgent(t, reference)

	dropped := map[trace.TraceID]bool{} // by manual.drop
	for _, s := range spans {
		for _, kv := range s.Attributes() {
			if kv.Key == "manual.drop" {
				dropped[s.SpanContext().TraceID()] = true
			}
		}
	}
	for _, c := range []struct {
		name string
		// environ is for the plugin, which gets the address of the agent too.
		environ []string
		otlp    bool
		check   func(s sdktrace.ReadOnlySpan, want, got peer.AgentSpan) string
	}{
		{name: "otlp", otlp: true, environ: []string{"SERVE_DATADOG_MODE=otlp"}, check: sameByOTLP},
		{name: "tracer", check: native},
	} {
		t.Run(c.name, func(t *testing.T) {
			agent := peer.StartDatadogAgent(t)
			environ := append([]string{"SERVE_RAY_CONTEXT=off", "DD_TRACE_AGENT_URL=" + agent.URL()}, c.environ...)
			if c.otlp {
				environ = append(environ, "OTEL_EXPORTER_OTLP_ENDPOINT="+agent.OTLPHTTP())
			}
			throughPlugin(t, spans, peer.Plugin(t, "datadog"), "", environ...)
			agent.Stop()
			got := ofAgent(t, agent)
			report := differences{tb: t}
			for _, s := range spans {
				id := s.SpanContext().SpanID()
				w, sent := want[id]
				g, arrived := got[id]
				delete(got, id)
				switch {
				case !sent:
					report.add(id, func() string { return "does not arrive by the SDK's exporter" })
				case !arrived && !c.otlp && dropped[s.SpanContext().TraceID()]: // as dd-trace-go does
				case !arrived:
					report.add(id, func() string { return "has not arrived" })
				default:
					if diff := c.check(s, w, g); diff != "" {
						report.add(id, func() string { return diff })
					}
				}
			}
			for id := range got {
				report.add(id, func() string { return "should not have arrived" })
			}
			report.end(len(spans))
		})
	}
}

func hasZeroLowHalf(s sdktrace.ReadOnlySpan) bool {
	id := s.SpanContext().TraceID()
	return binary.BigEndian.Uint64(id[8:]) == 0
}

// ofAgent returns the spans that have left a stopped agent, by span id.
func ofAgent(tb testing.TB, a *peer.DatadogAgent) map[trace.SpanID]peer.AgentSpan {
	tb.Helper()
	spans := map[trace.SpanID]peer.AgentSpan{}
	for _, s := range a.Spans() {
		var id trace.SpanID
		binary.BigEndian.PutUint64(id[:], s.SpanID)
		if _, twice := spans[id]; twice {
			tb.Errorf("span %v has arrived twice", id)
		}
		spans[id] = s
	}
	return spans
}

// sameByOTLP demands equality except for values that depend on the other spans of a
// batch: tags of the chunk, which only one span carries, with the first env and version
// among them.
func sameByOTLP(s sdktrace.ReadOnlySpan, want, got peer.AgentSpan) string {
	ofChunk := []string{"_dd.p.dm", "_sampling_priority_rate_v1"}
	if slices.ContainsFunc(s.Links(), func(l sdktrace.Link) bool { return l.SpanContext.TraceState().Len() > 0 }) {
		ofChunk = append(ofChunk, "_dd.span_links") // the SDK's exporter loses the trace state
	}
	for _, one := range []*peer.AgentSpan{&want, &got} {
		one.Meta, one.Metrics = maps.Clone(one.Meta), maps.Clone(one.Metrics)
		for _, key := range ofChunk {
			delete(one.Meta, key)
			delete(one.Metrics, key)
		}
		one.Chunk, one.ChunkTags, one.Priority, one.Origin, one.Env, one.Version = 0, nil, 0, "", "", ""
		if s.StartTime().Year() < 2000 {
			one.Start = 0 // the agent moved it to now
		}
	}
	return cmp.Diff(want, got, cmpopts.EquateNaNs())
}

// TestDatadogZeroLowHalf: a trace id whose low half is zero cannot be told to an
// agent. The plugin rejects such spans, and all others arrive.
func TestDatadogZeroLowHalf(t *testing.T) {
	spans := draw(5, 300)
	lost := 0
	for _, s := range spans {
		if hasZeroLowHalf(s) {
			lost++
		}
	}
	agent := peer.StartDatadogAgent(t)
	books := deliver(t, spans, peer.Plugin(t, "datadog"), "", "DD_TRACE_AGENT_URL="+agent.URL())
	agent.Stop()
	if got := len(ofAgent(t, agent)); lost == 0 || got != len(spans)-lost {
		t.Errorf("%d spans have arrived, want %d of %d", got, len(spans)-lost, len(spans))
	}
	if books.Delivered != uint64(len(spans)-lost) || books.Rejected["PARTIAL_SUCCESS"] != uint64(lost) {
		t.Errorf("delivered %d, rejected %v, dropped %v; want %d rejected", books.Delivered, books.Rejected, books.Dropped, lost)
	}
}
