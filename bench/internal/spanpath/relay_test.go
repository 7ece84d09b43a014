package spanpath

import (
	"errors"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/bench/internal/benchtest"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// TestRelayWithoutCollector runs a short load on the relay. The Collector is skipped.
func TestRelayWithoutCollector(t *testing.T) {
	into, err := sink.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = into.Close() }()
	env := &suite.Env{Bin: benchtest.Bin(t), Sink: into, Collector: "/no/such/file"}
	load := relayLoad{rate: 20 * requestSpans, turns: 2, length: 2 * length}
	round, err := load.run(t.Context(), env, relayShape.Rows)
	var skipped suite.SkippedError
	if !errors.As(err, &skipped) || !strings.Contains(skipped.Error(), "make peers PEERS=otelcol") {
		t.Errorf("error %v, want a hint", err)
	}
	for _, row := range []string{rowRelay, rowRelayGzip} {
		if got := round[row]; len(round) != 2 || got[cpuRelay] <= 0 || got[lost] != 0 || got[rate] < 10*requestSpans {
			t.Errorf("%s: %v", row, round)
		}
	}
	if all, err := into.Spans(t.Context()); err != nil || all%requestSpans != 0 || all < 3*requestSpans {
		t.Errorf("the sink has %d spans, %v", all, err)
	}
}
