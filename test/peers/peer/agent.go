package peer

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	pb "github.com/DataDog/datadog-agent/pkg/proto/pbgo/trace"
)

// DatadogAgent is the running core of Datadog's trace agent. A back end behind it
// records the payloads that the agent sends to Datadog.
type DatadogAgent struct {
	tb      testing.TB
	options agentOptions
	// program is the executable, dir the folder of its files.
	program, dir string
	// readyPath is drawn, so that a neighbour's agent that has taken a port of
	// ours is not mistaken for it.
	readyPath  string
	port, otlp int
	process    *process
	file       *frameFile
	statistics *frameFile // nil unless asked for
	hits       map[string]uint64
	spans      []AgentSpan
	chunks     int
	// collector is in front of the OTLP receiver. It is nil until a test needs it.
	collector *Collector
}

type agentOptions struct {
	socket     string
	withoutV1  bool
	statistics bool
}

// AgentOption changes the agent that StartDatadogAgent starts.
type AgentOption func(*agentOptions)

// WithSocket has the agent listen on a Unix socket, too. The path must be short
// enough for one: some 100 bytes.
func WithSocket(path string) AgentOption {
	return func(o *agentOptions) { o.socket = path }
}

// WithoutV1 starts an agent that does not know protocol 1.0: clients use 0.4. It
// has no socket.
func WithoutV1() AgentOption {
	return func(o *agentOptions) { o.withoutV1 = true }
}

// WithStatistics starts an agent that samples by its default target rate, and
// whose statistics can be read by Hits.
func WithStatistics() AgentOption {
	return func(o *agentOptions) { o.statistics = true }
}

// StartDatadogAgent starts an agent and returns when it takes spans. It is
// stopped when the test ends.
func StartDatadogAgent(tb testing.TB, opts ...AgentOption) *DatadogAgent {
	tb.Helper()
	a := &DatadogAgent{tb: tb, program: program(tb, "ddagent", "ddagent"), dir: tb.TempDir(), readyPath: "/ready/" + rand.Text()}
	for _, o := range opts {
		o(&a.options)
	}
	a.file = &frameFile{tb: tb, path: filepath.Join(a.dir, "payloads.binpb")}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the Datadog agent's log:\n%s", a.Log())
		}
	})
	a.process = startSomewhere(tb, a.logFile(), func() (*process, error) {
		ports := freePorts(tb, 2)
		a.port, a.otlp = ports[0], ports[1]
		return a.start()
	})
	tb.Cleanup(func() {
		if a.process != nil {
			a.Stop()
		}
	})
	return a
}

// start starts the process on the ports that are set.
func (a *DatadogAgent) start() (_ *process, err error) {
	args := []string{
		"-stdin", "-port", strconv.Itoa(a.port), "-otlp-grpc", strconv.Itoa(a.otlp), "-frames", a.file.path, "-ready", a.readyPath,
	}
	if a.options.socket != "" {
		args = append(args, "-socket", a.options.socket)
	}
	if a.options.statistics {
		a.statistics = &frameFile{tb: a.tb, path: filepath.Join(a.dir, "statistics")}
		args = append(args, "-stats", a.statistics.path)
	}
	if a.options.withoutV1 {
		// The test's own folder is too long a path for a socket.
		inner, err := os.MkdirTemp("", "ddagent-")
		if err != nil {
			return nil, err
		}
		a.tb.Cleanup(func() {
			if err := os.RemoveAll(inner); err != nil {
				a.tb.Error(err)
			}
		})
		args = append(args, "-without-v1", "-inner", filepath.Join(inner, "s"))
	}
	p, err := launch("the Datadog agent", a.program, args, nil, a.logFile())
	if err != nil {
		return nil, err
	}
	if err := p.ready(a.URL() + a.readyPath); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

func (a *DatadogAgent) logFile() string { return filepath.Join(a.dir, "log") }

// URL returns the address for traces, http://127.0.0.1:PORT, which is the value for
// DD_TRACE_AGENT_URL. Safe for concurrent use.
func (a *DatadogAgent) URL() string { return "http://" + loopback(a.port) }

// OTLPHTTP is an endpoint for OTLP/HTTP that leads to the agent, as port 4318
// of a real one: a Collector in front of the agent's OTLP receiver, which
// answers when the agent has. The first call starts it; Stop and Restart stop
// and restart it with the agent, which must be running at the first call.
func (a *DatadogAgent) OTLPHTTP() string {
	a.tb.Helper()
	if a.collector == nil {
		a.collector = StartCollector(a.tb, forwardTo(loopback(a.otlp)))
	}
	return a.collector.HTTP()
}

// OTLPGRPC is the agent's own endpoint for OTLP/gRPC. Safe for concurrent use.
func (a *DatadogAgent) OTLPGRPC() string { return "http://" + loopback(a.otlp) }

// Spans returns all spans that have left the agent, in order. The caller must not change
// them. Spans that the agent has accepted in the last 200 ms may be missing.
func (a *DatadogAgent) Spans() []AgentSpan {
	a.tb.Helper()
	for _, frame := range a.file.next() {
		var payload pb.AgentPayload
		if err := payload.UnmarshalVT(frame); err != nil {
			a.tb.Fatalf("a payload of %d bytes: %v", len(frame), err)
		}
		for _, p := range payload.TracerPayloads {
			a.addTracerPayload(p)
		}
		for _, p := range payload.IdxTracerPayloads {
			a.addIndexed(p)
		}
	}
	return a.spans
}

// Hits returns how many spans of each operation name the statistics count that
// have left the agent, which sends the last when it is stopped.
func (a *DatadogAgent) Hits() map[string]uint64 {
	a.tb.Helper()
	if a.hits == nil {
		a.hits = map[string]uint64{}
	}
	for _, frame := range a.statistics.next() {
		var payload pb.StatsPayload
		if _, err := payload.UnmarshalMsg(frame); err != nil {
			a.tb.Fatalf("statistics of %d bytes: %v", len(frame), err)
		}
		for _, client := range payload.Stats {
			for _, bucket := range client.Stats {
				for _, group := range bucket.Stats {
					a.hits[group.Name] += group.Hits
				}
			}
		}
	}
	return a.hits
}

// WaitSpans blocks until at least n spans have left the agent, and returns the result of
// Spans. It ends the test if nothing new arrives for a minute.
func (a *DatadogAgent) WaitSpans(n int) []AgentSpan {
	a.tb.Helper()
	waitFor(a.tb, fmt.Sprintf("%d spans at the Datadog agent", n), n, func() int { return len(a.Spans()) })
	return a.spans
}

// Raw is the file of payloads itself, to look for bytes that must not be there.
func (a *DatadogAgent) Raw() []byte { a.tb.Helper(); return a.file.raw() }

// Log returns the output of the agent, at most the last 32 KiB.
func (a *DatadogAgent) Log() string { return logText(a.logFile()) }

// Stop ends the agent as an operator does: it writes all accepted spans first. Then its
// ports refuse connections. Spans still works.
func (a *DatadogAgent) Stop() {
	a.tb.Helper()
	if a.process == nil {
		a.tb.Fatal("the Datadog agent is stopped already")
	}
	if a.collector != nil && a.collector.process != nil {
		a.collector.Stop()
	}
	if err := a.process.stop(); err != nil {
		a.tb.Error(err)
	}
	a.process = nil
}

// Restart starts an agent again that was stopped, on the same ports and with
// the same file, and returns when it takes spans.
func (a *DatadogAgent) Restart() {
	a.tb.Helper()
	if a.process != nil {
		a.tb.Fatal("the Datadog agent is running: Stop it first")
	}
	p, err := a.start()
	if err != nil {
		a.tb.Fatal(err)
	}
	a.process = p
	if a.collector != nil {
		a.collector.Restart()
	}
}

// traceID puts the halves of a trace id together, as 32 hex digits.
func traceID(high, low uint64) string { return fmt.Sprintf("%016x%016x", high, low) }

// parseHigh reads the high half of a trace id as tracers write it, 0 where it
// is none.
func parseHigh(text string) uint64 {
	high, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0
	}
	return high
}

// isTraceID reports whether text is 32 hex digits.
func isTraceID(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == 16
}
