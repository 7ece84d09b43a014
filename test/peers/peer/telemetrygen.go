package peer

import (
	"path/filepath"
	"testing"
	"time"
)

// Telemetrygen runs OpenTelemetry's load generator against an OTLP endpoint, HOST:PORT
// without TLS, until it has sent all spans, and returns its output. It sends as fast as
// it can, each trace by itself: with its own batches it would drop spans that its queue
// cannot hold. more are further arguments: "--traces 500 --child-spans 3" makes 500
// times 4 spans. Without overHTTP it sends gRPC. It ends the test if a call fails, or
// after a minute.
func Telemetrygen(tb testing.TB, endpoint string, overHTTP bool, more ...string) string {
	tb.Helper()
	args := []string{"traces", "--rate", "0", "--batch=false", "--otlp-insecure", "--otlp-endpoint", endpoint}
	if overHTTP {
		args = append(args, "--otlp-http")
	}
	log := filepath.Join(tb.TempDir(), "log")
	p, err := launch("telemetrygen", program(tb, "telemetrygen", "telemetrygen"), append(args, more...), nil, log)
	if err != nil {
		tb.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		tb.Fatalf("telemetrygen is not done after %v (%v)\n%s", patience, p.kill(), logText(log))
	}
	if p.err != nil {
		tb.Fatalf("telemetrygen: %v\n%s", p.err, logText(log))
	}
	return logText(log)
}
