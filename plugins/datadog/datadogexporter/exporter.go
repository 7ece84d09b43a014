// Package datadogexporter sends spans to a Datadog agent. It is the exporter of
// the datadog plugin, and can be the exporter of a plugin with processors of its
// own:
//
//	func main() {
//		pluginsdk.Main(pluginsdk.Spec{
//			Name:       "my-datadog",
//			Env:        datadogexporter.EnvPatterns(),
//			EnvAtStart: true, // dd-trace-go reads some variables before main
//			Processors: []pluginsdk.NewProcessor{redact},
//			Exporter:   datadogexporter.New,
//		})
//	}
//
// There are two modes. "tracer" replays spans through dd-trace-go, Datadog's own
// tracer, which maps, samples and counts them and makes the agent's payloads. "otlp"
// sends OTLP to the agent, which maps the spans itself.
//
// The life of an exporter of the mode tracer:
//
//  1. [New] reads the settings. It uses no network.
//  2. The first Export checks that the agent answers, and starts the tracer.
//  3. Each Export starts and ends the spans of its batch in the tracer (bridge.go),
//     takes the resulting payloads (capture.go), sends them and waits for the answers.
//     If a request fails, the next attempt for the batch sends the remaining payloads
//     unchanged. Spans are not replayed, so statistics count them once.
//  4. Shutdown stops the tracer, sends its last statistics and closes the connections.
//
// The exporter does not wait until a trace is complete: spans of a trace in several
// batches become several chunks, which Datadog joins. A process has a single tracer, so
// exporters that share a process take turns.
//
// Open this file first; settings.go reads the variables. tracer.go drives the
// tracer, bridge.go, unit.go and verdict.go feed it, capture.go and payload.go take its
// output, and agent.go sends it. otlp.go is the other mode.
package datadogexporter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/servetrace/servetrace/pluginsdk"
)

var _ pluginsdk.NewExporter = New

// New returns an exporter configured by the variables of [EnvPatterns]. If the variable
// of the mode is not set, the mode comes from the part "exporter" of the plugin's
// configuration:
//
//	exporter:
//	  mode: otlp   # as SERVE_DATADOG_MODE; with it, the keys of otlpexporter.New
//
// In the mode tracer, dd-trace-go reads its own variables from the process's
// environment. An invalid value is a [pluginsdk.ConfigError] with the variable or the
// path in the configuration. Warnings name Datadog's variables without effect. New does
// not block and does not use the network. The exporter is safe for concurrent use.
func New(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	var doc document
	if err := s.DecodeConfig(&doc); err != nil {
		return nil, err
	}
	mode, err := readMode(s, doc.Exporter.Mode)
	if err != nil {
		return nil, err
	}
	if mode == modeOTLP {
		return newOTLP(ctx, s, doc)
	}
	return newNative(s, doc)
}

// noRates is the answer to the tracer before the agent's first answer.
var noRates = []byte("{}")

// native is the exporter of the mode tracer.
type native struct {
	settings settings
	log      *tracerLog
	rates    atomic.Pointer[[]byte] // the sampling rates of the agent's last answer, in JSON
	// The mutex encoder.turn guards statistics and verdicts.
	statistics bool // the tracer computes statistics
	verdicts   verdicts
	// away is set if the agent did not answer the last payload, or refused it temporarily.
	away atomic.Bool

	mu    sync.Mutex
	begun []*delivery // the encoded and undelivered batches, oldest first, at most maxBegun
	late  []payload   // statistics without a batch
}

var _ pluginsdk.Exporter = (*native)(nil)

// maxBegun is greater than the host's concurrency. If the oldest batch is removed and
// sent again later, its spans are replayed.
const maxBegun = 8

// filterName is the processor name under which spans dropped by Datadog's samplers are
// counted as filtered.
const filterName = "datadog.sampler"

func newNative(s pluginsdk.Setup, doc document) (*native, error) {
	if err := doc.onlyMode(); err != nil {
		return nil, err
	}
	chosen, err := readSettings(s)
	if err != nil {
		return nil, err
	}
	s.Log.Info("spans go to the Datadog agent through dd-trace-go, up to some 10,000 a second; for more, set "+EnvMode+"="+modeOTLP,
		"address", chosen.agent.name, "timeout", chosen.agent.timeout.String(), "statistics_by", chosen.statisticsBy())
	n := &native{settings: chosen, log: newTracerLog(s.Log), statistics: !chosen.agentStatistics}
	n.rates.Store(&noRates)
	return n, nil
}

// Export delivers the batch. A nil error means that the agent has accepted all spans,
// except the spans that Datadog's samplers drop, which are counted as filtered.
func (n *native) Export(ctx context.Context, b *pluginsdk.Batch) error {
	return n.export(ctx, b.ID(), b)
}

// export delivers a batch with the given id.
func (n *native) export(ctx context.Context, id string, b *pluginsdk.Batch) error {
	d := n.resume(id)
	if d == nil {
		// After a failed delivery, the agent is checked before the batch is encoded. An encoded
		// batch is kept in this process, and while the agent is away, the host should keep its
		// batches.
		if n.away.Load() {
			if err := n.settings.agent.checkReachable(ctx); err != nil {
				return err
			}
		}
		var err error
		if d, err = theEncoder.encode(ctx, n, b); err != nil {
			return err
		}
		d.payloads = append(d.payloads, n.takeLate()...)
	}
	err := n.deliver(ctx, d)
	n.away.Store(err != nil)
	if err != nil {
		n.interrupted(id, d)
		return err
	}
	if !d.taken && d.refused != nil {
		return d.refused
	}
	b.CountFiltered(filterName, d.filtered)
	if d.rejected > 0 {
		return pluginsdk.Partial(d.rejected, d.reason)
	}
	return nil
}

// resume removes and returns the remaining delivery of a batch. It returns nil for a new
// batch.
func (n *native) resume(id string) *delivery {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.begun, func(d *delivery) bool { return d.id == id })
	if i < 0 {
		return nil
	}
	d := n.begun[i]
	n.begun = slices.Delete(n.begun, i, i+1)
	return d
}

// interrupted stores the remaining delivery of a batch that will be sent again.
func (n *native) interrupted(id string, d *delivery) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id == "" {
		return
	}
	if len(n.begun) == maxBegun {
		n.begun = slices.Delete(n.begun, 0, 1)
	}
	d.id = id
	n.begun = append(n.begun, d)
}

func (n *native) addLate(payloads []payload) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = append(n.late, payloads...)
}

func (n *native) takeLate() []payload {
	n.mu.Lock()
	defer n.mu.Unlock()
	late := n.late
	n.late = nil
	return late
}

const reasonTooLarge = "the Datadog agent refuses a payload with a single trace as too large (413)"

// deliver sends the remaining payloads. If a payload is refused finally, only the spans of
// this payload are rejected.
func (n *native) deliver(ctx context.Context, d *delivery) error {
	for len(d.payloads) > 0 {
		p := d.payloads[0]
		body, err := n.settings.agent.send(ctx, p)
		switch {
		case errors.Is(err, errTooLarge) && len(p.chunks) > 1:
			first, second := p.halves()
			d.payloads = append([]payload{first, second}, d.payloads[1:]...)
			continue
		case p.chunks == nil && pluginsdk.Final(err):
			n.settings.log.Warn("the Datadog agent refuses statistics: they are lost", "error", err)
		case errors.Is(err, errTooLarge):
			d.reject(p.kept(), reasonTooLarge)
			d.taken = true // a payload that was too large does not end the delivery
		case pluginsdk.Final(err):
			d.refused = err
			d.reject(p.kept(), err.Error())
		case err != nil:
			return err
		case p.chunks != nil:
			d.taken = true
			if strings.HasPrefix(string(body), "{") {
				n.rates.Store(&body) // the tracer's next payload is answered with these rates
			}
		}
		d.payloads = d.payloads[1:]
	}
	return nil
}

// Shutdown stops the tracer, sends its last statistics and closes the connections.
func (n *native) Shutdown(ctx context.Context) error {
	err := theEncoder.release(ctx, n)
	last := &delivery{payloads: n.takeLate()}
	err = errors.Join(err, n.deliver(ctx, last))
	n.settings.agent.client.CloseIdleConnections()
	return err
}
