package peer

import (
	"strings"
	"testing"
)

func TestTelemetrygenSendsWhatItIsTold(t *testing.T) {
	t.Parallel()
	c := StartCollector(t)
	for _, address := range []struct {
		at       string
		overHTTP bool
	}{
		{c.HTTP(), true},
		{c.GRPC(), false},
	} {
		Telemetrygen(t, strings.TrimPrefix(address.at, "http://"), address.overHTTP, "--traces", "10", "--child-spans", "3")
	}
	c.WaitSpans(80)
	c.Stop()
	c.Spans()
	if c.spans != 80 {
		t.Errorf("%d spans, want 2 times 10 times 4", c.spans)
	}
}
